//! Known texts and bytes of PostgreSQL 15, both ways.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::{
    Array, ArrayRef, Decimal256Array, DictionaryArray, Int32Array, Int64Array, StringArray,
    StructArray, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, i256};

use super::column::Column;
use super::input::ColumnBuilder;
use super::interval::Interval;
use super::types::WireType;
use super::*;

fn numeric(precision: u8, scale: i8) -> SqlType {
    SqlType::Numeric { precision, scale }
}

fn array_of(item: SqlType) -> SqlType {
    SqlType::Array(Box::new(item))
}

fn column(sql_type: &SqlType, texts: &[&str]) -> ArrayRef {
    let mut builder = ColumnBuilder::new(sql_type, &OutputSettings::default());
    for text in texts {
        builder
            .append_text(text)
            .unwrap_or_else(|e| panic!("{sql_type} {text}: {e}"));
    }
    builder.finish()
}

fn written(array: &ArrayRef, field: Field, zone: &str) -> (Vec<String>, Vec<Vec<u8>>) {
    let wire_type = WireType::of_field(&Arc::new(field)).unwrap();
    let column = Column::new(array, &wire_type).unwrap();
    let settings = OutputSettings::new(Some(zone));
    let (mut texts, mut binaries) = (Vec::new(), Vec::new());
    for row in 0..array.len() {
        let (mut text, mut binary) = (BytesMut::new(), BytesMut::new());
        column.write_text(row, &settings, &mut text).unwrap();
        column.write_binary(row, &settings, &mut binary).unwrap();
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        binaries.push(binary.to_vec());
    }
    (texts, binaries)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

/// Reads `input`, expects `text` out, the given binary out, and the same value from both.
fn check(sql_type: SqlType, input: &str, text: &str, binary: &str) {
    let array = column(&sql_type, &[input]);
    let (texts, binaries) = written(&array, sql_type.to_field("x", true), "UTC");
    assert_eq!(texts[0], text, "{sql_type} {input}");
    assert_eq!(binaries[0], hex(binary), "{sql_type} {input}");
    let mut builder = ColumnBuilder::new(&sql_type, &OutputSettings::default());
    builder.append_text(text).unwrap();
    builder
        .append_binary(sql_type.pg_oid(), &binaries[0])
        .unwrap();
    let back = builder.finish();
    assert_eq!(&back.slice(0, 1), &array, "{sql_type} {input}: text");
    assert_eq!(&back.slice(1, 1), &array, "{sql_type} {input}: binary");
}

#[test]
fn scalars_read_and_write_as_postgres() {
    check(SqlType::Boolean, " YES ", "t", "01");
    check(SqlType::Boolean, "f", "f", "00");
    check(SqlType::SmallInt, "-32768", "-32768", "8000");
    check(SqlType::Integer, " +7 ", "7", "00000007");
    check(SqlType::BigInt, "-2", "-2", "fffffffffffffffe");
    check(SqlType::Double, "1.5", "1.5", "3ff8000000000000");
    check(SqlType::Double, "-inf", "-Infinity", "fff0000000000000");
    check(SqlType::Real, "1e6", "1e+06", "49742400");
    check(SqlType::Text, "a\"ä", "a\"ä", "6122c3a4");
    check(SqlType::Bytea, "\\x00Ff", "\\x00ff", "00ff");
    check(SqlType::Bytea, "a\\\\\\001", "\\x615c01", "615c01");
    check(SqlType::Date, "2000-01-01", "2000-01-01", "00000000");
    check(SqlType::Date, "20240229", "2024-02-29", "00002279");
    check(SqlType::Date, "0044-03-15 BC", "0044-03-15 BC", "fff49d7b");
    check(
        SqlType::Time,
        "04:05:06.789",
        "04:05:06.789",
        "000000036c97ca88",
    );
    check(SqlType::Time, "4:05 PM", "16:05:00", "0000000d7b1be300");
    check(
        SqlType::Timestamp,
        "2026-11-29T08:05:00.2500004+05",
        "2026-11-29 08:05:00.25",
        "0003046484bb7390",
    );
    check(
        SqlType::TimestampTz,
        "2000-01-01 00:00:00+02",
        "1999-12-31 22:00:00+00",
        "fffffffe52d8b800",
    );
    check(
        SqlType::Uuid,
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
    );
    check(
        SqlType::Json,
        "{\"a\": 1}",
        "{\"a\": 1}",
        "7b2261223a20317d",
    );
    check(SqlType::Jsonb, "[1]", "[1]", "015b315d");
}

#[test]
fn numerics_read_and_write_as_postgres() {
    check(
        numeric(10, 2),
        "12345.678",
        "12345.68",
        "0003 0001 0000 0002 0001 0929 1a90",
    );
    check(numeric(10, 2), "-0.05", "-0.05", "0001 ffff 4000 0002 01f4");
    check(
        numeric(10, 0),
        "100000000",
        "100000000",
        "0001 0002 0000 0000 0001",
    );
    check(numeric(10, 2), "0", "0.00", "0000 0000 0000 0002");
    check(
        numeric(10, 2),
        "1.5e3",
        "1500.00",
        "0001 0000 0000 0002 05dc",
    );
    check(
        numeric(38, 9),
        "12345678901234567890123456789.123456789",
        "12345678901234567890123456789.123456789",
        "000b 0007 0000 0009 0001 0929 1a85 007b 11d7 22c5 0929 1a85 04d2 162e 2328",
    );
    let huge = Decimal256Array::from(vec![i256::from_parts(0, 1), i256::from_i128(-7)])
        .with_precision_and_scale(50, 3)
        .unwrap();
    let array: ArrayRef = Arc::new(huge);
    let field = Field::new("x", DataType::Decimal256(50, 3), true);
    let (texts, _) = written(&array, field, "UTC");
    assert_eq!(
        texts,
        ["340282366920938463463374607431768211.456", "-0.007"]
    );
}

#[test]
fn floats_switch_to_exponents_where_postgres_does() {
    let texts = |sql_type: SqlType, inputs: &[&str]| {
        written(
            &column(&sql_type, inputs),
            sql_type.to_field("x", true),
            "UTC",
        )
        .0
    };
    let inputs = [
        "999999999999999",
        "1e15",
        "123456789012345678",
        "0.0001",
        "0.00001",
        "1e-7",
        "-0",
        "1e300",
        "0.1",
        "100",
        "1.25e-5",
        "NaN",
        "5e-324",
    ];
    assert_eq!(
        texts(SqlType::Double, &inputs),
        [
            "999999999999999",
            "1e+15",
            "1.2345678901234568e+17",
            "0.0001",
            "1e-05",
            "1e-07",
            "-0",
            "1e+300",
            "0.1",
            "100",
            "1.25e-05",
            "NaN",
            "5e-324",
        ]
    );
    assert_eq!(
        texts(
            SqlType::Real,
            &["999999", "1000000", "1234567", "0.1", "3.4028235e38"]
        ),
        ["999999", "1e+06", "1.234567e+06", "0.1", "3.4028235e+38"]
    );
}

#[test]
fn intervals_read_and_write_as_postgres() {
    for (input, text) in [
        (
            "1 year 2 mons 3 days 04:05:06.7",
            "1 year 2 mons 3 days 04:05:06.7",
        ),
        ("P1Y2M3DT4H5M6.7S", "1 year 2 mons 3 days 04:05:06.7"),
        ("-1 day +02:03:04", "-1 days +02:03:04"),
        ("-1 month", "-1 mons"),
        ("13 months -1 day", "1 year 1 mon -1 days"),
        ("1 hour 30 minutes ago", "-01:30:00"),
        ("1.5 days", "1 day 12:00:00"),
        ("1.5 months", "1 mon 15 days"),
        ("90", "00:01:30"),
        ("5ms", "00:00:00.005"),
        ("0", "00:00:00"),
        ("2 weeks", "14 days"),
        ("100 hours", "100:00:00"),
        ("@ 1 minute", "00:01:00"),
        ("P0001-02-03T04:05:06", "1 year 2 mons 3 days 04:05:06"),
        ("PT04:05", "04:05:00"),
    ] {
        let mut out = BytesMut::new();
        Interval::parse(input).unwrap().write_text(&mut out);
        assert_eq!(out, text, "{input}");
    }
    check(
        SqlType::Interval,
        "1 year 2 days 00:00:01",
        "1 year 2 days 00:00:01",
        "00000000000f4240 00000002 0000000c",
    );
    for bad in [
        "",
        "abc",
        "1 parsec",
        "1:99",
        "P",
        "PT",
        "1 day ago 2",
        "--1 day",
    ] {
        let parsed = Interval::parse(bad);
        assert!(parsed.is_err() || bad == "PT", "{bad}");
    }
}

#[test]
fn arrays_read_and_write_as_postgres() {
    check(
        array_of(SqlType::Integer),
        "{1, NULL ,3}",
        "{1,NULL,3}",
        "00000001 00000001 00000017 00000003 00000001 00000004 00000001 ffffffff 00000004 00000003",
    );
    check(
        array_of(SqlType::Text),
        "{}",
        "{}",
        "00000000 00000000 00000019",
    );
    check(
        array_of(SqlType::Text),
        r#"{a,"b c","q\"x\\","",null,"NULL"}"#,
        r#"{a,"b c","q\"x\\","",NULL,"NULL"}"#,
        "00000001 00000001 00000019 00000006 00000001 00000001 61 00000003 622063 00000004 7122785c 00000000 ffffffff 00000004 4e554c4c",
    );
    check(
        array_of(array_of(SqlType::Integer)),
        "{{1,2},{3,4}}",
        "{{1,2},{3,4}}",
        "00000002 00000000 00000017 00000002 00000001 00000002 00000001 00000004 00000001 00000004 00000002 00000004 00000003 00000004 00000004",
    );
    let ragged = array_of(array_of(SqlType::Integer));
    let array = column(&ragged, &["{{1},{2,3}}"]);
    let wire_type = WireType::of_field(&Arc::new(ragged.to_field("x", true))).unwrap();
    let column = Column::new(&array, &wire_type).unwrap();
    let settings = OutputSettings::default();
    let error = column
        .write_binary(0, &settings, &mut BytesMut::new())
        .unwrap_err();
    assert_eq!(error.sqlstate(), "2202E");
    for bad in ["1,2", "{1,2", "{1,,2}", "{\"a}", "{a b\"c\"}"] {
        let mut builder = ColumnBuilder::new(&array_of(SqlType::Text), &settings);
        assert_eq!(
            builder.append_text(bad).unwrap_err().sqlstate(),
            "22P02",
            "{bad}"
        );
    }
}

#[test]
fn structs_are_jsonb() {
    let fields = vec![
        ("n".to_owned(), SqlType::Integer),
        ("t".to_owned(), SqlType::Text),
        ("l".to_owned(), array_of(numeric(5, 1))),
        ("f".to_owned(), SqlType::Double),
        ("d".to_owned(), SqlType::Date),
    ];
    let sql_type = SqlType::Struct(fields);
    let input = r#"{"t": "a\"\n", "n": 5, "l": [1.5, null], "f": "NaN", "d": "2024-01-02"}"#;
    let expected = r#"{"n": 5, "t": "a\"\n", "l": [1.5, null], "f": "NaN", "d": "2024-01-02"}"#;
    let array = column(&sql_type, &[input]);
    let field = sql_type.to_field("x", true);
    assert_eq!(
        WireType::of_field(&Arc::new(field.clone())).unwrap().oid,
        3802
    );
    let (texts, binaries) = written(&array, field, "UTC");
    assert_eq!(texts[0], expected);
    assert_eq!(binaries[0][0], 1);
    assert_eq!(&binaries[0][1..], expected.as_bytes());
}

#[test]
fn timestamps_show_the_session_zone() {
    let sql_type = SqlType::TimestampTz;
    let array = column(
        &sql_type,
        &["2026-07-01 12:00:00Z", "2026-12-01 12:00:00.5Z"],
    );
    let texts = |zone| written(&array, sql_type.to_field("x", true), zone).0;
    assert_eq!(
        texts("Europe/Berlin"),
        ["2026-07-01 14:00:00+02", "2026-12-01 13:00:00.5+01"]
    );
    assert_eq!(texts("Asia/Kolkata")[0], "2026-07-01 17:30:00+05:30");
    assert_eq!(texts("America/St_Johns")[1], "2026-12-01 08:30:00.5-03:30");
    let settings = OutputSettings::new(Some("Europe/Berlin"));
    let mut builder = ColumnBuilder::new(&sql_type, &settings);
    builder.append_text("2026-07-01 14:00:00").unwrap();
    builder.append_text("2026-07-01 12:00:00 UTC").unwrap();
    builder
        .append_text("2026-07-01 08:00:00 America/New_York")
        .unwrap();
    let back = builder.finish();
    for row in 0..3 {
        assert_eq!(&back.slice(row, 1), &array.slice(0, 1));
    }
}

#[test]
fn other_arrow_forms_are_cast() {
    let dictionary: DictionaryArray<Int32Type> = vec!["b", "a", "b"].into_iter().collect();
    let array: ArrayRef = Arc::new(dictionary);
    let field = Field::new("x", array.data_type().clone(), true);
    assert_eq!(written(&array, field, "UTC").0, ["b", "a", "b"]);
    let array: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    let field = Field::new("x", DataType::UInt64, true);
    assert_eq!(
        WireType::of_field(&Arc::new(field.clone())).unwrap().oid,
        1700
    );
    assert_eq!(written(&array, field, "UTC").0, ["18446744073709551615"]);
    let null: ArrayRef = Arc::new(datafusion::arrow::array::NullArray::new(2));
    let wire_type = WireType::of_field(&Arc::new(Field::new("x", DataType::Null, true))).unwrap();
    assert!(Column::new(&null, &wire_type).unwrap().is_null(1));
    let inner: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let fields = vec![Field::new("a", DataType::Int32, true)].into();
    let array: ArrayRef = Arc::new(StructArray::new(fields, vec![inner], None));
    let field = Field::new("x", array.data_type().clone(), true);
    assert_eq!(
        written(&array, field, "UTC").0,
        ["{\"a\": 1}", "{\"a\": null}"]
    );
}

#[test]
fn rows_carry_lengths_and_nulls() {
    let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8, true),
    ]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(258), None])),
        Arc::new(StringArray::from(vec![Some(""), Some("xy")])),
    ];
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let types = WireType::of_schema(&schema).unwrap();
    let settings = OutputSettings::default();
    let formats = [Format::Binary, Format::Text];
    let encoder = RowEncoder::new(&batch, &types, &formats, &settings).unwrap();
    let mut out = BytesMut::new();
    encoder.data_row(0, &mut out).unwrap();
    encoder.data_row(1, &mut out).unwrap();
    let expected = hex(
        "44 00000016 0002 00000008 0000000000000102 00000000 44 00000010 0002 ffffffff 00000002 7879",
    );
    assert_eq!(out.to_vec(), expected);
}

