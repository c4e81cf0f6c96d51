//! Records as dead letters keep them, each readable by itself.
//!
//! Most records are kept as they came. A record of a CSV file whose first line names the columns means nothing
//! without that line, which is kept before it; a row of a Parquet file is kept as a JSON object of all its columns.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Fields;

use super::column::Refusal;
use super::csv::{CsvDecoder, CsvStyle, record_length};
use super::json::JsonDecoder;
use super::watch::Watch;
use super::{Format, FormatOptions, Layout, RecordDecoder};
use crate::error::Result;

/// A record with the line that names its columns.
pub fn with_header(header: &[u8], record: &[u8]) -> Vec<u8> {
    let header = header.strip_suffix(b"\n").unwrap_or(header);
    [header, b"\n", record].concat()
}

/// Decodes rows of Parquet files as letters have them.
pub fn row_decoder(
    options: &FormatOptions,
    payload: &Fields,
    projection: &[usize],
) -> Result<RecordDecoder> {
    let decoder = JsonDecoder::new(payload, projection, options.epoch)?;
    let decoder = decoder
        .with_other_names(&options.other_names)
        .watched_by(Watch::new(options));
    Ok(RecordDecoder::Json(decoder.folding_case()))
}

/// Decodes letters of one stream.
pub enum LetterDecoder {
    /// Each is a record of the format.
    Records(RecordDecoder),
    /// Each is a header and a record; with the header that was read last.
    Headed {
        /// the decoder under that header
        decoder: CsvDecoder,
        /// the format's style
        style: CsvStyle,
        /// the header
        header: Vec<u8>,
    },
}

impl LetterDecoder {
    /// A decoder for the payload of a layout.
    pub fn new(options: &FormatOptions, layout: &Layout) -> Result<Self> {
        let (payload, projection) = (&layout.payload, &layout.payload_projection);
        Ok(match &options.format {
            Format::Csv(style) if style.header => Self::Headed {
                decoder: CsvDecoder::new(payload, projection, style.clone(), options.epoch)?
                    .with_other_names(&options.other_names)
                    .watched_by(Watch::new(options)),
                style: style.clone(),
                header: Vec::new(),
            },
            Format::Parquet => Self::Records(row_decoder(options, payload, projection)?),
            _ => Self::Records(RecordDecoder::new(options, payload, projection)?),
        })
    }

    /// Decodes one letter. A refused one leaves nothing behind.
    pub fn push(&mut self, raw: &[u8]) -> Result<(), Refusal> {
        let (decoder, style, known) = match self {
            Self::Records(decoder) => return decoder.push(raw),
            Self::Headed {
                decoder,
                style,
                header,
            } => (decoder, style, header),
        };
        let length = record_length(raw, style.quote);
        let (header, record) = raw.split_at(length.unwrap_or(raw.len()));
        if record.is_empty() {
            // As letters were kept before.
            return Err("the line that names its columns was not kept with it".to_owned());
        }
        if header != known.as_slice() {
            decoder.header(header)?;
            header.clone_into(known);
        }
        decoder.push(record)
    }

    /// Rows decoded so far.
    pub fn rows(&self) -> usize {
        match self {
            Self::Records(decoder) => decoder.rows(),
            Self::Headed { decoder, .. } => decoder.rows(),
        }
    }

    /// What is noticed beside the columns; `None`: records of this format have no fields.
    pub fn watch(&mut self) -> Option<&mut Watch> {
        match self {
            Self::Records(decoder) => decoder.watch(),
            Self::Headed { decoder, .. } => decoder.watch(),
        }
    }

    /// Takes the decoded columns, in the projection's order.
    pub fn finish(&mut self) -> Vec<ArrayRef> {
        match self {
            Self::Records(decoder) => decoder.finish(),
            Self::Headed { decoder, .. } => decoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::{Int64Type, Schema, SchemaRef};

    use super::super::values::EpochUnit;
    use super::*;
    use crate::types::SqlType;

    #[test]
    fn each_letter_of_a_headed_file_is_read_under_its_own_header() {
        let fields = ["a", "b"].map(|name| SqlType::BigInt.to_field(name, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let layout = Layout::new(&schema, &[None, None], &[0, 1]);
        let style = CsvStyle {
            header: true,
            ..CsvStyle::default()
        };
        let options = FormatOptions::of(Format::Csv(style), EpochUnit::Auto);
        let mut decoder = LetterDecoder::new(&options, &layout).unwrap();
        decoder.push(&with_header(b"a,b\n", b"1,2\n")).unwrap();
        decoder.push(&with_header(b"b,\"a\"", b"3,4")).unwrap();
        decoder.push(&with_header(b"b,\"a\"", b"5,6")).unwrap();
        decoder.push(&with_header(b"b", b"7")).unwrap();
        let why = decoder.push(b"1,2").unwrap_err();
        assert!(why.contains("was not kept"), "{why}");
        assert!(decoder.push(&with_header(b"a,b", b"x,2")).is_err());
        assert_eq!(decoder.rows(), 4);
        let columns = decoder.finish();
        let values = |at: usize| {
            columns[at]
                .as_primitive::<Int64Type>()
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(values(0), [Some(1), Some(4), Some(6), None]);
        assert_eq!(values(1), [Some(2), Some(3), Some(5), Some(7)]);
    }
}
