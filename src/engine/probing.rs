//! `TEST SOURCE` and `TEST SINK`: each step of a connection by itself, with how long it took.
//!
//! ```text
//!   definition ─► name look-up ─► connection ─► position ─► read ─► schema          a source
//!   definition ─► name look-up ─► connection ─► write                                a sink
//! ```
//!
//! The first step that fails is the last row: those after it would only fail of the same. Whatever is read
//! is dropped; nothing moves a pipeline's position.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use tokio::net::TcpStream;

use super::Engine;
use super::opening::open_relation;
use super::pipeline::Pipeline;
use super::status::in_shown_names;
use crate::catalog::definition::{CatalogObject, Definition, Options};
use crate::connectors::{ReadLimits, SourceChunk, SourceRange, SourceRef};
use crate::error::{Error, ErrorKind, Result, sqlstate};
use crate::sql::hints::statement_in;
use crate::sql::names::quote_identifier;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows that are read, about.
const ROWS_READ: u64 = 100;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// `definition`, `name look-up`, `connection`, `position`, `read`, `schema`, `write`.
    pub check: &'static str,
    /// `ok`, `warn`, `fail`.
    pub status: &'static str,
    /// A sentence.
    pub detail: String,
    /// How long it took.
    pub duration_us: i64,
    /// What helps.
    pub statement: Option<String>,
}

/// The rows so far.
struct Probes<'a> {
    engine: &'a Engine,
    rows: Vec<Probe>,
}

impl Probes<'_> {
    /// Does a step; `None`: it failed, and the row says of what.
    async fn step<T>(
        &mut self,
        check: &'static str,
        work: impl Future<Output = Result<(T, String)>>,
    ) -> Option<T> {
        let clock = &self.engine.inner.parts.clock;
        let begun_us = clock.now_us();
        let done = match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => Err(Error::transient(
                sqlstate::CONNECTION_FAILURE,
                format!("there was no answer within {} seconds", PATIENCE.as_secs()),
            )),
        };
        let duration_us = clock.now_us() - begun_us;
        let (value, status, detail, statement) = match done {
            Ok((value, detail)) => (Some(value), "ok", detail, None),
            Err(error) => {
                let statement = error.hint_text().and_then(statement_in);
                (None, "fail", sentence(&error), statement)
            }
        };
        self.rows.push(Probe {
            check,
            status,
            detail,
            duration_us,
            statement,
        });
        value
    }

    /// Looks up and connects to every address that the options name.
    async fn addresses(&mut self, options: &Options) -> Option<()> {
        for address in addresses_of(options) {
            let found = self.step("name look-up", look_up(&address)).await?;
            self.step("connection", connect(&address, found)).await?;
        }
        Some(())
    }
}

fn sentence(error: &Error) -> String {
    let kind = match error.kind() {
        ErrorKind::Transient => "it may pass: ",
        _ => "",
    };
    let detail = error.detail_text().map(|d| format!(" {d}"));
    let hint = error.hint_text().map(|h| format!(" {h}"));
    format!(
        "{kind}{}.{}{}",
        error.primary(),
        detail.unwrap_or_default(),
        hint.unwrap_or_default()
    )
}

/// `host:port` of the options that hold some.
fn addresses_of(options: &Options) -> Vec<String> {
    const HOSTS: [&str; 2] = ["brokers", "endpoint"];
    let texts = HOSTS
        .iter()
        .filter_map(|name| super::settings::text(options, name));
    let parts = texts.flat_map(|text| text.split(','));
    let address = |part: &str| {
        let part = part.trim();
        let (scheme, rest) = part.split_once("://").unwrap_or(("", part));
        let host = rest.split('/').next().unwrap_or(rest);
        let port = match scheme {
            "https" => ":443",
            "http" => ":80",
            _ => ":9092",
        };
        match host.rsplit_once(':') {
            Some(_) => host.to_owned(),
            None => format!("{host}{port}"),
        }
    };
    parts.map(address).collect()
}

async fn look_up(address: &str) -> Result<(Vec<std::net::SocketAddr>, String)> {
    let found = tokio::net::lookup_host(address).await.map_err(|e| {
        Error::transient(
            sqlstate::CONNECTION_FAILURE,
            format!("could not find the host of {address}: {e}"),
        )
    })?;
    let found: Vec<_> = found.collect();
    let shown: Vec<String> = found.iter().map(|a| a.ip().to_string()).collect();
    let detail = format!("{address} is {}.", shown.join(", "));
    Ok((found, detail))
}

async fn connect(address: &str, found: Vec<std::net::SocketAddr>) -> Result<((), String)> {
    match TcpStream::connect(&*found).await {
        Ok(_) => Ok(((), format!("{address} takes connections."))),
        Err(e) => Err(Error::transient(
            sqlstate::CONNECTION_FAILURE,
            format!("could not connect to {address}: {e}"),
        )),
    }
}

impl Engine {
    /// Tries a stream's source.
    pub async fn test_source(&self, object: &CatalogObject) -> Vec<Probe> {
        let mut probes = Probes {
            engine: self,
            rows: Vec::new(),
        };
        // What failed is the last row.
        self.probe_source(&mut probes, object).await;
        probes.rows
    }

