"""What Grafana, Metabase, Superset, Power BI, DBeaver, DataGrip, pgAdmin and ODBC tools ask, side by side.

The tools themselves cannot be started here; these are their statements. Numbers that each server gives
out by itself (OIDs, process ids) are shown as `#`, and rows that PostgreSQL alone has are left out by
asking for the objects of this session.
"""

import decimal

import psycopg2

from session import DATABASE, HOST, PORT, USER, show, show_error

c = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
c.autocommit = True
cur = c.cursor()

FIRST_USER_OID = 16384
# Columns that `*` leaves out in PostgreSQL only.
HIDDEN = ("xmin", "tableoid")


def plain(value):
    if isinstance(value, decimal.Decimal):
        # How many zeros a numeric ends with hangs on how it was computed.
        return value.normalize()
    if isinstance(value, int) and not isinstance(value, bool) and value >= FIRST_USER_OID:
        return "#"
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def ask(name, sql, args=None):
    try:
        cur.execute(sql.replace("%%", "%") if args is None else sql, args)
        if cur.description is None:
            show(name, cur.statusmessage)
            return
        columns = [d.name for d in cur.description]
        columns = [n for n in columns if n not in HIDDEN]
        rows = [plain(list(row)) for row in cur.fetchall()]
        show(name, (columns, sorted(rows, key=repr)))
    except psycopg2.Error as error:
        show_error(name, error)


def count(name, sql, args=None):
    """Only that it is understood and gives rows: what is in them is each server's own."""
    try:
        cur.execute(sql.replace("%%", "%") if args is None else sql, args)
        names = [d.name for d in cur.description if d.name not in HIDDEN]
        show(name, (names, len(cur.fetchall()) > 0))
    except psycopg2.Error as error:
        show_error(name, error)


for sql in (
    "create table rec_sales (id bigint primary key, customer varchar(40) not null, amount numeric(12,2) default 0, day date, at timestamptz, ok boolean, tags text[], doc jsonb)",
    "insert into rec_sales values (1, 'Ada', 10.50, '2024-01-01', '2024-01-01 10:00+00', true, '{a,b}', '{\"k\": 1}'), (2, 'Bob', 5, '2024-01-02', '2024-01-02 11:30+00', false, null, null), (3, 'Ada', 7.25, '2024-01-02', '2024-01-02 11:31+00', null, '{}', '{\"k\": 2}')",
    "create view rec_view as select id, customer from rec_sales",
    "create materialized view rec_mv as select customer, sum(amount) as amount, count(*) as n from rec_sales group by customer",
    "create index rec_mv_amount on rec_mv (amount desc)",
    "comment on table rec_sales is 'what was sold'",
    "comment on column rec_sales.amount is 'in euros'",
):
    cur.execute(sql)
ask("refresh", "refresh materialized view rec_mv")

# Grafana
ask("grafana version", "SELECT current_setting('server_version_num')::int/100 as version")
ask("grafana timescale", "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")
PATH = """quote_ident(table_schema) IN (
          SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1),
                               array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
               string_to_array(current_setting('search_path'),',') s)"""
ask("grafana tables", f"""SELECT CASE WHEN {PATH} THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
  FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache') AND table_name IN ('rec_sales', 'rec_view') AND table_type <> 'LOCAL TEMPORARY' AND {PATH}""")
ask("grafana columns", f"""SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
  WHERE CASE WHEN array_length(parse_ident('rec_sales'),1) = 2 THEN quote_ident(table_schema) = (parse_ident('rec_sales'))[1] AND quote_ident(table_name) = (parse_ident('rec_sales'))[2]
  ELSE quote_ident(table_name) = 'rec_sales' AND {PATH} END""")
ask("grafana series", """SELECT floor(extract(epoch from at)/60)*60 AS "time", avg(amount) AS amount FROM rec_sales
  WHERE at BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-03T00:00:00.123456789Z' GROUP BY 1 ORDER BY 1""")
