//! `SHOW STREAMS` and its like, `SHOW CREATE`, `SHOW OPTIONS FOR`, `DESCRIBE`,
//! `EXPLAIN MATERIALIZED VIEW`: the definitions as rows of text.

use std::sync::Arc;

use super::rowset::{one_batch, text_rows};
use super::{Session, StatementResult};
use crate::catalog::definition::{CatalogObject, Definition, OptionValue, Options};
use crate::catalog::snapshot::{kind_of, options_of_mut, pipeline_of, undefined};
use crate::catalog::system_tables;
use crate::error::{Error, Result, sqlstate};
use crate::sql::masking::{is_credential, masked};
use crate::sql::names::quote_identifier;
use crate::sql::options;
use crate::sql::render::index_column;
use crate::sql::render_functions;
use crate::sql::statement::{FunctionReference, ObjectKind};
use crate::types::SqlType;

pub(super) const DESCRIBE_COLUMNS: [&str; 5] = ["column", "type", "nullable", "default", "comment"];
pub(super) const CREATE_COLUMNS: [&str; 2] = ["name", "create_statement"];
pub(super) const FUNCTION_COLUMNS: [&str; 5] =
    ["name", "arguments", "result", "volatility", "body"];
pub(super) const REPLACE_COLUMNS: [&str; 4] = ["operator", "detail", "state", "rows_to_read"];
pub(super) const OPTION_COLUMNS: [&str; 5] =
    ["option", "type", "default", "also_accepted", "description"];
const EXPLAIN_COLUMNS: [&str; 5] = ["operator", "detail", "mode", "state", "retention"];
const SET_OPTION_COLUMNS: [&str; 5] = OPTION_COLUMNS;

/// The columns of `EXPLAIN [ANALYZE] MATERIALIZED VIEW`.
pub(super) fn explain_columns(analyze: bool) -> Vec<&'static str> {
    let mut names = EXPLAIN_COLUMNS.to_vec();
    if analyze {
        names.extend(["state_rows_total", "state_rows_updated", "memory_bytes"]);
    }
    names
}

/// The columns of `SHOW STREAMS | TABLES | …`.
pub(super) fn object_columns(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Stream => &["name", "connector", "watermark", "comment"],
        ObjectKind::Table => &["name", "primary_key", "comment"],
        ObjectKind::MaterializedView => &["name", "pipeline", "status", "emit", "comment"],
        ObjectKind::View => &["name", "comment"],
        ObjectKind::Sink => &["name", "from", "connector", "pipeline", "comment"],
        ObjectKind::Pipeline => &["name", "status", "trigger", "views"],
        ObjectKind::Secret => &["name"],
        ObjectKind::Index => &["name", "on", "columns", "comment"],
    }
}

impl Session {
    pub(super) fn show_objects(&self, kind: ObjectKind) -> StatementResult {
        let snapshot = self.definitions();
        let rows: Vec<Vec<Option<String>>> = match kind {
            ObjectKind::Secret => snapshot
                .secret_names()
                .map(|(name, _)| vec![Some(name.clone())])
                .collect(),
            ObjectKind::Pipeline => self.pipeline_rows(),
            _ => {
                let status = self.parts.engine().status();
                snapshot
                    .objects()
                    .filter(|o| kind_of(&o.definition) == kind)
                    .map(|o| {
                        let running = status
                            .queries
                            .iter()
                            .find(|q| q.stream_name == o.name)
                            .map(|q| q.status.to_owned());
                        object_row(o, running)
                    })
                    .collect()
            }
        };
        text_rows(object_columns(kind), rows, "SHOW")
    }

    fn pipeline_rows(&self) -> Vec<Vec<Option<String>>> {
        let snapshot = self.definitions();
        let status = self.parts.engine().status();
        snapshot
            .pipelines()
            .map(|(name, definition)| {
                let running = status.pipelines.iter().find(|p| &p.pipeline == name);
                let state = match running {
                    Some(p) => p.status,
                    None if definition.stopped => "stopped",
                    None => "starting",
                };
                let trigger = running.map(|p| p.trigger.clone());
                let members: Vec<_> = snapshot
                    .pipeline_members(name)
                    .into_iter()
                    .map(|o| o.name.clone())
                    .collect();
                vec![
                    Some(name.clone()),
                    Some(state.to_owned()),
                    trigger,
                    Some(members.join(", ")),
                ]
            })
            .collect()
    }