    async fn probe_source(&self, probes: &mut Probes<'_>, object: &CatalogObject) -> Option<()> {
        let parts = &self.inner.parts;
        let open = async {
            let (source, _) = open_relation(parts, object, None, None, 0)?;
            let detail = format!("{}.", source.description());
            Ok((source, detail))
        };
        let source = probes.step("definition", open).await?;
        if let Definition::Stream(stream) = &object.definition {
            probes.addresses(&stream.options).await?;
        }
        let ends = async {
            let start = source.initial_offset().await?;
            let latest = source.latest_offset().await?;
            let detail = format!("From {} to {}.", start.0, latest.0);
            Ok(((start, latest), detail))
        };
        let (start, latest) = probes.step("position", ends).await?;
        let limits = ReadLimits {
            max_rows: Some(ROWS_READ),
            max_files: Some(1),
            max_bytes: None,
        };
        let read = async {
            let range = source.plan_range(0, &start, &latest, &limits).await?;
            match range {
                Some(range) => first_chunk(&source, &range, object).await,
                None => Ok((None, "Nothing is there to read yet.".to_owned())),
            }
        };
        let chunk = probes.step("read", read).await??;
        let row = schema_row(object, &chunk);
        probes.rows.push(row);
        Some(())
    }

    /// Tries a sink; nothing is delivered. It is tried among the views of its pipeline, as what these know it by.
    pub async fn test_sink(&self, object: &CatalogObject, pipeline: &str) -> Vec<Probe> {
        let object = &self.kept(object);
        let mut probes = Probes {
            engine: self,
            rows: Vec::new(),
        };
        self.probe_sink(&mut probes, object, pipeline).await;
        let names = self.inner.parts.definitions.shown_names();
        for probe in &mut probes.rows {
            probe.detail = in_shown_names(&probe.detail, &names);
            let statement = probe.statement.take();
            probe.statement = statement.map(|text| in_shown_names(&text, &names));
        }
        probes.rows
    }

    async fn probe_sink(
        &self,
        probes: &mut Probes<'_>,
        object: &CatalogObject,
        pipeline: &str,
    ) -> Option<()> {
        let open = async {
            let shared = self.pipeline_named(pipeline)?;
            let folder = super::verifying::new_folder(&self.inner.parts);
            let location = folder.path().join("checkpoint");
            let location = location.to_string_lossy().into_owned();
            let mut twin: Pipeline = self.twin(&shared, folder.path(), &location, None)?;
            twin.sink_objects = vec![object.clone()];
            if !twin.objects.iter().any(|view| reads(object, view)) {
                // What it delivers is no view: it is planned as one that keeps no rows.
                twin.objects.push(object.clone());
            }
            let sinks = twin.sinks_at_rest().await?;
            let sink = sinks.into_iter().next().map(|entry| entry.sink);
            let sink = sink.ok_or_else(|| super::planning::unknown(&object.name))?;
            let detail = format!("{}.", sink.description());
            Ok((sink, detail))
        };
        let sink = probes.step("definition", open).await?;
        if let Definition::Sink(definition) = &object.definition {
            probes.addresses(&definition.options).await?;
        }
        let write = async { Ok(((), sink.check_target().await?)) };
        probes.step("write", write).await
    }
}

/// Whether a sink delivers the changes of this view.
fn reads(sink: &CatalogObject, view: &CatalogObject) -> bool {
    matches!(&sink.definition, Definition::Sink(sink) if sink.from == view.name)
}

/// The first rows of a range.
async fn first_chunk(
    source: &SourceRef,
    range: &SourceRange,
    object: &CatalogObject,
) -> Result<(Option<SourceChunk>, String)> {
    let all: Vec<usize> = (0..object.stored_columns().len()).collect();
    let mut chunks = source.read_range(0, range, &all).await?;
    let first = chunks.next().await.transpose()?;
    let detail = match &first {
        Some(chunk) => format!(
            "{} rows of {} bytes came first.",
            chunk.changes.num_rows(),
            chunk.bytes
        ),
        None => "Its range holds no rows.".to_owned(),
    };
    Ok((first, detail))
}

/// Whether what was read has the columns that the stream has.
fn schema_row(object: &CatalogObject, chunk: &SourceChunk) -> Probe {
    let rows = chunk.changes.rows();
    let names = object.columns().iter().enumerate();
    let empty: BTreeMap<usize, String> = names
        .filter(|(index, _)| {
            let column = rows.columns().get(object.stored_index(*index));
            column.is_some_and(|column| column.null_count() == rows.num_rows())
        })
        .map(|(index, column)| (index, quote_identifier(&column.name)))
        .collect();
    let (status, detail) = match (chunk.dead_letters.first(), rows.num_rows()) {
        (Some(letter), _) => (
            "warn",
            format!(
                "{} records could not be decoded; the first, {}: {}.",
                chunk.dead_letters.len(),
                letter.origin,
                letter.error
            ),
        ),
        (None, rows) if rows > 0 && !empty.is_empty() => {
            let names: Vec<String> = empty.into_values().collect();
            let names = names.join(", ");
            (
                "warn",
                format!("No row that was read has a value for {names}."),
            )
        }
        (None, _) => (
            "ok",
            "The records have the columns of the stream.".to_owned(),
        ),
    };
    Probe {
        check: "schema",
        status,
        detail,
        duration_us: 0,
        statement: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::definition::OptionValue;

    #[test]
    fn addresses_come_from_brokers_and_endpoints() {
        let options = |name: &str, text: &str| -> Options {
            Options::from([(name.to_owned(), OptionValue::Text(text.to_owned()))])
        };
        let of = |name: &str, text: &str| addresses_of(&options(name, text));
        assert_eq!(of("brokers", "a:1, b:2"), ["a:1", "b:2"]);
        assert_eq!(of("brokers", "a"), ["a:9092"]);
        assert_eq!(of("endpoint", "http://store:9000/x"), ["store:9000"]);
        assert_eq!(of("endpoint", "https://store"), ["store:443"]);
        assert!(of("location", "in").is_empty());
    }
}
