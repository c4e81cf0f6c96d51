//! `REPLAY DEAD LETTERS`: records that were set aside are put where their pipelines find them again.
//!
//! The letters go into the database's log in one commit; each pipeline takes in its own at its next batch
//! ([`crate::connectors::replayed`]). Which letters can go through is decided here, letter by letter; what
//! cannot stays what it is, with the reason.

use uuid::Uuid;

use super::Engine;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::checkpoint::format::Metadata;
use crate::connectors::formats::DEAD_LETTER_BYTES_MAX;
use crate::connectors::open::letter_format;
use crate::connectors::replayed::{
    LetterFormat, Letters, ReplayedLetter, letters_batch, letters_relation, numbered,
};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result};
use crate::log::stored::StoredWriter;
use crate::sql::names::quote_identifier;

/// A letter as history keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLetter {
    /// The pipeline that set it aside; empty: the receiver of the stream.
    pub pipeline: String,
    /// Its batch; of a receiver the commit of the log.
    pub batch_id: u64,
    /// Where from.
    pub origin: String,
    /// The record.
    pub raw: Vec<u8>,
}

/// What becomes of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It goes through again.
    Replayed,
    /// It went through again already: a crash kept history from knowing.
    Known,
    /// It stays: why, as a clause.
    Left(String),
}

/// What is known of a letter's pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reader {
    id: Uuid,
    /// Batches whose letters it has not read again since: from the first of its checkpoint to the newest
    /// committed one.
    batches: Option<(u64, u64)>,
}

/// Why a letter cannot go through again, whatever its bytes say; `None`: it may.
fn why_not(letter: &KeptLetter, reader: Option<&Reader>) -> Option<&'static str> {
    let Some(reader) = reader else {
        return Some("its pipeline is gone, or part of one that has read the record itself");
    };
    if letter.raw.is_empty() {
        return Some("its bytes were not kept");
    }
    if letter.raw.len() >= DEAD_LETTER_BYTES_MAX {
        return Some("only its first 64 KiB were kept");
    }
    if numbered(&letter.origin).is_none() {
        return Some("it is more than one record");
    }
    match reader.batches {
        _ if reader.id.is_nil() => None,
        Some((first, _)) if letter.batch_id < first => {
            Some("its pipeline has begun anew since, and read the source again or passed it over")
        }
        Some((_, last)) if letter.batch_id <= last => None,
        _ => Some("its batch has yet to commit"),
    }
}

impl Engine {
    /// Puts letters of a stream where their pipelines find them; what becomes of each.
    pub async fn replay(&self, stream: &CatalogObject, kept: &[KeptLetter]) -> Result<Vec<Fate>> {
        let parts = &self.inner.parts;
        let environment = parts.connector_environment(None, 0);
        let Some(format) = letter_format(stream, &environment)? else {
            // Where rows come in no other way than whole, none is set aside.
            let left = Fate::Left("its stream has no records".to_owned());
            return Ok(vec![left; kept.len()]);
        };
        check_format(stream, &format)?;
        let mut fates = Vec::with_capacity(kept.len());
        let mut again: Vec<ReplayedLetter> = Vec::new();
        let mut readers: Vec<(String, Option<Reader>)> = Vec::new();
        for letter in kept {
            let known = readers.iter().find(|(name, _)| *name == letter.pipeline);
            let reader = match known {
                Some((_, reader)) => *reader,
                None => {
                    let reader = self.reader_of(&letter.pipeline).await?;
                    readers.push((letter.pipeline.clone(), reader));
                    reader
                }
            };
            let fate = self.fate_of(stream, &format, letter, reader.as_ref(), &again)?;
            if fate == Fate::Replayed {
                let id = reader.map_or(Uuid::nil(), |reader| reader.id);
                again.push(as_replayed(letter, id));
            }
            fates.push(fate);
        }
        if !again.is_empty() {
            self.write_letters(stream, &format, &again).await?;
        }
        Ok(fates)
    }

    fn fate_of(
        &self,
        stream: &CatalogObject,
        format: &LetterFormat,
        letter: &KeptLetter,
        reader: Option<&Reader>,
        again: &[ReplayedLetter],
    ) -> Result<Fate> {
        if let Some(why) = why_not(letter, reader) {
            return Ok(Fate::Left(why.to_owned()));
        }
        let id = reader.map_or(Uuid::nil(), |reader| reader.id);
        let replayed = as_replayed(letter, id);
        let log = std::sync::Arc::clone(&self.inner.parts.log);
        let known = Letters::new(log, stream.oid, id);
        if again.contains(&replayed) || known.holds(&replayed.origin, &replayed.raw)? {
            return Ok(Fate::Known);
        }
        let all: Vec<usize> = (0..format.schema.fields().len()).collect();
        let (_, refused, _) = format.decode(std::slice::from_ref(&replayed), &all)?;
        Ok(match refused.into_iter().next() {
            Some(letter) => Fate::Left(letter.error),
            None => Fate::Replayed,
        })
    }