#[test]
fn bad_values_have_postgres_sqlstates() {
    let text = |sql_type: SqlType, value: &str| {
        decode_parameter(
            1,
            &sql_type,
            sql_type.pg_oid(),
            Format::Text,
            Some(value.as_bytes()),
        )
        .unwrap_err()
        .sqlstate()
    };
    assert_eq!(text(SqlType::Integer, "1x"), "22P02");
    assert_eq!(text(SqlType::Integer, "2147483648"), "22003");
    assert_eq!(text(SqlType::SmallInt, ""), "22P02");
    assert_eq!(text(SqlType::Boolean, "maybe"), "22P02");
    assert_eq!(text(SqlType::Double, "1e400"), "22003");
    assert_eq!(text(numeric(5, 2), "1000"), "22003");
    assert_eq!(text(numeric(5, 2), "999.995"), "22003");
    assert_eq!(text(numeric(5, 2), "."), "22P02");
    assert_eq!(text(numeric(5, 2), "1e1000000000"), "22003");
    assert_eq!(text(numeric(5, 2), "NaN"), "22003");
    assert_eq!(text(SqlType::Date, "2023-02-29"), "22008");
    assert_eq!(text(SqlType::Date, "yesterday-ish"), "22007");
    assert_eq!(text(SqlType::Timestamp, "2023-01-01 25:00"), "22008");
    assert_eq!(
        text(SqlType::TimestampTz, "2023-01-01 10:00 Mars/Base"),
        "22007"
    );
    assert_eq!(text(SqlType::Uuid, "a0eebc99"), "22P02");
    assert_eq!(text(SqlType::Json, "{a}"), "22P02");
    assert_eq!(text(SqlType::Text, "a\0b"), "22021");
    let binary = |sql_type: SqlType, oid: u32, value: &[u8]| {
        decode_parameter(1, &sql_type, oid, Format::Binary, Some(value))
    };
    assert_eq!(
        binary(SqlType::Integer, 23, &[1, 2])
            .unwrap_err()
            .sqlstate(),
        "22P03"
    );
    assert_eq!(
        binary(SqlType::Uuid, 2950, &[1; 15])
            .unwrap_err()
            .sqlstate(),
        "22P03"
    );
    assert_eq!(
        binary(SqlType::Text, 25, &[0xff]).unwrap_err().sqlstate(),
        "22021"
    );
    assert_eq!(
        binary(SqlType::Jsonb, 3802, b"\x02{}")
            .unwrap_err()
            .sqlstate(),
        "22P03"
    );
    let short_array = hex("00000001 00000000 00000017 7fffffff 00000001 00000004 00000001");
    let error = binary(array_of(SqlType::Integer), 1007, &short_array).unwrap_err();
    assert_eq!(error.sqlstate(), "22P03");
    let empty_rows = hex("00000002 00000000 00000017 7fffffff 00000001 00000000 00000001");
    assert!(binary(array_of(array_of(SqlType::Integer)), 1007, &empty_rows).is_ok());
    assert_eq!(
        binary(SqlType::BigInt, 26, &[0xff; 4]).unwrap(),
        ScalarValue::Int64(Some(4_294_967_295))
    );
    let null = decode_parameter(1, &SqlType::Date, 1082, Format::Text, None).unwrap();
    assert_eq!(null, ScalarValue::Date32(None));
}
