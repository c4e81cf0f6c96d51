//! What each format accepts, refuses and gives back.

use std::sync::Arc;

use datafusion::arrow::array::types::{
    Decimal128Type, Float64Type, Int16Type, Int64Type, TimestampMicrosecondType,
};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Fields, Schema, SchemaRef};

use super::csv::CsvStyle;
use super::values::EpochUnit;
use super::*;
use crate::types::SqlType;

fn all_types() -> Fields {
    let columns = [
        ("flag", SqlType::Boolean),
        ("small", SqlType::SmallInt),
        ("big", SqlType::BigInt),
        ("ratio", SqlType::Double),
        (
            "price",
            SqlType::Numeric {
                precision: 10,
                scale: 2,
            },
        ),
        ("name", SqlType::Text),
        ("raw", SqlType::Bytea),
        ("day", SqlType::Date),
        ("clock", SqlType::Time),
        ("at", SqlType::Timestamp),
        ("attz", SqlType::TimestampTz),
        ("span", SqlType::Interval),
        ("ident", SqlType::Uuid),
        ("doc", SqlType::Json),
        ("tags", SqlType::Array(Box::new(SqlType::Text))),
        (
            "place",
            SqlType::Struct(vec![
                ("x".into(), SqlType::Integer),
                ("names".into(), SqlType::Array(Box::new(SqlType::BigInt))),
            ]),
        ),
    ];
    columns.iter().map(|(n, t)| t.to_field(n, true)).collect()
}

fn wanted<'a>(payload: &'a Fields, projection: &'a [usize]) -> parquet::Wanted<'a> {
    parquet::Wanted {
        payload,
        projection,
        other_names: &[],
        evolution: SchemaEvolution::None,
        taken_names: &[],
        passed_over: crate::connectors::replayed::PassedOver::default(),
    }
}

fn options(format: Format) -> FormatOptions {
    FormatOptions::of(format, EpochUnit::Auto)
}

fn decoder(format: Format, fields: &Fields) -> RecordDecoder {
    let all: Vec<usize> = (0..fields.len()).collect();
    RecordDecoder::new(&options(format), fields, &all).unwrap()
}

fn batch(fields: &Fields, decoder: &mut RecordDecoder) -> RecordBatch {
    let schema: SchemaRef = Arc::new(Schema::new(fields.clone()));
    RecordBatch::try_new(schema, decoder.finish()).unwrap()
}

const FULL: &str = r#"{"flag": true, "small": -7, "big": 9007199254740993, "ratio": 1.5e-3, "price": 12.345,
 "name": "a\"b\u00e9\ud83d\ude00\n", "raw": "\\x00ff", "day": "2024-02-29", "clock": "12:34:56.5",
 "at": "2024-02-29T12:34:56.123456", "attz": "2024-02-29T12:34:56+02:00", "span": "1 day 2 hours",
 "ident": "c2cc10e1-57d6-4b6f-9899-38d972112d8c", "doc": {"k": [1, {"z": null}]}, "extra": {"deep": [[[]]]},
 "tags": ["x", null, "y"], "place": {"names": [1, 2], "unknown": 0, "x": 5}}"#;

