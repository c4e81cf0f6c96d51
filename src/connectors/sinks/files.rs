//! The `files` sink: one file per batch in a folder or object store.
//!
//! ```text
//! <location>/<sink>-<pipeline id>-<batch, 12 digits>.<json|csv|parquet>
//! ```
//!
//! The name is the identity of the delivery: the same batch delivered again replaces the same file
//! by the same rows. Locally a file is written under a hidden name, synced and renamed; in an
//! object store one put makes it appear. A batch without changes writes no file. Before the first file the
//! columns of those that are there are held against the sink's: see [`target`].

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use object_store::ObjectStoreExt;

use super::{Shape, taken_back, target};
use crate::connectors::files::location::Location;
use crate::connectors::formats::{Format, FormatOptions, encode};
use crate::connectors::open::SinkInput;
use crate::connectors::settings::Settings;
use crate::connectors::{Delivery, Sink, SinkReceipt};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};

/// The sink.
#[derive(Debug)]
pub struct FilesSink {
    name: String,
    location: Location,
    format: Format,
    shape: Shape,
    /// New columns are taken into the target.
    merges_schema: bool,
    /// The target's columns were held against the sink's.
    is_checked: AtomicBool,
}

impl FilesSink {
    /// Opens the sink; nothing is written yet.
    pub fn open(name: &str, settings: &Settings<'_>, input: SinkInput) -> Result<Self> {
        let location_text = settings.required("location")?;
        let location = Location::parse(&location_text, settings)?;
        if location.has_pattern() {
            return Err(settings.invalid("location", "a folder without wildcards"));
        }
        let format = FormatOptions::from_settings(settings, || Some("parquet"))?.format;
        if matches!(format, Format::Text | Format::Raw) {
            return Err(settings.invalid("format", "json, csv or parquet"));
        }
        let shape = Shape::from_settings(name, settings, input)?;
        encode::check_writable(shape.schema())?;
        Ok(Self {
            name: name.to_owned(),
            location,
            format,
            shape,
            merges_schema: settings.boolean("merge_schema")?.unwrap_or(false),
            is_checked: AtomicBool::new(false),
        })
    }

