//! Looking into files before they are planned: whether their writer has finished them, and what
//! becomes of one that is not whole. The decision itself is [`plan::decide_bad_file`].

use super::ending::{self, Ending};
use super::location::{FileEntry, Location};
use super::plan::{self, BadFile, OnBadFile, PlannedFile};
use super::{FilesSource, read};
use crate::connectors::ReadLimits;
use crate::connectors::formats::observed::Sample;
use crate::connectors::formats::{Format, parquet};
use crate::connectors::settings::Settings;
use crate::error::{Error, Result};

enum Inspected {
    Plan(Option<String>),
    Later,
}

impl FilesSource {
    /// Chooses the files of a batch out of `unread`, looking at Parquet files' marks.
    pub(super) async fn choose(
        &self,
        unread: &[FileEntry],
        limits: &ReadLimits,
    ) -> Result<Vec<PlannedFile>> {
        let mut chosen = Vec::new();
        let mut rest = unread;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(plan::take(rest, limits));
            let mut put_off = false;
            for entry in now {
                let inspected = self.inspect(entry).await.inspect_err(|error| {
                    let files = &self.policy.read_files;
                    files.cannot_be_planned(&entry.path, error.primary());
                })?;
                match inspected {
                    Inspected::Plan(skipped) => chosen.push(PlannedFile {
                        entry: entry.clone(),
                        batch_id: None,
                        moved: false,
                        skipped,
                    }),
                    Inspected::Later => {
                        const WHY: &str = "it is not whole yet, or still being written";
                        self.policy.read_files.cannot_be_planned(&entry.path, WHY);
                        put_off = true;
                    }
                }
            }
            // Files behind one that waits still go on.
            if !chosen.is_empty() || !put_off {
                break;
            }
            rest = later;
        }
        Ok(chosen)
    }

    async fn inspect(&self, entry: &FileEntry) -> Result<Inspected> {
        if self.policy.format.format != Format::Parquet {
            return self.inspect_lines(entry).await;
        }
        let (location, file) = (self.location.clone(), entry.clone());
        let complete = tokio::task::spawn_blocking(move || has_parquet_marks(&location, &file))
            .await
            .map_err(|_| Error::internal("a file check ended unexpectedly"))?;
        match complete {
            Ok(true) => return Ok(Inspected::Plan(None)),
            Ok(false) => {}
            // Gone between listing and now: not there any more.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Inspected::Later),
            Err(e) => return Err(read::unreadable(entry, &e)),
        }
        let age_us = self.clock.now_us().saturating_sub(entry.modified_at_us);
        let policy = self.policy.on_bad_file;
        match plan::decide_bad_file(policy, age_us, self.bad_file_wait_us) {
            BadFile::Later => Ok(Inspected::Later),
            BadFile::Skip => Ok(Inspected::Plan(Some(
                "file is not a whole Parquet file".to_owned(),
            ))),
            BadFile::Fail => Err(Error::damaged(format!(
                "file \"{}\" is not a whole Parquet file",
                entry.path
            ))
            .hint(format!(
                "Replace the file, or go on without it: {}",
                self.names.alter_stream("on_bad_file = 'skip'")
            ))),
        }
    }

    /// Looks at the end of a file of lines, which may still be written. A file that nobody has
    /// touched for `bad_file_wait` is as whole as it will be, unless its last line is known to be
    /// cut; to know that of an old file in an object store would cost a request for each.
    async fn inspect_lines(&self, entry: &FileEntry) -> Result<Inspected> {
        let policy = self.policy.on_bad_file;
        let age_us = self.clock.now_us().saturating_sub(entry.modified_at_us);
        let young = age_us < self.bad_file_wait_us;
        let cheap = self.policy.format.format == Format::Json
            && matches!(self.location, Location::Local { .. });
        if policy == OnBadFile::Skip || !(young || cheap) {
            return Ok(Inspected::Plan(None));
        }
        let (location, file) = (self.location.clone(), entry.clone());
        let format = self.policy.format.format.clone();
        let ending =
            tokio::task::spawn_blocking(move || ending::of_file(&location, &file, &format))
                .await
                .map_err(|_| Error::internal("a file check ended unexpectedly"))?;
        match ending {
            Ok(Ending::Whole) => Ok(Inspected::Plan(None)),
            Ok(Ending::Changing) => Ok(Inspected::Later),
            Ok(Ending::Open) if young && policy == OnBadFile::Wait => Ok(Inspected::Later),
            Ok(Ending::Open) => Ok(Inspected::Plan(None)),
            Ok(Ending::Cut) => match plan::decide_bad_file(policy, age_us, self.bad_file_wait_us) {
                BadFile::Later => Ok(Inspected::Later),
                BadFile::Skip => Ok(Inspected::Plan(None)),
                BadFile::Fail => Err(Error::damaged(format!(
                    "file \"{}\" ends in the middle of a line",
                    entry.path
                ))
                .hint(format!(
                    "Complete the file, or set the line aside: {}",
                    self.names.alter_stream("on_bad_file = 'skip'")
                ))),
            },
            // Gone between listing and now: not there any more.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Inspected::Later),
            Err(e) => Err(read::unreadable(entry, &e)),
        }
    }
}

/// Files that are looked at for their columns.
const SAMPLED_FILES: usize = 5;

/// Rows of the newest whole Parquet files, and what these say of their columns.
pub(in crate::connectors) async fn parquet_sample(
    settings: &Settings<'_>,
    rows: usize,
) -> Result<Sample> {
    let location = Location::parse(&settings.required("location")?, settings)?;
    let mut listing = location.list().await?;
    listing.sort_by_key(|entry| std::cmp::Reverse(entry.modified_at_us));
    tokio::task::spawn_blocking(move || {
        let mut sample = Sample::default();
        for entry in listing.iter().take(SAMPLED_FILES) {
            let left = rows.saturating_sub(sample.records.len());
            if left == 0 || !has_parquet_marks(&location, entry).unwrap_or(false) {
                continue;
            }
            let open = || {
                location
                    .open(entry)
                    .map_err(|e| read::unreadable(entry, &e))
            };
            let columns = parquet::columns_of(open()?, &entry.path)?;
            let records = parquet::sample(open()?, &entry.path, left)?;
            sample.add_columns(&columns, records.len() as u64);
            sample.records.extend(records);
        }
        Ok(sample)
    })
    .await
    .map_err(|_| Error::internal("a look into files ended unexpectedly"))?
}

fn has_parquet_marks(location: &Location, entry: &FileEntry) -> std::io::Result<bool> {
    let file = location.open(entry)?;
    let size = file.size()?;
    if size < 12 {
        return Ok(false);
    }
    let (first, last) = (file.read_at(0, 4)?, file.read_at(size - 4, 4)?);
    Ok(parquet::looks_complete(&first, &last, size))
}