#[test]
fn json_fills_every_type() {
    let fields = all_types();
    let mut json = decoder(Format::Json, &fields);
    json.push(FULL.replace('\n', " ").as_bytes()).unwrap();
    json.push(b"{}").unwrap();
    json.push(
        br#"{"at": 1709210096789, "big": "12", "name": 7, "flag": "no", "price": "1", "day": 1}"#,
    )
    .unwrap();
    let rows = batch(&fields, &mut json);
    assert_eq!(rows.num_rows(), 3);
    let column = |name: &str| rows.column_by_name(name).unwrap().clone();
    assert!(column("flag").as_boolean().value(0) && !column("flag").as_boolean().value(2));
    assert_eq!(column("small").as_primitive::<Int16Type>().value(0), -7);
    let big = column("big");
    assert_eq!(
        big.as_primitive::<Int64Type>().value(0),
        9_007_199_254_740_993
    );
    assert_eq!(big.as_primitive::<Int64Type>().value(2), 12);
    assert_eq!(
        column("ratio").as_primitive::<Float64Type>().value(0),
        0.0015
    );
    let price = column("price");
    assert_eq!(price.as_primitive::<Decimal128Type>().value(0), 1235);
    assert_eq!(price.as_primitive::<Decimal128Type>().value(2), 100);
    let name = column("name");
    assert_eq!(name.as_string::<i32>().value(0), "a\"bé😀\n");
    assert_eq!(name.as_string::<i32>().value(2), "7");
    assert_eq!(column("raw").as_binary::<i32>().value(0), [0, 255]);
    let at = column("at");
    let at = at.as_primitive::<TimestampMicrosecondType>();
    assert_eq!(at.value(0), 1_709_210_096_123_456);
    assert_eq!(at.value(2), 1_709_210_096_789_000);
    let attz = column("attz");
    let attz = attz.as_primitive::<TimestampMicrosecondType>();
    assert_eq!(attz.value(0), 1_709_202_896_000_000);
    assert_eq!(
        column("doc").as_string::<i32>().value(0),
        r#"{"k": [1, {"z": null}]}"#
    );
    let tags = column("tags");
    assert_eq!(tags.as_list::<i32>().value(0).null_count(), 1);
    let place = column("place");
    assert_eq!(
        place.as_struct().column(1).as_list::<i32>().value(0).len(),
        2
    );
    assert!((0..rows.num_columns()).all(|i| rows.column(i).is_null(1)));
}

