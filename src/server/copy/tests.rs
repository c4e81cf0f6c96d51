//! COPY data cut at every byte, bad rows, and what goes out comes back in.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Schema;

use super::*;
use crate::sql::statement::CopyTarget;
use crate::values::Format;
use crate::values::types::WireType;

fn statement(format: CopyFormat) -> CopyStatement {
    let csv = format == CopyFormat::Csv;
    CopyStatement {
        target: CopyTarget::Relation("t".into(), Vec::new()),
        from_stdin: true,
        format,
        delimiter: if csv { b',' } else { b'\t' },
        null: if csv { String::new() } else { "\\N".into() },
        header: false,
        header_match: false,
        force_quote: ForceQuote::Columns(Vec::new()),
        quote: b'"',
        escape: b'"',
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        SqlType::Integer.to_field("a", true),
        SqlType::Text.to_field("b", true),
    ]))
}

fn decode(
    statement: &CopyStatement,
    pieces: &[&[u8]],
) -> Result<Vec<(Option<i32>, Option<String>)>> {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int32Type;
    let mut decoder = Decoder::new(statement, schema(), &OutputSettings::default())?;
    let mut batches = Vec::new();
    for piece in pieces {
        decoder.push(piece, false)?;
        batches.extend(decoder.take(false)?);
    }
    decoder.push(&[], true)?;
    batches.extend(decoder.take(true)?);
    let batch = concat_batches(&schema(), &batches)?;
    let (a, b) = (
        batch.column(0).as_primitive::<Int32Type>().clone(),
        batch.column(1).as_string::<i32>().clone(),
    );
    Ok(a.iter()
        .zip(b.iter().map(|b| b.map(str::to_owned)))
        .collect())
}

fn row(a: i32, b: &str) -> (Option<i32>, Option<String>) {
    (Some(a), Some(b.to_owned()))
}

#[test]
fn text_is_the_same_however_it_is_cut() {
    let data = b"1\tx\\ty\\\\\r\n\\N\t\\N\n3\t\\x41\\101\\\nz\n4\t\n\\.\n5\tignored\n";
    let expected = vec![row(1, "x\ty\\"), (None, None), row(3, "AA\nz"), row(4, "")];
    for cut in 0..data.len() {
        let (left, right) = data.split_at(cut);
        let rows = decode(&statement(CopyFormat::Text), &[left, right]).unwrap();
        assert_eq!(rows, expected, "cut at {cut}");
    }
    let rows = decode(&statement(CopyFormat::Text), &[b"7\tno newline"]).unwrap();
    assert_eq!(rows, [row(7, "no newline")]);
}

#[test]
fn csv_is_the_same_however_it_is_cut() {
    let data = b"a,b\r\n1,\"x,\"\"y\"\"\nz\"\r\n,\"\"\n3,\n4,a\"b\"c\n\\.\nrest";
    let expected = vec![
        row(1, "x,\"y\"\nz"),
        (None, Some(String::new())),
        (Some(3), None),
        row(4, "abc"),
    ];
    let statement = CopyStatement {
        header: true,
        header_match: false,
        force_quote: ForceQuote::Columns(Vec::new()),
        ..statement(CopyFormat::Csv)
    };
    for cut in 0..data.len() {
        let (left, right) = data.split_at(cut);
        assert_eq!(
            decode(&statement, &[left, right]).unwrap(),
            expected,
            "cut at {cut}"
        );
    }
    let escaping = CopyStatement {
        escape: b'\\',
        quote: b'\'',
        ..statement_without_header()
    };
    let data = b"1,'it\\'s\n, \\\\ ok'\n";
    for cut in 0..data.len() {
        let (left, right) = data.split_at(cut);
        let rows = decode(&escaping, &[left, right]).unwrap();
        assert_eq!(rows, [row(1, "it's\n, \\ ok")], "cut at {cut}");
    }
}