    /// Holds the target's columns against those that are delivered; once, since nobody else is to write there.
    async fn check_columns(&self) -> Result<()> {
        if self.is_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let schema = self.shape.schema();
        let merges = self.merges_schema;
        target::check(&self.name, &self.location, &self.format, schema, merges).await?;
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn file_name(&self, delivery: &Delivery) -> String {
        let extension = target::extension(&self.format);
        let prefix = self.file_prefix(delivery.pipeline_id);
        format!("{prefix}{:012}.{extension}", delivery.batch_id)
    }

    /// How the names of all files begin that this sink has of a pipeline; the batch follows.
    fn file_prefix(&self, pipeline_id: uuid::Uuid) -> String {
        // A quoted SQL name may hold anything; a file name may not.
        let name: String = self
            .name
            .chars()
            .map(|c| {
                if c.is_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        format!("{name}-{pipeline_id}-")
    }

    /// A batch that runs again may have less to deliver: what was lost of its input meanwhile, it delivered before.
    async fn forget(&self, file_name: &str) -> Result<()> {
        let names = taken_back::names(&self.location).await?;
        match names.iter().any(|name| name == file_name) {
            true => taken_back::remove(&self.location, file_name).await,
            false => Ok(()),
        }
    }

    async fn write(&self, file_name: String, batches: Vec<RecordBatch>) -> Result<u64> {
        let format = self.format.clone();
        let schema = self.shape.schema().clone();
        match &self.location {
            Location::Local { root, .. } => {
                let root = root.clone();
                blocking(move || {
                    write_local(&root, &file_name, |out| {
                        encode::write_all(&format, &schema, &batches, out)
                    })
                })
                .await
            }
            Location::Store {
                store, prefix, url, ..
            } => {
                let bytes = blocking(move || {
                    let mut bytes = Vec::new();
                    encode::write_all(&format, &schema, &batches, &mut bytes)?;
                    Ok(bytes)
                })
                .await?;
                let length = bytes.len() as u64;
                store
                    .put(&prefix.clone().join(file_name), bytes.into())
                    .await
                    .map_err(|e| could_not_write(url, &e))?;
                Ok(length)
            }
        }
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::internal("writing a file ended unexpectedly"))?
}

pub(super) fn could_not_write(place: &str, error: &dyn std::fmt::Display) -> Error {
    Error::transient(
        sqlstate::IO_ERROR,
        format!("could not write to \"{place}\""),
    )
    .detail(format!("The cause is: {error}."))
}

/// Writes a file that is there whole or not at all; returns its bytes.
fn write_local(
    folder: &Path,
    file_name: &str,
    fill: impl FnOnce(&mut BufWriter<fs::File>) -> Result<()>,
) -> Result<u64> {
    let failed =
        |path: &Path, e: &dyn std::fmt::Display| could_not_write(&path.display().to_string(), e);
    fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
    let temporary: PathBuf = folder.join(format!(".{file_name}.tmp"));
    let target = folder.join(file_name);
    let file = fs::File::create(&temporary).map_err(|e| failed(&temporary, &e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    fill(&mut out)?;
    out.flush().map_err(|e| failed(&temporary, &e))?;
    let file = out.into_inner().map_err(|e| failed(&temporary, &e))?;
    file.sync_all().map_err(|e| failed(&temporary, &e))?;
    let bytes = file.metadata().map_err(|e| failed(&temporary, &e))?.len();
    fs::rename(&temporary, &target).map_err(|e| failed(&target, &e))?;
    // The rename itself lives in the folder: it must be on disk before the batch commits.
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| failed(folder, &e))?;
    Ok(bytes)
}

#[async_trait]
impl Sink for FilesSink {
    fn description(&self) -> String {
        format!("files in {}", self.location.description())
    }

    async fn deliver(&self, delivery: &Delivery, changes: &[ChangeBatch]) -> Result<SinkReceipt> {
        let batches = self.shape.rows(delivery.batch_id, changes)?;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows == 0 {
            if delivery.replayed {
                self.forget(&self.file_name(delivery)).await?;
            }
            return Ok(SinkReceipt::default());
        }
        self.check_columns().await?;
        let bytes = self.write(self.file_name(delivery), batches).await?;
        Ok(SinkReceipt {
            rows: rows as u64,
            bytes,
        })
    }

    async fn check_target(&self) -> Result<String> {
        self.check_columns().await?;
        let name = format!(".{}test", self.file_prefix(uuid::Uuid::new_v4()));
        let bytes = self.write(name.clone(), Vec::new()).await?;
        taken_back::remove(&self.location, &name).await?;
        Ok(format!(
            "A file of {bytes} bytes was written and removed again."
        ))
    }

    async fn deliveries_after(
        &self,
        pipeline_id: uuid::Uuid,
        batch_id: u64,
    ) -> Result<Vec<String>> {
        let prefix = self.file_prefix(pipeline_id);
        let is_later = |name: &String| {
            let rest = name.strip_prefix(&prefix);
            let digits = rest.and_then(|rest| rest.split('.').next());
            digits
                .and_then(|digits| digits.parse::<u64>().ok())
                .is_some_and(|of| of > batch_id)
        };
        let names = taken_back::names(&self.location).await?;
        let mut later: Vec<String> = names.into_iter().filter(is_later).collect();
        later.sort_unstable();
        Ok(later)
    }

    /// The newest go first: cut short, what is left is what batches without a gap delivered.
    async fn take_back(&self, deliveries: &[String], label: &str) -> Result<String> {
        let newest_first: Vec<String> = deliveries.iter().rev().cloned().collect();
        taken_back::move_aside(&self.location, newest_first, label).await
    }
}
