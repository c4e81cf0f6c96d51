//! From a definition to a source or sink: the one place that knows all connectors by name.

use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::bad_rows::BadRowPolicy;
use super::files::{self, FilesSource};
use super::formats::observed::Sample;
use super::formats::{Format, FormatOptions};
use super::generator::GeneratorSource;
use super::kafka::KafkaSource;
use super::log_source::LogSource;
use super::paths::PathRule;
use super::replayed::{LetterFormat, Letters, ReplayedSource};
use super::settings::{SecretLookup, Settings};
use super::sinks::{BlackholeSink, ConsoleSink, FilesSink};
use super::telling::Names;
use super::{DeadLetter, SinkRef, SourceLog, SourceRef};
use crate::catalog::definition::{CatalogObject, Definition, Options};
use crate::clock::ClockRef;
use crate::error::{Error, Result, sqlstate};
use crate::log::DurableLog;

/// Where the console sink writes.
pub type ConsoleWriter = Arc<Mutex<dyn Write + Send>>;

/// Takes dead letters of a stream at a commit of the durable log.
pub type DeadLetterHook = Arc<dyn Fn(&str, u64, &[DeadLetter]) + Send + Sync>;

/// What connectors get from their surroundings.
#[derive(Clone)]
pub struct ConnectorEnvironment {
    /// The durable log, for tables, streams without a connector and `socket` streams. `None` in
    /// tools that have no data directory.
    pub log: Option<Arc<DurableLog>>,
    /// Where time comes from.
    pub clock: ClockRef,
    /// The source's own log in the pipeline's checkpoint. `None` for readers that live no longer
    /// than the process.
    pub source_log: Option<Arc<dyn SourceLog>>,
    /// The pipeline that reads, for the statements in hints. `None` for readers without one.
    pub pipeline: Option<String>,
    /// Its identity: whoever has none is given no records again that were set aside.
    pub pipeline_id: Option<uuid::Uuid>,
    /// What that pipeline was given again of the stream; set by [`open_source`].
    pub letters: Option<Arc<Letters>>,
    /// Where letters go that no batch carries: the stream, the commit of the durable log that they
    /// came before or with, and the letters. `None`: only the receiver's status has them.
    pub dead_letters: Option<DeadLetterHook>,
    /// Values of secrets.
    pub secrets: SecretLookup,
    /// Batches that must stay replayable: a source log keeps them apart when it compacts.
    pub retain_batches: usize,
    /// Where the console sink writes.
    pub console: ConsoleWriter,
    /// Local paths that may be reached.
    pub paths: PathRule,
}

impl ConnectorEnvironment {
    /// An environment without secrets and source log that writes the console to stderr.
    pub fn new(log: Option<Arc<DurableLog>>, clock: ClockRef) -> Self {
        Self {
            log,
            clock,
            source_log: None,
            pipeline: None,
            pipeline_id: None,
            letters: None,
            dead_letters: None,
            secrets: Arc::new(|_| None),
            retain_batches: 100,
            console: Arc::new(Mutex::new(std::io::stderr())),
            paths: PathRule::default(),
        }
    }

    /// The durable log, or an error where there is none.
    pub(super) fn durable_log(&self) -> Result<Arc<DurableLog>> {
        self.log
            .clone()
            .ok_or_else(|| Error::internal("this tool has no durable log to read from"))
    }
}

/// What a sink is fed.
#[derive(Debug, Clone)]
pub struct SinkInput {
    /// Schema of the rows.
    pub schema: SchemaRef,
    /// Changes are inserts only; `None`: not known.
    pub append_only: Option<bool>,
    /// Columns that identify a row, where a key is known; empty: none.
    pub key: Vec<usize>,
}

impl From<SchemaRef> for SinkInput {
    /// Input of which only the schema is known.
    fn from(schema: SchemaRef) -> Self {
        Self {
            schema,
            append_only: None,
            key: vec![],
        }
    }
}