    /// Nobody by the empty name is the receiver of a stream.
    async fn reader_of(&self, pipeline: &str) -> Result<Option<Reader>> {
        if pipeline.is_empty() {
            let id = Uuid::nil();
            return Ok(Some(Reader { id, batches: None }));
        }
        let Some(shared) = self.pipeline(pipeline) else {
            return Ok(None);
        };
        let (store, identity) = self.place_of(pipeline)?;
        let metadata = store.get("metadata").await?;
        let metadata = metadata.and_then(|blob| Metadata::decode(&blob.bytes).ok());
        let last = self.inner.parts.history.known_batch(pipeline, shared.id);
        Ok(Some(Reader {
            id: identity.pipeline_id,
            batches: metadata.map(|m| m.first_batch_id).zip(last),
        }))
    }

    async fn write_letters(
        &self,
        stream: &CatalogObject,
        format: &LetterFormat,
        letters: &[ReplayedLetter],
    ) -> Result<()> {
        let mut transaction = self.inner.parts.log.begin();
        let rows = ChangeBatch::inserts(letters_batch(letters)?);
        let relation = letters_relation(stream.oid);
        transaction.append(relation, &rows).await?;
        if stream.definition.is_logged() {
            // Rows of the log are what its readers read: no pipeline decodes them.
            let all: Vec<usize> = (0..format.schema.fields().len()).collect();
            let (rows, _, _) = format.decode(letters, &all)?;
            let rows = StoredWriter::new(stream).stored(&ChangeBatch::inserts(rows))?;
            transaction.append(stream.oid, &rows).await?;
        }
        transaction.commit().await.map(drop)
    }
}

/// A receiver counts lines for each connection anew: only with the commit its origins are of one record.
fn as_replayed(letter: &KeptLetter, pipeline_id: Uuid) -> ReplayedLetter {
    let origin = match pipeline_id.is_nil() {
        true => format!("commit {}: {}", letter.batch_id, letter.origin),
        false => letter.origin.clone(),
    };
    ReplayedLetter {
        pipeline_id,
        origin,
        raw: letter.raw.clone(),
    }
}

/// Records that cannot be rows without what a letter does not have.
fn check_format(stream: &CatalogObject, format: &LetterFormat) -> Result<()> {
    let what = {
        let columns = format.schema.fields().iter().zip(&format.metadata);
        let mut required = columns.filter(|(field, from)| from.is_some() && !field.is_nullable());
        required.next().map(|(field, _)| {
            format!(
                "records without the metadata of column \"{}\", which is NOT NULL,",
                field.name()
            )
        })
    };
    let Some(what) = what else {
        return Ok(());
    };
    let reader = match &stream.definition {
        Definition::Stream(_) => quote_identifier(&stream.name),
        _ => return Ok(()),
    };
    Err(
        Error::unsupported(format!("{what} cannot be replayed by themselves")).hint(format!(
            "RESET CHECKPOINT OF … FROM EARLIEST; makes a view over {reader} read its source again."
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_records_of_committed_batches_go_through_again() {
        let reader = Reader {
            id: Uuid::from_u128(1),
            batches: Some((3, 5)),
        };
        let letter = |batch_id: u64, raw: &[u8], origin: &str| KeptLetter {
            pipeline: "p".into(),
            batch_id,
            origin: origin.into(),
            raw: raw.to_vec(),
        };
        let whole = letter(4, b"x", "a.json line 1");
        assert_eq!(why_not(&whole, Some(&reader)), None);
        let cases = [
            (whole.clone(), None, "gone"),
            (letter(4, b"", "a.json line 1"), Some(&reader), "not kept"),
            (letter(4, b"x", "a.json"), Some(&reader), "more than one"),
            (
                letter(2, b"x", "a.json line 1"),
                Some(&reader),
                "begun anew",
            ),
            (
                letter(6, b"x", "a.json line 1"),
                Some(&reader),
                "yet to commit",
            ),
            (
                letter(4, &vec![b'x'; DEAD_LETTER_BYTES_MAX], "a.json line 1"),
                Some(&reader),
                "first 64 KiB",
            ),
        ];
        for (letter, reader, why) in cases {
            let told = why_not(&letter, reader).unwrap_or_default();
            assert!(told.contains(why), "{told}, not {why}");
        }
        let receiver = Reader {
            id: Uuid::nil(),
            batches: None,
        };
        assert_eq!(why_not(&whole, Some(&receiver)), None);
    }
}