#[test]
fn bad_records_leave_no_trace_and_say_why() {
    let fields: Fields = [
        SqlType::BigInt.to_field("id", false),
        SqlType::Text.to_field("name", true),
        SqlType::Array(Box::new(SqlType::BigInt)).to_field("list", true),
    ]
    .into_iter()
    .collect();
    let mut json = decoder(Format::Json, &fields);
    let good = br#"{"id": 1, "name": "a", "list": [1, 2]}"#;
    json.push(good).unwrap();
    let bad: [(&[u8], &str); 14] = [
        (
            br#"{"name": "kept?", "list": [9, "x"], "id": 2}"#,
            "column \"list\"",
        ),
        (br#"{"id": "two"}"#, "bigint: \"two\""),
        (br#"{"id": 1.5}"#, "bigint: \"1.5\""),
        (br#"{"id": {}}"#, "bigint"),
        (br#"{"name": "no id"}"#, "null value in column \"id\""),
        (br#"{"id": null}"#, "null value in column \"id\""),
        (br#"{"id": 1, "list": {"a": 1}}"#, "bigint[]"),
        (br#"{"id": 1"#, "input ends"),
        (br#"{"id": 1} x"#, "the end"),
        (br#"{"id": 1,}"#, "a string"),
        (br#"{"id": 1 "name": "x"}"#, "\",\""),
        (br#"{"id": 1, "name": "x}"#, "not closed"),
        (br#"[1]"#, "\"{\""),
        (b"{\"id\": 1, \"name\": \"\xff\"}", "UTF8"),
    ];
    for (record, why) in bad {
        let reason = json.push(record).unwrap_err();
        assert!(reason.contains(why), "{reason} should name {why}");
    }
    json.push(br#"{"id": 3, "id": 4, "list": []}"#).unwrap();
    let rows = batch(&fields, &mut json);
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 4]);
    assert!(rows.column(1).is_null(1));
    let lists = rows.column(2).as_list::<i32>();
    assert_eq!((lists.value(0).len(), lists.value(1).len()), (2, 0));
    // And the decoder is as new.
    json.push(good).unwrap();
    assert_eq!(json.rows(), 1);
}

#[test]
fn a_projection_decodes_less_and_refuses_the_same_nulls() {
    let fields: Fields = [
        SqlType::BigInt.to_field("id", false),
        SqlType::Text.to_field("name", true),
        SqlType::BigInt.to_field("n", true),
    ]
    .into_iter()
    .collect();
    for format in [Format::Json, Format::Csv(CsvStyle::default())] {
        let json = format == Format::Json;
        let records: [&[u8]; 3] = if json {
            [
                br#"{"id": 1, "n": 5}"#,
                br#"{"n": 6}"#,
                br#"{"n": 7, "id": 3}"#,
            ]
        } else {
            [b"1,,5", b",x,6", b"3,,7"]
        };
        let mut projected = RecordDecoder::new(&options(format.clone()), &fields, &[2]).unwrap();
        let mut none = RecordDecoder::new(&options(format), &fields, &[]).unwrap();
        for (i, record) in records.into_iter().enumerate() {
            assert_eq!(projected.push(record).is_err(), i == 1);
            assert_eq!(none.push(record).is_err(), i == 1);
        }
        assert_eq!(none.rows(), 2);
        let arrays = projected.finish();
        assert_eq!(arrays.len(), 1);
        assert_eq!(arrays[0].as_primitive::<Int64Type>().values(), &[5, 7]);
    }
}

#[test]
fn csv_records_may_end_before_added_columns() {
    let fields: Fields = ["a", "b", "c"]
        .map(|name| SqlType::BigInt.to_field(name, true))
        .into_iter()
        .collect();
    let style = CsvStyle {
        added_columns: 1,
        ..CsvStyle::default()
    };
    let all = [0, 1, 2];
    let mut csv = csv::CsvDecoder::new(&fields, &all, style, EpochUnit::Auto).unwrap();
    csv.push(b"1,2").unwrap();
    csv.push(b"3,4,5").unwrap();
    assert!(csv.push(b"6").is_err());
    assert!(csv.push(b"6,7,8,9").is_err());
    let columns = csv.finish();
    assert_eq!(columns[2].null_count(), 1);
}

#[test]
fn csv_quotes_nulls_and_headers() {
    let fields: Fields = [
        SqlType::BigInt.to_field("id", true),
        SqlType::Text.to_field("name", true),
    ]
    .into_iter()
    .collect();
    let style = CsvStyle {
        delimiter: b';',
        ..CsvStyle::default()
    };
    let all = [0, 1];
    let mut csv = csv::CsvDecoder::new(&fields, &all, style, EpochUnit::Auto).unwrap();
    csv.header(b"\xef\xbb\xbfNAME;\"other\";Id\r").unwrap();
    csv.push(b"\"a;\"\"b\"\"\nc\";x;1\r\n").unwrap();
    csv.push(b"\"\";;").unwrap();
    csv.push(b";;2").unwrap();
    assert!(
        csv.push(b"a;b")
            .unwrap_err()
            .contains("2 fields, expected 3")
    );
    assert!(csv.push(b"\"open;b;1").unwrap_err().contains("not closed"));
    assert!(
        csv.push(b"\"a\"b;b;1")
            .unwrap_err()
            .contains("follows a quoted")
    );
    assert!(csv.push(b"a;b;one").unwrap_err().contains("bigint"));
    let arrays = csv.finish();
    let (ids, names) = (
        arrays[0].as_primitive::<Int64Type>(),
        arrays[1].as_string::<i32>(),
    );
    assert_eq!(names.value(0), "a;\"b\"\nc");
    assert!(names.is_valid(1) && names.value(1).is_empty() && ids.is_null(1));
    assert!(names.is_null(2) && ids.value(2) == 2);
}

#[test]
fn keys_in_any_order_spelling_and_spacing() {
    let fields: Fields = [
        SqlType::BigInt.to_field("a", true),
        SqlType::BigInt.to_field("a\"b", true),
        SqlType::BigInt.to_field("ab", true),
    ]
    .into_iter()
    .collect();
    let mut json = decoder(Format::Json, &fields);
    let records: [&[u8]; 7] = [
        br#"{"a":1,"a\"b":2,"ab":3}"#,
        br#"{"a":1,"a\u0022b":2,"ab":3}"#,
        br#"{ "a" : 1 , "a\"b" : 2 , "ab" : 3 }"#,
        br#"{"ab":3,"a":1,"a\"b":2}"#,
        br#"{"\u0061b":3,"x":"a","a":1,"a\"b":2}"#,
        br#"{"ab":3,"a\"b":2,"a":9,"a":1}"#,
        br#"{"a": 1,"a\"b": 2,"ab": 3}"#,
    ];
    for record in records {
        json.push(record).unwrap();
    }
    assert!(json.push(br#"{"a"1}"#).is_err());
    let rows = batch(&fields, &mut json);
    for (column, value) in rows.columns().iter().zip([1, 2, 3]) {
        assert_eq!(column.as_primitive::<Int64Type>().values(), &[value; 7]);
    }
}

/// What the encoders write, the decoders read back.
#[test]
fn every_format_gives_back_what_was_written() {
    let fields = all_types();
    let mut json = decoder(Format::Json, &fields);
    json.push(FULL.replace('\n', " ").as_bytes()).unwrap();
    json.push(b"{}").unwrap();
    json.push(br#"{"name": "", "raw": "", "tags": [], "big": -1, "place": {}}"#)
        .unwrap();
    let rows = batch(&fields, &mut json);
    let written = |format: &Format| {
        let mut bytes = Vec::new();
        let schema = rows.schema();
        encode::write_all(format, &schema, std::slice::from_ref(&rows), &mut bytes).unwrap();
        bytes
    };

    let style = CsvStyle::default();
    for format in [Format::Json, Format::Csv(style.clone())] {
        let bytes = written(&format);
        let end = match &format {
            Format::Csv(style) => lines::RecordEnd::NewlineOutside(style.quote),
            _ => lines::RecordEnd::Newline,
        };
        let mut again = decoder(format.clone(), &fields);
        let mut records = lines::RecordReader::new(&bytes[..], end);
        while let Some(record) = records.next_record().unwrap() {
            again.push(record.bytes).unwrap();
        }
        let again = batch(&fields, &mut again);
        for (field, (found, expected)) in fields
            .iter()
            .zip(again.columns().iter().zip(rows.columns()))
        {
            assert_eq!(found, expected, "{} in {format:?}", field.name());
        }
    }

    let bytes = bytes::Bytes::from(written(&Format::Parquet));
    let all: Vec<usize> = (0..fields.len()).collect();
    let mut pieces = parquet::ParquetChunks::open(bytes, "f", wanted(&fields, &all)).unwrap();
    let piece = pieces.next_piece().unwrap().unwrap();
    assert!(piece.dead_letters.is_empty());
    let again = RecordBatch::try_new(rows.schema(), piece.arrays).unwrap();
    assert_eq!(again, rows);
    assert!(pieces.next_piece().unwrap().is_none());
}

#[test]
fn parquet_casts_by_name_and_sets_bad_rows_aside() {
    let stored: Fields = [
        SqlType::BigInt.to_field("N", true),
        SqlType::Text.to_field("id", true),
        SqlType::Double.to_field("gone", true),
    ]
    .into_iter()
    .collect();
    let mut json = decoder(Format::Json, &stored);
    let uuid = "c2cc10e1-57d6-4b6f-9899-38d972112d8c";
    for (n, id) in [("1", uuid), ("40000", uuid), ("3", "nonsense"), ("4", uuid)] {
        json.push(format!(r#"{{"N": {n}, "id": "{id}"}}"#).as_bytes())
            .unwrap();
    }
    json.push(b"{}").unwrap();
    let rows = batch(&stored, &mut json);
    let mut bytes = Vec::new();
    encode::write_all(&Format::Parquet, &rows.schema(), &[rows], &mut bytes).unwrap();
    let bytes = bytes::Bytes::from(bytes);

    let declared: Fields = [
        SqlType::SmallInt.to_field("n", false),
        SqlType::Uuid.to_field("id", true),
        SqlType::Text.to_field("absent", true),
    ]
    .into_iter()
    .collect();
    let read = |projection: &[usize]| {
        let mut pieces =
            parquet::ParquetChunks::open(bytes.clone(), "f.parquet", wanted(&declared, projection))
                .unwrap();
        pieces.next_piece().unwrap().unwrap()
    };
    let piece = read(&[2, 0, 1]);
    assert_eq!(
        piece.arrays[1].as_primitive::<Int16Type>().values(),
        &[1, 4]
    );
    assert_eq!(piece.arrays[0].null_count(), 2);
    let origins: Vec<_> = piece
        .dead_letters
        .iter()
        .map(|l| l.origin.as_str())
        .collect();
    assert_eq!(
        origins,
        ["f.parquet row 2", "f.parquet row 3", "f.parquet row 5"]
    );
    assert!(piece.dead_letters[0].error.contains("smallint: \"40000\""));
    assert!(piece.dead_letters[1].error.contains("uuid: \"nonsense\""));
    assert!(piece.dead_letters[2].error.contains("not-null"));
    // A NOT NULL column is checked even when nobody asks for it.
    assert_eq!(read(&[]).rows, 3);

    let error = parquet::ParquetChunks::open(
        bytes.slice(0..bytes.len() - 9),
        "cut",
        wanted(&declared, &[]),
    )
    .err()
    .unwrap();
    assert!(error.primary().contains("\"cut\""));
}

#[test]
fn text_and_raw_need_one_column() {
    let one: Fields = [SqlType::Text.to_field("line", false)]
        .into_iter()
        .collect();
    let mut text = decoder(Format::Text, &one);
    text.push("häß".as_bytes()).unwrap();
    text.push(b"").unwrap();
    assert!(text.push(b"\xff").is_err());
    let arrays: Vec<ArrayRef> = text.finish();
    assert_eq!(arrays[0].as_string::<i32>().value(0), "häß");
    assert_eq!(arrays[0].len(), 2);
    assert!(RecordDecoder::new(&options(Format::Text), &all_types(), &[]).is_err());
}

#[test]
fn a_layout_puts_metadata_between_payload_columns() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        SqlType::BigInt.to_field("a", true),
        SqlType::BigInt.to_field("offset", true),
        SqlType::BigInt.to_field("b", true),
    ]));
    let metadata = [None, Some("offset".to_owned()), None];
    let layout = Layout::new(&schema, &metadata, &[2, 1]);
    assert_eq!(layout.payload.len(), 2);
    assert_eq!(layout.payload_projection, [1]);
    assert_eq!(layout.metadata_names().collect::<Vec<_>>(), ["offset"]);
    let b: ArrayRef = Arc::new(datafusion::arrow::array::Int64Array::from(vec![7, 8]));
    let rows = layout
        .assemble(&[b], 2, |_| {
            Ok(Arc::new(datafusion::arrow::array::Int32Array::from(vec![
                0, 1,
            ])))
        })
        .unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[7, 8]);
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[0, 1]);
}

#[test]
fn a_renamed_column_comes_under_either_name() {
    let fields: Fields = ["v", "k"]
        .map(|name| SqlType::BigInt.to_field(name, true))
        .into_iter()
        .collect();
    let either = |format: Format| FormatOptions {
        other_names: vec![("value".to_owned(), "v".to_owned())],
        ..options(format)
    };
    let mut json = RecordDecoder::new(&either(Format::Json), &fields, &[0, 1]).unwrap();
    for record in [r#"{"k": 1, "v": 2}"#, r#"{"k": 3, "value": 4}"#] {
        json.push(record.as_bytes()).unwrap();
    }
    let expected = batch(&fields, &mut json);
    let values = expected.column(0).as_primitive::<Int64Type>().values();
    assert_eq!(values, &[2, 4]);
    let style = CsvStyle {
        header: true,
        ..CsvStyle::default()
    };
    for (header, record) in [("k,value", "1,2"), ("v,k", "2,1")] {
        let options = either(Format::Csv(style.clone()));
        let mut csv = RecordDecoder::new(&options, &fields, &[0, 1]).unwrap();
        let RecordDecoder::Csv(decoder) = &mut csv else {
            panic!("a decoder of CSV");
        };
        decoder.header(header.as_bytes()).unwrap();
        csv.push(record.as_bytes()).unwrap();
        assert_eq!(batch(&fields, &mut csv), expected.slice(0, 1), "{header}");
    }
}

#[test]
fn a_number_with_a_fraction_is_no_whole_number() {
    let stored: Fields = [SqlType::Double.to_field("n", true)].into_iter().collect();
    let mut json = decoder(Format::Json, &stored);
    for n in ["1", "7.5", "2.0", "null"] {
        json.push(format!(r#"{{"n": {n}}}"#).as_bytes()).unwrap();
    }
    let rows = batch(&stored, &mut json);
    let mut bytes = Vec::new();
    encode::write_all(&Format::Parquet, &rows.schema(), &[rows], &mut bytes).unwrap();
    let declared: Fields = [SqlType::BigInt.to_field("n", true)].into_iter().collect();
    let bytes = bytes::Bytes::from(bytes);
    let mut pieces = parquet::ParquetChunks::open(bytes, "f", wanted(&declared, &[0])).unwrap();
    let piece = pieces.next_piece().unwrap().unwrap();
    let values: Vec<_> = piece.arrays[0].as_primitive::<Int64Type>().iter().collect();
    assert_eq!(values, [Some(1), Some(2), None]);
    assert_eq!(piece.dead_letters[0].raw, br#"{"n":7.5}"#);
}

/// A value of jsonb is one text however it was written, as a cast makes it.
#[test]
fn jsonb_is_kept_as_its_value() {
    let fields: Fields = [SqlType::Jsonb.to_field("j", true)].into_iter().collect();
    let mut json = decoder(Format::Json, &fields);
    for record in [
        r#"{"j": {"bb":1,"a":[1,  2]}}"#,
        r#"{"j": {"a":[1,2], "bb": 0, "bb": 1}}"#,
    ] {
        json.push(record.as_bytes()).unwrap();
    }
    assert!(json.push(br#"{"j": {"a" 1}}"#).is_err());
    let rows = batch(&fields, &mut json);
    let texts = rows.column(0).as_string::<i32>();
    assert_eq!(texts.value(0), r#"{"a": [1, 2], "bb": 1}"#);
    assert_eq!(texts.value(0), texts.value(1));
}

fn evolving(format: Format, evolution: SchemaEvolution, fields: &Fields) -> RecordDecoder {
    let options = FormatOptions {
        evolution,
        ..options(format)
    };
    let all: Vec<usize> = (0..fields.len()).collect();
    RecordDecoder::new(&options, fields, &all).unwrap()
}

fn two_numbers() -> Fields {
    let fields = [("k", false), ("v", true)];
    let fields = fields.map(|(name, nullable)| SqlType::BigInt.to_field(name, nullable));
    fields.into_iter().collect()
}

fn rescued(decoder: &mut RecordDecoder) -> Vec<Option<String>> {
    let column = decoder.watch().unwrap().finish();
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn json_values_that_do_not_fit_are_rescued_where_null_may_stand() {
    let fields = two_numbers();
    let mut json = evolving(Format::Json, SchemaEvolution::Rescue, &fields);
    for record in [
        r#"{"k": 1, "v": "x", "more": [1, {"a": null}]}"#,
        r#"{"k": 2, "v": {"deep": [}"#,
        r#"{"k": 3, "v": "x", "v": 7}"#,
        r#"{"k": "no", "v": 1}"#,
        r#"{"v": [1, 2] , "k": 4, "more": null}"#,
    ] {
        json.push(record.as_bytes()).ok();
    }
    assert_eq!(json.rows(), 3);
    let rows = batch(&fields, &mut json);
    let values = |at: usize| {
        rows.column(at)
            .as_primitive::<Int64Type>()
            .iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(values(0), [Some(1), Some(3), Some(4)]);
    assert_eq!(values(1), [None, Some(7), None]);
    let expected = [
        Some(r#"{"v": "x", "more": [1, {"a": null}]}"#),
        None,
        Some(r#"{"v": [1, 2]}"#),
    ];
    assert_eq!(
        rescued(&mut json),
        expected.map(|text| text.map(str::to_owned))
    );
    let unknown = json.watch().unwrap().take_unknown();
    assert_eq!((unknown.rows, unknown.rescued_rows), (1, 2));
}

#[test]
fn new_fields_are_noticed_whatever_columns_are_asked_for() {
    let fields = two_numbers();
    let options = FormatOptions {
        evolution: SchemaEvolution::Fail,
        ..options(Format::Json)
    };
    let mut json = RecordDecoder::new(&options, &fields, &[0]).unwrap();
    for record in [
        r#"{"k": 1, "v": 2}"#,
        r#"{"k": 1, "x": 2}"#,
        r#"{"k": 2, "y": "a", "x": 0.5}"#,
    ] {
        json.push(record.as_bytes()).unwrap();
    }
    let unknown = json.watch().unwrap().take_unknown();
    let fields: Vec<_> = unknown
        .fields
        .iter()
        .map(|f| (f.name.as_str(), &f.sql_type))
        .collect();
    assert_eq!(fields, [("x", &SqlType::Double), ("y", &SqlType::Text)]);
    assert_eq!(unknown.rows, 2);
}

#[test]
fn fields_of_a_headed_csv_are_noticed_by_their_names() {
    let fields = two_numbers();
    let style = CsvStyle {
        header: true,
        ..CsvStyle::default()
    };
    let csv = |evolution| {
        let mut decoder = evolving(Format::Csv(style.clone()), evolution, &fields);
        let RecordDecoder::Csv(csv) = &mut decoder else {
            panic!("a decoder of CSV");
        };
        csv.header(b"zip,V,k,none").unwrap();
        for record in ["01067,1,1,", ",x,2,", "5,,3,\"\"", "5,1,x,"] {
            decoder.push(record.as_bytes()).ok();
        }
        decoder
    };
    let mut adding = csv(SchemaEvolution::AddNewColumns);
    assert_eq!(adding.rows(), 2);
    let unknown = adding.watch().unwrap().take_unknown();
    let found: Vec<_> = unknown
        .fields
        .iter()
        .map(|f| (f.name.as_str(), &f.sql_type))
        .collect();
    assert_eq!(found, [("zip", &SqlType::Text), ("none", &SqlType::Text)]);
    let mut rescuing = csv(SchemaEvolution::Rescue);
    assert_eq!(rescuing.rows(), 3);
    let expected = [
        Some(r#"{"zip": "01067"}"#),
        Some(r#"{"v": "x"}"#),
        Some(r#"{"zip": "5", "none": ""}"#),
    ];
    assert_eq!(
        rescued(&mut rescuing),
        expected.map(|text| text.map(str::to_owned))
    );
    let mut counting = csv(SchemaEvolution::None);
    let unknown = counting.watch().unwrap().take_unknown();
    assert_eq!((unknown.rows, unknown.fields.len()), (2, 0));
}