/// Opens the source of a stream or table.
pub fn open_source(
    object: &CatalogObject,
    environment: &ConnectorEnvironment,
) -> Result<SourceRef> {
    let sent = object.with_sent_columns();
    let (connector, options) = match &object.definition {
        Definition::Stream(stream) => (stream.connector.clone(), &stream.options),
        Definition::Table(table) => (None, &table.options),
        _ => {
            return Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{}\" is not a stream or table", object.name),
            ));
        }
    };
    let mut environment = environment.clone();
    if let Some((log, id)) = environment.log.clone().zip(environment.pipeline_id) {
        environment.letters = Some(Arc::new(Letters::new(log, object.oid, id)));
    }
    let environment = &environment;
    let settings = Settings::new(&object.name, options, &environment.secrets);
    check_location(connector.as_deref(), &settings, environment)?;
    let source: SourceRef = match connector.as_deref() {
        None | Some("socket") => Arc::new(LogSource::open(object, environment.durable_log()?)?),
        Some("files") => Arc::new(FilesSource::open(&sent, options, environment)?),
        Some("generator") => Arc::new(GeneratorSource::open(&sent, options, environment)?),
        Some("kafka") => Arc::new(KafkaSource::open(&sent, options, environment)?),
        Some(other) => {
            return Err(unknown_connector(
                other,
                "files, generator, kafka or socket",
            ));
        }
    };
    // The records of a stream in the log are rows of it: what goes through again is one more of them.
    let source = match environment
        .letters
        .clone()
        .filter(|_| !object.definition.is_logged())
    {
        Some(letters) => match letter_format(object, environment)? {
            Some(format) => ReplayedSource::over(source, letters, format),
            None => source,
        },
        None => source,
    };
    match connector {
        None => Ok(source),
        Some(_) => BadRowPolicy::wrap(source, &settings, Names::new(&object.name, environment)),
    }
}

/// A connector of files reaches allowed paths only.
fn check_location(
    connector: Option<&str>,
    settings: &Settings<'_>,
    environment: &ConnectorEnvironment,
) -> Result<()> {
    match (connector, settings.text("location")?) {
        (Some("files"), Some(location)) => environment.paths.check(&location),
        _ => Ok(()),
    }
}

/// Rows of the newest Parquet files of a stream, and what these say of their columns.
pub async fn parquet_sample(
    object: &CatalogObject,
    environment: &ConnectorEnvironment,
    rows: usize,
) -> Result<Sample> {
    let Definition::Stream(stream) = &object.definition else {
        return Ok(Sample::default());
    };
    let settings = Settings::new(&object.name, &stream.options, &environment.secrets);
    check_location(stream.connector.as_deref(), &settings, environment)?;
    files::parquet_sample(&settings, rows).await
}

/// How records of a stream are decoded one by one; `None`: it has none that can be set aside.
pub fn letter_format(
    object: &CatalogObject,
    environment: &ConnectorEnvironment,
) -> Result<Option<LetterFormat>> {
    let Definition::Stream(stream) = &object.definition else {
        return Ok(None);
    };
    let settings = Settings::new(&object.name, &stream.options, &environment.secrets);
    let location = settings.text("location")?.unwrap_or_default();
    // As each of the connectors reads it.
    let (default, sent) = match stream.connector.as_deref() {
        Some("files") => (files::format_by_name(&location), object.with_sent_columns()),
        Some("kafka") => (Some("json"), object.with_sent_columns()),
        Some("socket") => (Some("text"), object.clone()),
        _ => return Ok(None),
    };
    let schema = match stream.connector.as_deref() {
        Some("socket") => object.sent_schema(),
        _ => sent.schema(),
    };
    let columns = sent.columns().iter();
    let mut format = FormatOptions::from_settings(&settings, || default)?;
    // Only of a file the first record is its header.
    if let Format::Csv(style) = &mut format.format {
        style.header &= stream.connector.as_deref() == Some("files");
    }
    Ok(Some(LetterFormat {
        format: format.with_altered_columns(&sent),
        schema,
        metadata: columns.map(|column| column.metadata_from.clone()).collect(),
    }))
}

/// Opens a sink. `input` describes what it is fed; a bare schema means changes without a key.
pub fn open_sink(
    object: &CatalogObject,
    input: impl Into<SinkInput>,
    environment: &ConnectorEnvironment,
) -> Result<SinkRef> {
    let Definition::Sink(sink) = &object.definition else {
        return Err(Error::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("\"{}\" is not a sink", object.name),
        ));
    };
    let input = input.into();
    let options: &Options = &sink.options;
    let settings = Settings::new(&object.name, options, &environment.secrets);
    check_location(Some(&sink.connector), &settings, environment)?;
    let sink: SinkRef = match sink.connector.as_str() {
        "files" => Arc::new(FilesSink::open(&object.name, &settings, input)?),
        "console" => Arc::new(ConsoleSink::open(
            &object.name,
            &settings,
            input,
            environment.console.clone(),
        )?),
        "blackhole" => Arc::new(BlackholeSink::new(&object.name)),
        other => return Err(unknown_connector(other, "files, console or blackhole")),
    };
    Ok(sink)
}

fn unknown_connector(name: &str, known: &str) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("connector \"{name}\" does not exist"),
    )
    .hint(format!("Use {known}."))
}

/// The error for `METADATA FROM` a name that the connector does not have.
pub(super) fn unknown_metadata(column: &str, name: &str, connector: &str, known: &[&str]) -> Error {
    Error::new(
        sqlstate::INVALID_OBJECT_DEFINITION,
        format!("connector {connector} has no metadata \"{name}\" for column \"{column}\""),
    )
    .hint(format!("Use one of {}.", known.join(", ")))
}
