//! PostgreSQL 15's built-in types: the rows of `pg_type`, and the ranges of `pg_range`.
//!
//! Columns: oid, typname, typlen, typbyval, typtype, typcategory, typispreferred, typdelim, typelem,
//! typarray, typinput, typoutput, typreceive, typsend, typalign, typstorage, typcollation. Types
//! that no column here can have are listed too: drivers read the list to know what they may meet.

/// The rows, one a line, columns separated by blanks.
pub(super) const TYPES: &str = "\
16 bool 1 t b B t , 0 1000 boolin boolout boolrecv boolsend c p 0\n\
17 bytea -1 f b U f , 0 1001 byteain byteaout bytearecv byteasend i x 0\n\
18 char 1 t b Z f , 0 1002 charin charout charrecv charsend c p 0\n\
19 name 64 f b S f , 18 1003 namein nameout namerecv namesend c p 950\n\
20 int8 8 t b N f , 0 1016 int8in int8out int8recv int8send d p 0\n\
21 int2 2 t b N f , 0 1005 int2in int2out int2recv int2send s p 0\n\
22 int2vector -1 f b A f , 21 1006 int2vectorin int2vectorout int2vectorrecv int2vectorsend i p 0\n\
23 int4 4 t b N f , 0 1007 int4in int4out int4recv int4send i p 0\n\
24 regproc 4 t b N f , 0 1008 regprocin regprocout regprocrecv regprocsend i p 0\n\
25 text -1 f b S t , 0 1009 textin textout textrecv textsend i x 100\n\
26 oid 4 t b N t , 0 1028 oidin oidout oidrecv oidsend i p 0\n\
27 tid 6 f b U f , 0 1010 tidin tidout tidrecv tidsend s p 0\n\
28 xid 4 t b U f , 0 1011 xidin xidout xidrecv xidsend i p 0\n\
29 cid 4 t b U f , 0 1012 cidin cidout cidrecv cidsend i p 0\n\
30 oidvector -1 f b A f , 26 1013 oidvectorin oidvectorout oidvectorrecv oidvectorsend i p 0\n\
114 json -1 f b U f , 0 199 json_in json_out json_recv json_send i x 0\n\
142 xml -1 f b U f , 0 143 xml_in xml_out xml_recv xml_send i x 0\n\
143 _xml -1 f b A f , 142 0 array_in array_out array_recv array_send i x 0\n\
194 pg_node_tree -1 f b Z f , 0 0 pg_node_tree_in pg_node_tree_out pg_node_tree_recv pg_node_tree_send i x 100\n\
199 _json -1 f b A f , 114 0 array_in array_out array_recv array_send i x 0\n\
600 point 16 f b G f , 701 1017 point_in point_out point_recv point_send d p 0\n\
601 lseg 32 f b G f , 600 1018 lseg_in lseg_out lseg_recv lseg_send d p 0\n\
602 path -1 f b G f , 0 1019 path_in path_out path_recv path_send d x 0\n\
603 box 32 f b G f ; 600 1020 box_in box_out box_recv box_send d p 0\n\
604 polygon -1 f b G f , 0 1027 poly_in poly_out poly_recv poly_send d x 0\n\
628 line 24 f b G f , 701 629 line_in line_out line_recv line_send d p 0\n\
629 _line -1 f b A f , 628 0 array_in array_out array_recv array_send d x 0\n\
650 cidr -1 f b I f , 0 651 cidr_in cidr_out cidr_recv cidr_send i m 0\n\
651 _cidr -1 f b A f , 650 0 array_in array_out array_recv array_send i x 0\n\
700 float4 4 t b N f , 0 1021 float4in float4out float4recv float4send i p 0\n\
701 float8 8 t b N t , 0 1022 float8in float8out float8recv float8send d p 0\n\
705 unknown -2 f p X f , 0 0 unknownin unknownout unknownrecv unknownsend c p 0\n\
718 circle 24 f b G f , 0 719 circle_in circle_out circle_recv circle_send d p 0\n\
719 _circle -1 f b A f , 718 0 array_in array_out array_recv array_send d x 0\n\
790 money 8 t b N f , 0 791 cash_in cash_out cash_recv cash_send d p 0\n\
791 _money -1 f b A f , 790 0 array_in array_out array_recv array_send d x 0\n\
829 macaddr 6 f b U f , 0 1040 macaddr_in macaddr_out macaddr_recv macaddr_send i p 0\n\
869 inet -1 f b I t , 0 1041 inet_in inet_out inet_recv inet_send i m 0\n\
1000 _bool -1 f b A f , 16 0 array_in array_out array_recv array_send i x 0\n\
1001 _bytea -1 f b A f , 17 0 array_in array_out array_recv array_send i x 0\n\
1002 _char -1 f b A f , 18 0 array_in array_out array_recv array_send i x 0\n\
1003 _name -1 f b A f , 19 0 array_in array_out array_recv array_send i x 950\n\
1005 _int2 -1 f b A f , 21 0 array_in array_out array_recv array_send i x 0\n\
1006 _int2vector -1 f b A f , 22 0 array_in array_out array_recv array_send i x 0\n\
1007 _int4 -1 f b A f , 23 0 array_in array_out array_recv array_send i x 0\n\
1008 _regproc -1 f b A f , 24 0 array_in array_out array_recv array_send i x 0\n\
1009 _text -1 f b A f , 25 0 array_in array_out array_recv array_send i x 100\n\
1010 _tid -1 f b A f , 27 0 array_in array_out array_recv array_send i x 0\n\
1011 _xid -1 f b A f , 28 0 array_in array_out array_recv array_send i x 0\n\
1012 _cid -1 f b A f , 29 0 array_in array_out array_recv array_send i x 0\n\
1013 _oidvector -1 f b A f , 30 0 array_in array_out array_recv array_send i x 0\n\
1014 _bpchar -1 f b A f , 1042 0 array_in array_out array_recv array_send i x 100\n\
1015 _varchar -1 f b A f , 1043 0 array_in array_out array_recv array_send i x 100\n\
1016 _int8 -1 f b A f , 20 0 array_in array_out array_recv array_send d x 0\n\
1017 _point -1 f b A f , 600 0 array_in array_out array_recv array_send d x 0\n\
1018 _lseg -1 f b A f , 601 0 array_in array_out array_recv array_send d x 0\n\
1019 _path -1 f b A f , 602 0 array_in array_out array_recv array_send d x 0\n\
1020 _box -1 f b A f ; 603 0 array_in array_out array_recv array_send d x 0\n\
1021 _float4 -1 f b A f , 700 0 array_in array_out array_recv array_send i x 0\n\
1022 _float8 -1 f b A f , 701 0 array_in array_out array_recv array_send d x 0\n\
1027 _polygon -1 f b A f , 604 0 array_in array_out array_recv array_send d x 0\n\
1028 _oid -1 f b A f , 26 0 array_in array_out array_recv array_send i x 0\n\
1033 aclitem 12 f b U f , 0 1034 aclitemin aclitemout - - i p 0\n\
1034 _aclitem -1 f b A f , 1033 0 array_in array_out array_recv array_send i x 0\n\
1040 _macaddr -1 f b A f , 829 0 array_in array_out array_recv array_send i x 0\n\
1041 _inet -1 f b A f , 869 0 array_in array_out array_recv array_send i x 0\n\
1042 bpchar -1 f b S f , 0 1014 bpcharin bpcharout bpcharrecv bpcharsend i x 100\n\
1043 varchar -1 f b S f , 0 1015 varcharin varcharout varcharrecv varcharsend i x 100\n\
1082 date 4 t b D f , 0 1182 date_in date_out date_recv date_send i p 0\n\
1083 time 8 t b D f , 0 1183 time_in time_out time_recv time_send d p 0\n\
1114 timestamp 8 t b D f , 0 1115 timestamp_in timestamp_out timestamp_recv timestamp_send d p 0\n\
1115 _timestamp -1 f b A f , 1114 0 array_in array_out array_recv array_send d x 0\n\
1182 _date -1 f b A f , 1082 0 array_in array_out array_recv array_send i x 0\n\
1183 _time -1 f b A f , 1083 0 array_in array_out array_recv array_send d x 0\n\
1184 timestamptz 8 t b D t , 0 1185 timestamptz_in timestamptz_out timestamptz_recv timestamptz_send d p 0\n\
1185 _timestamptz -1 f b A f , 1184 0 array_in array_out array_recv array_send d x 0\n\
1186 interval 16 f b T t , 0 1187 interval_in interval_out interval_recv interval_send d p 0\n\
1187 _interval -1 f b A f , 1186 0 array_in array_out array_recv array_send d x 0\n\
1231 _numeric -1 f b A f , 1700 0 array_in array_out array_recv array_send i x 0\n\
1263 _cstring -1 f b A f , 2275 0 array_in array_out array_recv array_send i x 0\n\
1266 timetz 12 f b D f , 0 1270 timetz_in timetz_out timetz_recv timetz_send d p 0\n\
1270 _timetz -1 f b A f , 1266 0 array_in array_out array_recv array_send d x 0\n\
1560 bit -1 f b V f , 0 1561 bit_in bit_out bit_recv bit_send i x 0\n\
1561 _bit -1 f b A f , 1560 0 array_in array_out array_recv array_send i x 0\n\
1562 varbit -1 f b V t , 0 1563 varbit_in varbit_out varbit_recv varbit_send i x 0\n\
1563 _varbit -1 f b A f , 1562 0 array_in array_out array_recv array_send i x 0\n\
1700 numeric -1 f b N f , 0 1231 numeric_in numeric_out numeric_recv numeric_send i m 0\n\
1790 refcursor -1 f b U f , 0 2201 textin textout textrecv textsend i x 0\n\
2201 _refcursor -1 f b A f , 1790 0 array_in array_out array_recv array_send i x 0\n\
2202 regprocedure 4 t b N f , 0 2207 regprocedurein regprocedureout regprocedurerecv regproceduresend i p 0\n\
2203 regoper 4 t b N f , 0 2208 regoperin regoperout regoperrecv regopersend i p 0\n\
2205 regclass 4 t b N f , 0 2210 regclassin regclassout regclassrecv regclasssend i p 0\n\
2206 regtype 4 t b N f , 0 2211 regtypein regtypeout regtyperecv regtypesend i p 0\n\
2207 _regprocedure -1 f b A f , 2202 0 array_in array_out array_recv array_send i x 0\n\
2208 _regoper -1 f b A f , 2203 0 array_in array_out array_recv array_send i x 0\n\
2210 _regclass -1 f b A f , 2205 0 array_in array_out array_recv array_send i x 0\n\
2211 _regtype -1 f b A f , 2206 0 array_in array_out array_recv array_send i x 0\n\
2249 record -1 f p P f , 0 2287 record_in record_out record_recv record_send d x 0\n\
2275 cstring -2 f p P f , 0 1263 cstring_in cstring_out cstring_recv cstring_send c p 0\n\
2276 any 4 t p P f , 0 0 any_in any_out - - i p 0\n\
2277 anyarray -1 f p P f , 0 0 anyarray_in anyarray_out anyarray_recv anyarray_send d x 0\n\
2278 void 4 t p P f , 0 0 void_in void_out void_recv void_send i p 0\n\
2283 anyelement 4 t p P f , 0 0 anyelement_in anyelement_out - - i p 0\n\
2287 _record -1 f p P f , 2249 0 array_in array_out array_recv array_send d x 0\n\
2949 _txid_snapshot -1 f b A f , 2970 0 array_in array_out array_recv array_send d x 0\n\
2950 uuid 16 f b U f , 0 2951 uuid_in uuid_out uuid_recv uuid_send c p 0\n\
2951 _uuid -1 f b A f , 2950 0 array_in array_out array_recv array_send i x 0\n\
2970 txid_snapshot -1 f b U f , 0 2949 txid_snapshot_in txid_snapshot_out txid_snapshot_recv txid_snapshot_send d x 0\n\
3220 pg_lsn 8 t b U f , 0 3221 pg_lsn_in pg_lsn_out pg_lsn_recv pg_lsn_send d p 0\n\
3221 _pg_lsn -1 f b A f , 3220 0 array_in array_out array_recv array_send d x 0\n\
3614 tsvector -1 f b U f , 0 3643 tsvectorin tsvectorout tsvectorrecv tsvectorsend i x 0\n\
3615 tsquery -1 f b U f , 0 3645 tsqueryin tsqueryout tsqueryrecv tsquerysend i p 0\n\
3643 _tsvector -1 f b A f , 3614 0 array_in array_out array_recv array_send i x 0\n\
3645 _tsquery -1 f b A f , 3615 0 array_in array_out array_recv array_send i x 0\n\
3802 jsonb -1 f b U f , 0 3807 jsonb_in jsonb_out jsonb_recv jsonb_send i x 0\n\
3807 _jsonb -1 f b A f , 3802 0 array_in array_out array_recv array_send i x 0\n\
3904 int4range -1 f r R f , 0 3905 range_in range_out range_recv range_send i x 0\n\
3905 _int4range -1 f b A f , 3904 0 array_in array_out array_recv array_send i x 0\n\
3906 numrange -1 f r R f , 0 3907 range_in range_out range_recv range_send i x 0\n\
3907 _numrange -1 f b A f , 3906 0 array_in array_out array_recv array_send i x 0\n\
3908 tsrange -1 f r R f , 0 3909 range_in range_out range_recv range_send d x 0\n\
3909 _tsrange -1 f b A f , 3908 0 array_in array_out array_recv array_send d x 0\n\
3910 tstzrange -1 f r R f , 0 3911 range_in range_out range_recv range_send d x 0\n\
3911 _tstzrange -1 f b A f , 3910 0 array_in array_out array_recv array_send d x 0\n\
3912 daterange -1 f r R f , 0 3913 range_in range_out range_recv range_send i x 0\n\
3913 _daterange -1 f b A f , 3912 0 array_in array_out array_recv array_send i x 0\n\
3926 int8range -1 f r R f , 0 3927 range_in range_out range_recv range_send d x 0\n\
3927 _int8range -1 f b A f , 3926 0 array_in array_out array_recv array_send d x 0\n\
4072 jsonpath -1 f b U f , 0 4073 jsonpath_in jsonpath_out jsonpath_recv jsonpath_send i x 0\n\
4073 _jsonpath -1 f b A f , 4072 0 array_in array_out array_recv array_send i x 0\n\
4089 regnamespace 4 t b N f , 0 4090 regnamespacein regnamespaceout regnamespacerecv regnamespacesend i p 0\n\
4090 _regnamespace -1 f b A f , 4089 0 array_in array_out array_recv array_send i x 0\n\
4096 regrole 4 t b N f , 0 4097 regrolein regroleout regrolerecv regrolesend i p 0\n\
4097 _regrole -1 f b A f , 4096 0 array_in array_out array_recv array_send i x 0\n\
";