    pub(super) fn show_create(&self, kind: ObjectKind, name: &str) -> Result<StatementResult> {
        let snapshot = self.definitions();
        let object = snapshot.require(kind, name)?;
        let mut whole = CatalogObject::clone(object);
        // The settings of a view's own pipeline were said in the view's statement.
        let pipeline = pipeline_of(&object.definition).filter(|p| *p == name);
        if let Some(settings) = pipeline.and_then(|p| snapshot.pipeline(p))
            && let Some(options) = options_of_mut(&mut whole.definition)
        {
            options.extend(settings.options.clone());
        }
        let mut text = crate::sql::render::create_statement(&whole);
        if !self.owns(object) {
            text = masked(&text).into_owned();
        }
        let row = vec![Some(name.to_owned()), Some(text)];
        Ok(text_rows(&CREATE_COLUMNS, [row], "SHOW"))
    }

    pub(super) fn show_functions(&self) -> StatementResult {
        let snapshot = self.definitions();
        let rows = snapshot.functions().map(|function| {
            vec![
                Some(function.name.clone()),
                Some(render_functions::arguments(function)),
                Some(render_functions::result(function)),
                Some(render_functions::volatility(function).to_lowercase()),
                function.query_text(),
            ]
        });
        text_rows(&FUNCTION_COLUMNS, rows.collect::<Vec<_>>(), "SHOW")
    }

    pub(super) fn show_create_function(
        &self,
        wanted: &FunctionReference,
    ) -> Result<StatementResult> {
        let function = self.function_named(wanted)?;
        let text = render_functions::create_statement(&function);
        let row = vec![Some(function.name.clone()), Some(text)];
        Ok(text_rows(&CREATE_COLUMNS, [row], "SHOW"))
    }

    /// The options that a connector or kind takes, or those that an object has.
    pub(super) fn show_options(&self, name: &str) -> Result<StatementResult> {
        let snapshot = self.definitions();
        let own = match snapshot.object(name) {
            Some(object) => {
                let mut own = crate::catalog::snapshot::options_of(&object.definition)
                    .cloned()
                    .unwrap_or_default();
                let pipeline = pipeline_of(&object.definition).and_then(|p| snapshot.pipeline(p));
                own.extend(pipeline.into_iter().flat_map(|p| p.options.clone()));
                Some((own, option_target(object)))
            }
            None => snapshot
                .pipeline(name)
                .map(|p| (p.options.clone(), "pipeline".to_owned())),
        };
        let (values, target) = match own {
            Some((values, target)) => (values, target),
            None => (Options::new(), name.to_owned()),
        };
        let is_hidden = snapshot
            .object(name)
            .is_some_and(|object| !self.owns(object));
        let rows = options::rows_for(&target)?.into_iter().map(|row| {
            let value = values.get(row.name).map(|v| match v {
                OptionValue::Text(_) if is_hidden && is_credential(row.name) => {
                    "********".to_owned()
                }
                OptionValue::Text(text) => text.clone(),
                OptionValue::Secret(secret) => format!("SECRET {secret}"),
            });
            vec![
                Some(row.name.to_owned()),
                Some(row.option_type),
                value.or(row.default.map(str::to_owned)),
                Some(row.also_accepted),
                Some(row.description.to_owned()),
            ]
        });
        Ok(text_rows(&SET_OPTION_COLUMNS, rows, "SHOW"))
    }

    pub(super) fn describe_relation(&self, name: &str) -> Result<StatementResult> {
        let snapshot = self.definitions();
        let rows: Vec<Vec<Option<String>>> = match snapshot.object(name) {
            Some(object) => object
                .columns()
                .iter()
                .map(|column| {
                    vec![
                        Some(column.name.clone()),
                        Some(column.type_name()),
                        Some(yes_or_no(column.nullable)),
                        column.default.clone(),
                        column.comment.clone(),
                    ]
                })
                .collect(),
            None => {
                let schema = system_tables::schema_of(name).ok_or_else(|| {
                    Error::new(
                        sqlstate::UNDEFINED_TABLE,
                        format!("relation \"{name}\" does not exist"),
                    )
                })?;
                schema
                    .fields()
                    .iter()
                    .map(|field| {
                        let sql_type = SqlType::from_field(field).map(|t| t.to_string());
                        vec![
                            Some(field.name().clone()),
                            sql_type,
                            Some(yes_or_no(field.is_nullable())),
                            None,
                            None,
                        ]
                    })
                    .collect()
            }
        };
        Ok(text_rows(&DESCRIBE_COLUMNS, rows, "DESCRIBE"))
    }