fn statement_without_header() -> CopyStatement {
    statement(CopyFormat::Csv)
}

#[test]
fn bad_rows_name_line_and_column() {
    for (format, data, code, place) in [
        (
            CopyFormat::Text,
            &b"1\ta\nx\tb\n"[..],
            "22P02",
            "line 2, column a: \"x\"",
        ),
        (CopyFormat::Text, b"1\ta\n2\n", "22P04", "line 2"),
        (CopyFormat::Text, b"1\ta\textra\n", "22P04", "line 1"),
        (CopyFormat::Text, b"1\t\xff\n", "22021", "line 1"),
        (
            CopyFormat::Csv,
            b"1,\"a\nb\"\n99999999999,b\n",
            "22003",
            "line 3, column a",
        ),
        (CopyFormat::Csv, b"1,\"open\n", "22P04", "line 1"),
        (CopyFormat::Binary, b"PGCOPX\n\xff\r\n\0", "22P04", "line 0"),
        (
            CopyFormat::Binary,
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x03",
            "22P04",
            "line 1",
        ),
        (
            CopyFormat::Binary,
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0",
            "22P04",
            "line 0",
        ),
    ] {
        let error = decode(&statement(format), &[data]).unwrap_err();
        assert_eq!(error.sqlstate(), code, "{data:?}: {error}");
        let detail = error.detail_text().unwrap();
        assert!(detail.contains(place), "{detail}");
    }
}

#[test]
fn what_goes_out_comes_back() {
    let rows = vec![
        row(1, "tab\there"),
        (None, Some("\\N".to_owned())),
        row(-3, "line\nbreak \"q\" , \\ \r"),
        (Some(4), None),
        row(5, ""),
        row(6, "\\."),
    ];
    let mut builders = RowSink::new(schema(), &OutputSettings::default()).unwrap();
    for (a, b) in &rows {
        let a = a.map(|a| a.to_string());
        builders
            .set(0, a.as_deref().map_or(Value::Null, Value::Text))
            .unwrap();
        builders
            .set(1, b.as_deref().map_or(Value::Null, Value::Text))
            .unwrap();
        builders.end_row(1);
    }
    let batch = builders.take(true).unwrap().unwrap();
    let types = WireType::of_schema(&schema()).unwrap();
    let settings = OutputSettings::default();
    for format in [CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary] {
        let statement = CopyStatement {
            header: format != CopyFormat::Binary,
            header_match: false,
            force_quote: ForceQuote::Columns(Vec::new()),
            ..statement(format)
        };
        let value_format = match format {
            CopyFormat::Binary => Format::Binary,
            _ => Format::Text,
        };
        let rows_out = RowEncoder::new(&batch, &types, &[value_format], &settings).unwrap();
        let encoder = Encoder::new(&statement, &schema()).unwrap();
        let mut out = BytesMut::new();
        encoder.start(&schema(), &mut out);
        for n in 0..batch.num_rows() {
            encoder.row(&rows_out, n, &mut out).unwrap();
        }
        encoder.end(&mut out);
        for cut in 0..out.len() {
            let (left, right) = out.split_at(cut);
            assert_eq!(
                decode(&statement, &[left, right]).unwrap(),
                rows,
                "{format:?} {cut}"
            );
        }
    }
}

#[test]
fn batches_are_cut_at_a_bound() {
    let mut decoder = Decoder::new(
        &statement(CopyFormat::Text),
        schema(),
        &OutputSettings::default(),
    )
    .unwrap();
    let line = b"1\tx\n".repeat(BATCH_ROWS / 2);
    decoder.push(&line, false).unwrap();
    assert!(decoder.take(false).unwrap().is_none());
    decoder.push(&line, false).unwrap();
    assert_eq!(decoder.take(false).unwrap().unwrap().num_rows(), BATCH_ROWS);
    decoder.push(&[], true).unwrap();
    assert!(decoder.take(true).unwrap().is_none());
}