/// `rngtypid rngsubtype rngmultitypid` of the built-in ranges.
pub(super) const RANGES: &[(i64, i64, i64)] = &[
    (3904, 23, 4451),
    (3906, 1700, 4532),
    (3908, 1114, 4533),
    (3910, 1184, 4534),
    (3912, 1082, 4535),
    (3926, 20, 4536),
];

/// What `format_type` calls a type: as SQL does.
pub(super) fn sql_name(type_name: &str) -> &str {
    match type_name {
        "bool" => "boolean",
        "bpchar" => "character",
        "char" => "\"char\"",
        "float4" => "real",
        "float8" => "double precision",
        "int2" => "smallint",
        "int4" => "integer",
        "int8" => "bigint",
        "time" => "time without time zone",
        "timestamp" => "timestamp without time zone",
        "timestamptz" => "timestamp with time zone",
        "timetz" => "time with time zone",
        "varbit" => "bit varying",
        "varchar" => "character varying",
        "any" => "\"any\"",
        other => other,
    }
}

/// The `typname` that SQL's name of a type means.
pub(super) fn type_name(sql_name: &str) -> &str {
    match sql_name {
        "boolean" => "bool",
        "character" => "bpchar",
        "\"char\"" => "char",
        "real" => "float4",
        "double precision" | "float" => "float8",
        "smallint" => "int2",
        "integer" | "int" => "int4",
        "bigint" => "int8",
        "decimal" => "numeric",
        "time without time zone" => "time",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "time with time zone" => "timetz",
        "bit varying" => "varbit",
        "character varying" => "varchar",
        other => other,
    }
}