    pub(super) async fn explain_view(&self, name: &str, analyze: bool) -> Result<StatementResult> {
        let snapshot = self.definitions();
        let object = snapshot.require(ObjectKind::MaterializedView, name)?;
        let plan = self.bind_stored_view(object).await?;
        let operators = self.parts.engine().explain(object, &plan).await?;
        if !analyze {
            return Ok(one_batch(operators, "EXPLAIN", false));
        }
        with_figures(&operators, &self.parts.engine().status(), name)
    }
}

/// The operators with the running pipeline's figures beside them, matched in order by kind.
fn with_figures(
    operators: &datafusion::arrow::array::RecordBatch,
    status: &crate::engine::status::EngineStatus,
    view: &str,
) -> Result<StatementResult> {
    use datafusion::arrow::array::AsArray;

    let mut figures: Vec<_> = status
        .state_operators
        .iter()
        .filter(|o| o.stream_name == view)
        .collect();
    let columns: Vec<_> = operators
        .columns()
        .iter()
        .map(|column| column.as_string::<i32>())
        .collect();
    let cell = |column: usize, row: usize| {
        let column = columns.get(column)?;
        column.iter().nth(row).flatten().map(str::to_owned)
    };
    let rows: Vec<_> = (0..operators.num_rows())
        .map(|row| {
            let mut cells: Vec<_> = (0..EXPLAIN_COLUMNS.len()).map(|c| cell(c, row)).collect();
            let kind = cells[0].clone().unwrap_or_default();
            let found = figures
                .iter()
                .position(|f| f.operator_name.contains(kind.trim()))
                .map(|index| figures.remove(index));
            cells.extend([
                found.map(|f| f.num_rows_total.to_string()),
                found.map(|f| f.num_rows_updated.to_string()),
                found.map(|f| f.memory_bytes.to_string()),
            ]);
            cells
        })
        .collect();
    Ok(text_rows(&explain_columns(true), rows, "EXPLAIN"))
}

fn object_row(object: &Arc<CatalogObject>, running: Option<String>) -> Vec<Option<String>> {
    use crate::catalog::definition::EmitMode;

    let name = Some(object.name.clone());
    let comment = object.comment.clone();
    match &object.definition {
        Definition::Stream(d) => {
            let watermark = d.watermark.as_ref().map(|w| w.column.clone());
            vec![name, d.connector.clone(), watermark, comment]
        }
        Definition::Table(d) => vec![name, Some(d.primary_key.join(", ")), comment],
        Definition::MaterializedView(d) => {
            let emit = match d.emit {
                EmitMode::OnUpdate => "on update",
                EmitMode::OnWindowClose => "on window close",
            };
            let pipeline = Some(d.pipeline.clone());
            vec![name, pipeline, running, Some(emit.to_owned()), comment]
        }
        Definition::View(_) => vec![name, comment],
        Definition::Index(d) => {
            let columns = d.columns.iter();
            let columns: Vec<_> = columns.map(|c| index_column(c, quote_identifier)).collect();
            vec![
                name,
                Some(d.view.clone()),
                Some(columns.join(", ")),
                comment,
            ]
        }
        Definition::Sink(d) => vec![
            name,
            Some(d.from.clone()),
            Some(d.connector.clone()),
            Some(d.pipeline.clone()),
            comment,
        ],
    }
}

/// What `SHOW OPTIONS FOR` calls the kind of an object.
fn option_target(object: &CatalogObject) -> String {
    match &object.definition {
        Definition::Stream(d) => d.connector.clone().unwrap_or_else(|| "stream".to_owned()),
        Definition::Table(_) => "table".to_owned(),
        Definition::Sink(_) => "sink".to_owned(),
        Definition::MaterializedView(_) | Definition::View(_) => "materialized view".to_owned(),
        Definition::Index(_) => "index".to_owned(),
    }
}

fn yes_or_no(is_yes: bool) -> String {
    if is_yes { "yes" } else { "no" }.to_owned()
}

/// The error for a name that no running object has.
pub(super) fn no_such(kind: ObjectKind, name: &str) -> Error {
    undefined(kind, name)
}