ask("grafana epoch", "SELECT extract(epoch from at) as time, customer as metric, amount as value FROM rec_sales WHERE extract(epoch from at) >= 1704100000 and extract(epoch from at) <= 1704300000 ORDER BY 1")
ask("grafana schemata", "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN ('pg_catalog','information_schema') AND schema_name NOT LIKE 'pg_%%' AND schema_name NOT LIKE 'dbt%%' AND schema_name <> 'tidemill'")
ask("grafana distinct", """SELECT 'customer' AS col_name, "customer"::text AS val FROM (SELECT DISTINCT "customer" FROM "public"."rec_sales" LIMIT 100) sub_0 UNION ALL SELECT 'ok' AS col_name, "ok"::text AS val FROM (SELECT DISTINCT "ok" FROM "public"."rec_sales" LIMIT 100) sub_1""")

# Metabase
ask("metabase isolation", "SHOW TRANSACTION ISOLATION LEVEL")
ask("metabase characteristics", "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
ask("metabase isolation again", "SHOW TRANSACTION ISOLATION LEVEL")
ask("metabase time zone", "SET SESSION TIMEZONE TO 'America/New_York'")
ask("metabase in zone", "SELECT at FROM rec_sales WHERE at >= timestamp with time zone '2024-01-02 00:00:00.000-05:00'")
ask("metabase zone again", "SET SESSION TIMEZONE TO 'UTC'")
ask("metabase tables", """SELECT n.nspname AS schema, c.relname AS name, CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END AS type, d.description AS description
  FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
  LEFT JOIN pg_catalog.pg_description AS d ON (c.oid = d.objoid) AND (d.objsubid = 0) AND (d.classoid = 'pg_class'::regclass)
  LEFT JOIN pg_stat_user_tables AS stat ON (n.nspname = stat.schemaname) AND (c.relname = stat.relname)
  WHERE (c.relnamespace = n.oid) AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind in ('r', 'p', 'v', 'f', 'm') AND c.relname LIKE 'rec%%'""")
ask("metabase privileges", """with table_privileges as (select NULL as role, t.schemaname as schema, t.objectname as table,
  pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"."' || replace(t.objectname, '"', '""') || '"', 'update') as update,
  pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"."' || replace(t.objectname, '"', '""') || '"', 'select') as select,
  pg_catalog.has_table_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"."' || replace(t.objectname, '"', '""') || '"', 'delete') as delete
  from (select schemaname, tablename as objectname from pg_catalog.pg_tables union select schemaname, viewname as objectname from pg_catalog.pg_views union select schemaname, matviewname as objectname from pg_catalog.pg_matviews) t
  where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema' and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'USAGE'))
  select t.* from table_privileges t where t.table like 'rec%%'""")
ask("metabase fields", """SELECT c.column_name AS name, c.udt_name AS "database-type", c.ordinal_position - 1 AS position, c.table_schema AS schema, c.table_name AS table,
  pk.column_name IS NOT NULL AS pk, col_description(CAST(CAST(format('%%I.%%I', CAST(c.table_schema AS TEXT), CAST(c.table_name AS TEXT)) AS REGCLASS) AS OID), c.ordinal_position) AS comment,
  ((column_default IS NULL) OR (LOWER(column_default) = 'null')) AND (is_nullable = 'NO') AND NOT (is_identity = 'YES') AS required
  FROM information_schema.columns AS c LEFT JOIN (SELECT tc.table_schema, tc.table_name, kc.column_name FROM information_schema.table_constraints AS tc
  INNER JOIN information_schema.key_column_usage AS kc ON tc.constraint_name = kc.constraint_name AND tc.table_schema = kc.table_schema AND tc.table_name = kc.table_name
  WHERE tc.constraint_type = 'PRIMARY KEY') AS pk ON c.table_schema = pk.table_schema AND c.table_name = pk.table_name AND c.column_name = pk.column_name
  WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND c.table_name LIKE 'rec%%'
  UNION ALL SELECT pa.attname AS name, pt.typname AS "database-type", pa.attnum - 1 AS position, pn.nspname AS schema, pc.relname AS table, FALSE AS pk, NULL AS comment, FALSE AS required
  FROM pg_catalog.pg_class AS pc INNER JOIN pg_catalog.pg_namespace AS pn ON pn.oid = pc.relnamespace INNER JOIN pg_catalog.pg_attribute AS pa ON pa.attrelid = pc.oid INNER JOIN pg_catalog.pg_type AS pt ON pt.oid = pa.atttypid
  WHERE pc.relkind = 'm' AND pa.attnum >= 1 AND pc.relname LIKE 'rec%%'""")
ask("metabase fks", """SELECT fk_ns.nspname AS "fk-table-schema", fk_table.relname AS "fk-table-name", fk_column.attname AS "fk-column-name" FROM pg_constraint AS c
  JOIN pg_class AS fk_table ON c.conrelid = fk_table.oid JOIN pg_namespace AS fk_ns ON c.connamespace = fk_ns.oid JOIN pg_attribute AS fk_column ON c.conrelid = fk_column.attrelid
  WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND c.contype = 'f'::char AND fk_column.attnum = ANY(c.conkey)""")
ask("metabase enums", "SELECT nspname, typname FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum)")
ask("metabase indexes", """SELECT tmp.table_schema AS "table-schema", tmp.table_name AS "table-name", TRIM(BOTH '"' FROM pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.pos, FALSE)) AS "field-name"
  FROM (SELECT n.nspname AS table_schema, ct.relname AS table_name, ci.oid AS ci_oid, (information_schema._pg_expandarray(i.indkey)).n AS pos FROM pg_catalog.pg_class ct
  JOIN pg_catalog.pg_namespace n ON ct.relnamespace = n.oid JOIN pg_catalog.pg_index i ON ct.oid = i.indrelid JOIN pg_catalog.pg_class ci ON ci.oid = i.indexrelid
  WHERE pg_catalog.pg_get_expr(i.indpred, i.indrelid) IS NULL AND n.nspname !~ '^information_schema|pg_' AND ct.relname LIKE 'rec%%') tmp WHERE tmp.pos = 1""")
ask("metabase query", """SELECT CAST("public"."rec_sales"."day" AS date) AS "day", COUNT(*) AS "count", SUM("public"."rec_sales"."amount") AS "sum" FROM "public"."rec_sales"
  WHERE "public"."rec_sales"."at" >= CAST('2024-01-01' AS timestamp with time zone) AND LOWER("public"."rec_sales"."customer") LIKE '%%a%%' GROUP BY CAST("public"."rec_sales"."day" AS date) ORDER BY CAST("public"."rec_sales"."day" AS date) ASC LIMIT 2000""")
ask("metabase percentile", "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) FROM rec_sales")
ask("metabase gone", "SELECT 1 FROM rec_gone LIMIT 1")

# Superset
ask("superset search path", 'set search_path = "public"')
ask("superset databases", "SELECT datname FROM pg_database WHERE datistemplate = false AND datname = current_database()")
ask("superset grain", "SELECT DATE_TRUNC('minute', at) + INTERVAL '30 seconds' * FLOOR(EXTRACT(SECOND FROM at) / 30) AS __timestamp, SUM(amount) AS s FROM public.rec_sales WHERE at >= TO_TIMESTAMP('2024-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND at < TO_TIMESTAMP('2024-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY 1 ORDER BY s DESC LIMIT 10000")
ask("superset preview", 'SELECT id AS id, customer AS customer FROM "public"."rec_sales" LIMIT 101 OFFSET 0')
ask("superset cancel", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid='999999'")

# Power BI, by Npgsql
count("npgsql types", """SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid FROM (
  SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind, elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
  CASE WHEN elemproc.proname='array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype
  FROM (SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid, CASE WHEN proc.proname='array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
  CASE WHEN proc.proname='array_recv' THEN typ.typelem WHEN typ.typtype='r' THEN rngsubtype WHEN typ.typtype='m' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid) WHEN typ.typtype='d' THEN typ.typbasetype END AS elemtypoid
  FROM pg_type AS typ LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid) LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)) AS typ
  LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid) LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive) AS t
  JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
  WHERE typtype IN ('b', 'r', 'm', 'e', 'd') OR (typtype = 'c' AND relkind='c') OR (typtype = 'p' AND typname IN ('record', 'void', 'unknown')) OR (typtype = 'a' AND (elemtyptype IN ('b', 'r', 'm', 'e', 'd') OR (elemtyptype = 'p' AND elemtypname IN ('record', 'void')) OR (elemtyptype = 'c' AND elemrelkind='c')))
  ORDER BY CASE WHEN typtype IN ('b', 'e', 'p') THEN 0 WHEN typtype = 'c' THEN 1 WHEN typtype = 'r' THEN 2 WHEN typtype = 'm' THEN 3 WHEN typtype = 'd' AND elemtyptype <> 'a' THEN 4 WHEN typtype = 'a' THEN 5 WHEN typtype = 'd' AND elemtyptype = 'a' THEN 6 END""")
ask("npgsql composites", "SELECT typ.oid, att.attname, att.atttypid FROM pg_type AS typ JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace) JOIN pg_class AS cls ON (cls.oid = typ.typrelid) JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid) WHERE (typ.typtype = 'c' AND cls.relkind='c') AND attnum > 0 AND NOT attisdropped ORDER BY typ.oid, att.attnum")
ask("npgsql enums", "SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid=enumtypid ORDER BY oid, enumsortorder")
ask("npgsql reset", "DISCARD ALL")
ask("power bi tables", "select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') and table_name in ('rec_sales', 'rec_view') order by TABLE_SCHEMA, TABLE_NAME")
ask("power bi columns", "select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, case when (data_type like '%%unsigned%%') then DATA_TYPE || ' unsigned' else DATA_TYPE end as DATA_TYPE from INFORMATION_SCHEMA.columns where TABLE_SCHEMA = 'public' and TABLE_NAME = 'rec_sales' order by TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION")
ask("power bi keys", "select i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME as INDEX_NAME, ii.COLUMN_NAME, ii.ORDINAL_POSITION, case when i.CONSTRAINT_TYPE = 'PRIMARY KEY' then 'Y' else 'N' end as PRIMARY_KEY from INFORMATION_SCHEMA.table_constraints i inner join INFORMATION_SCHEMA.key_column_usage ii on i.CONSTRAINT_SCHEMA = ii.CONSTRAINT_SCHEMA and i.CONSTRAINT_NAME = ii.CONSTRAINT_NAME and i.TABLE_SCHEMA = ii.TABLE_SCHEMA and i.TABLE_NAME = ii.TABLE_NAME where i.TABLE_SCHEMA = 'public' and i.TABLE_NAME = 'rec_sales' and i.CONSTRAINT_TYPE in ('PRIMARY KEY', 'UNIQUE')")
ask("power bi references", "select pkcol.COLUMN_NAME as PK_COLUMN_NAME, fkcol.TABLE_NAME AS FK_TABLE_NAME from (select distinct constraint_catalog, constraint_schema, unique_constraint_schema, constraint_name, unique_constraint_name from INFORMATION_SCHEMA.referential_constraints) r inner join INFORMATION_SCHEMA.key_column_usage fkcol on r.constraint_schema = fkcol.constraint_schema and r.constraint_name = fkcol.constraint_name inner join INFORMATION_SCHEMA.key_column_usage pkcol on r.unique_constraint_schema = pkcol.constraint_schema and r.unique_constraint_name = pkcol.constraint_name where pkcol.TABLE_NAME = 'rec_sales'")
ask("power bi encoding", "select character_set_name from INFORMATION_SCHEMA.character_sets")
ask("power bi preview", 'select "_"."customer", sum("_"."amount") as "a0" from (select "$Table"."customer", "$Table"."amount" from "public"."rec_sales" "$Table") "_" group by "_"."customer" limit 1000')

# DBeaver
ask("dbeaver session", "SELECT current_schema(),session_user")
ask("dbeaver path", "SHOW search_path")
count("dbeaver database", "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datname=%s", (DATABASE,))
ask("dbeaver probe", "SELECT reltype FROM pg_catalog.pg_class WHERE 1<>1 LIMIT 1")
ask("dbeaver enums", "select * from pg_catalog.pg_enum WHERE 1<>1 LIMIT 1")
count("dbeaver types", "SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')")
count("dbeaver schemas", "SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname")
count("dbeaver relations", "SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace='public'::regnamespace AND c.relkind not in ('i','I','c')")
ask("dbeaver attributes", "SELECT c.relname,a.attname,a.attnum,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) WHERE NOT a.attisdropped AND a.attnum > 0 AND c.relname IN ('rec_sales', 'rec_mv', 'rec_view') ORDER BY a.attnum")
ask("dbeaver constraints", "SELECT c.conname,c.contype,c.conkey,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then \"substring\"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass WHERE t.relname = 'rec_sales'")
ask("dbeaver indexes", "SELECT c.relname,tc.relname as tabrelname,i.indisunique,i.indisprimary,i.indkey::text as keys,i.indoption::text,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid WHERE tc.relname LIKE 'rec%%' ORDER BY tabrelname, c.relname")
ask("dbeaver setting", "select name, setting, context from pg_catalog.pg_settings where name=%s", ("standard_conforming_strings",))
for relation in ("pg_roles", "pg_am", "pg_collation", "pg_language", "pg_tablespace", "pg_database", "pg_proc"):
    count(f"dbeaver {relation}", f"SELECT a.oid,a.* FROM pg_catalog.{relation} a")
for relation in ("pg_conversion", "pg_extension", "pg_foreign_server", "pg_event_trigger", "pg_available_extensions", "pg_trigger", "pg_rewrite", "pg_policy", "pg_sequence", "pg_inherits", "pg_auth_members"):
    ask(f"dbeaver {relation}", f"SELECT count(*) >= 0 as is_there FROM pg_catalog.{relation}")
ask("dbeaver size", "select pg_catalog.pg_total_relation_size('rec_sales'::regclass) >= 0 as a, pg_catalog.pg_relation_size('rec_sales'::regclass) >= 0 as b, pg_size_pretty(12345678::bigint)")
ask("dbeaver data", "SELECT x.* FROM public.rec_sales x ORDER BY x.id LIMIT 200")
ask("dbeaver count", "SELECT count(*) FROM public.rec_sales x WHERE customer ilike 'ad%%'")

# DataGrip
ask("datagrip where", "select current_schemas(false) as b, current_schema(), session_user")
count("datagrip version", "select version()")
count("datagrip transaction", "select case when pg_catalog.pg_is_in_recovery() then null else pg_catalog.txid_current()::varchar::bigint end as current_txid")
count("datagrip start", "select round(extract(epoch from pg_postmaster_start_time() at time zone 'UTC')) as startup_time")
count("datagrip schemas", "select N.oid::bigint as id, N.xmin as state_number, nspname as name, D.description, pg_catalog.pg_get_userbyid(N.nspowner) as \"owner\" from pg_catalog.pg_namespace N left join pg_catalog.pg_description D on N.oid = D.objoid order by case when nspname = pg_catalog.current_schema() then -1::bigint else N.oid::bigint end")
ask("datagrip tables", "select T.relkind as table_kind, T.relname as table_name, T.relpersistence = 'p' as persistent, T.relhasindex is not null as i, T.relispartition as is_partition, pg_catalog.pg_get_userbyid(T.relowner) as \"owner\" from pg_catalog.pg_class T where relnamespace = 'public'::regnamespace and relkind in ('r', 'm', 'v', 'f', 'p') and relname like 'rec%%' order by table_kind, T.oid")
ask("datagrip columns", "select C.attname as column_name, C.attnum as column_position, pg_catalog.format_type(C.atttypid, C.atttypmod) as type_spec, C.attnotnull as mandatory, pg_catalog.pg_get_expr(D.adbin, D.adrelid) as column_default_expression from pg_catalog.pg_attribute C left join pg_catalog.pg_attrdef D on C.attrelid = D.adrelid and C.attnum = D.adnum where C.attrelid = 'rec_sales'::regclass and C.attnum > 0 and not C.attisdropped order by attnum")
ask("datagrip view", "select viewname from pg_catalog.pg_views where viewname like 'rec%%'")
count("datagrip age", "select age(xmin) from pg_catalog.pg_class limit 1")
ask("datagrip locks", "select count(*) >= 0 from pg_catalog.pg_locks")

# pgAdmin
ask("pgadmin init", "SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings() WHERE name = 'bytea_output'; SET client_encoding='UTF8';")
count("pgadmin database", "SELECT db.oid as did, db.datname, db.datallowconn, pg_encoding_to_char(db.encoding) AS serverencoding, has_database_privilege(db.oid, 'CREATE') as cancreate, datistemplate FROM pg_catalog.pg_database db WHERE db.datname = current_database()")
ask("pgadmin gss", "SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()")
ask("pgadmin roles", "SELECT roles.rolname, roles.rolsuper, CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreaterole END as can_create_role, CASE WHEN 'pg_signal_backend'=ANY(ARRAY(WITH RECURSIVE cte AS (SELECT pg_roles.oid,pg_roles.rolname FROM pg_roles WHERE pg_roles.oid = roles.oid UNION ALL SELECT m.roleid, pgr.rolname FROM cte cte_1 JOIN pg_auth_members m ON m.member = cte_1.oid JOIN pg_roles pgr ON pgr.oid = m.roleid) SELECT rolname FROM cte)) THEN True ELSE False END as can_signal_backend FROM pg_catalog.pg_roles as roles WHERE rolname = current_user")
ask("pgadmin replication", "SELECT CASE WHEN (SELECT count(extname) FROM pg_catalog.pg_extension WHERE extname='bdr') > 0 THEN 'pgd' WHEN (SELECT COUNT(*) FROM pg_replication_slots) > 0 THEN 'log' ELSE NULL END as type")
count("pgadmin dashboard", "SELECT pid, datname, usename, application_name, client_addr, pg_catalog.to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS TZ') AS backend_start, state, wait_event_type || ': ' || wait_event AS wait_event, array_to_string(pg_catalog.pg_blocking_pids(pid), ', ') AS blocking_pids, query FROM pg_catalog.pg_stat_activity WHERE datname = current_database() ORDER BY pid")
ask("pgadmin tables", "SELECT rel.relname AS name, (SELECT count(*) FROM pg_trigger WHERE tgrelid=rel.oid AND tgisinternal = FALSE) AS triggercount, (SELECT count(*) FROM pg_catalog.pg_inherits WHERE inhrelid=rel.oid LIMIT 1) as is_inherits, des.description FROM pg_catalog.pg_class rel LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid=rel.oid AND des.objsubid=0 AND des.classoid='pg_class'::regclass) WHERE rel.relkind IN ('r','s','t','p') AND rel.relnamespace = 'public'::regnamespace AND NOT rel.relispartition AND rel.relname LIKE 'rec%%' ORDER BY rel.relname")

# ODBC, Tableau
ask("odbc batch", "SET DateStyle = 'ISO';SET extra_float_digits = 2;show transaction_isolation")
ask("odbc lo", "select oid, typbasetype from pg_type where typname = 'lo'")
ask("tableau cursor", "begin; declare \"SQL_CUR0x1\" cursor with hold for select id, customer from rec_sales order by id; fetch 2 in \"SQL_CUR0x1\"")
ask("tableau close", "close \"SQL_CUR0x1\"; commit")
ask("postgres.js arrays", "select count(*) > 50 as many from (select b.oid, b.typarray from pg_catalog.pg_type a left join pg_catalog.pg_type b on b.oid = a.typelem where a.typcategory = 'A' group by b.oid, b.typarray) x")
ask("exporter ping", ";")

for sql in ("drop materialized view rec_mv", "drop view rec_view", "drop table rec_sales"):
    ask("clean-up", sql)
