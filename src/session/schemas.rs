//! `COMPARE SCHEMA OF name`: source, stream, views and sinks side by side, with the ALTER for each column.
//!
//! What a source sends is what some of its newest records hold. A statement is named where one follows from what
//! was seen: a new field is added, a column that nothing is sent for any more is renamed where one new field takes
//! its place, and of a column that cannot be read it is said which type would hold what comes.

use std::sync::Arc;

use super::Session;
use super::recovery::Cell;
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition};
use crate::catalog::snapshot::CatalogSnapshot;
use crate::connectors::formats::observed::{Observed, observe, refusals};
use crate::engine::sampling::Sampled;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::types::SqlType;

/// A column of a stream, or a field that has none.
#[derive(Debug, Default, PartialEq)]
struct Compared {
    field: Option<(String, Option<SqlType>)>,
    column: Option<(String, String)>,
    status: &'static str,
    detail: String,
    statement: Option<String>,
}

/// A column as it is read.
struct Declared<'a> {
    column: &'a ColumnDefinition,
    /// The field that it is read from.
    sent_as: &'a str,
    /// Records whose value it cannot hold, and why the first cannot.
    refused: (u64, Option<String>),
}

impl Session {
    pub(super) async fn compare_schema(&self, name: &str) -> Result<Vec<Vec<Cell>>> {
        let snapshot = self.definitions();
        let beside = Beside::of(&snapshot, name)?;
        let mut rows = Vec::new();
        for stream in &beside.streams {
            let sampled = self.parts.engine().sample(stream).await?;
            for compared in compare_stream(stream, sampled.as_ref(), &snapshot)? {
                rows.push(beside.row(stream, compared));
            }
        }
        rows.extend(beside.computed());
        Ok(rows)
    }
}

/// What stands beside the streams.
struct Beside {
    streams: Vec<Arc<CatalogObject>>,
    views: Vec<Arc<CatalogObject>>,
    /// With the columns that each delivers.
    sinks: Vec<(String, Vec<ColumnDefinition>)>,
}

impl Beside {
    fn of(snapshot: &CatalogSnapshot, name: &str) -> Result<Self> {
        let object = snapshot.object(name);
        let is_stream = |o: &&Arc<CatalogObject>| matches!(o.definition, Definition::Stream(_));
        let members: Vec<Arc<CatalogObject>> = match object.filter(is_stream) {
            Some(stream) => snapshot
                .dependents(&stream.name)
                .into_iter()
                .cloned()
                .collect(),
            None => {
                let pipeline = snapshot.pipeline_named(name);
                let pipeline = pipeline.ok_or_else(|| no_schema(name, object))?;
                let all = snapshot.pipeline_members(pipeline).into_iter();
                // Of a view or sink itself; of a pipeline all that is in it.
                let is_asked = |o: &&Arc<CatalogObject>| match object {
                    Some(object) => is_joined(o, object),
                    None => true,
                };
                all.filter(is_asked).cloned().collect()
            }
        };
        let is_view =
            |o: &&Arc<CatalogObject>| matches!(o.definition, Definition::MaterializedView(_));
        let views: Vec<_> = members.iter().filter(is_view).cloned().collect();
        let mut streams: Vec<Arc<CatalogObject>> =
            object.filter(is_stream).cloned().into_iter().collect();
        let mut open: Vec<String> = members.iter().flat_map(reads).collect();
        while let Some(relation) = open.pop() {
            let is_known = streams.iter().any(|known| known.name == relation);
            match snapshot.object(&relation) {
                Some(stream) if is_stream(&stream) && !is_known => streams.push(stream.clone()),
                Some(other) if !is_known => open.extend(reads(other)),
                _ => {}
            }
        }
        let mut sinks: Vec<(String, Vec<ColumnDefinition>)> = Vec::new();
        let delivering = views
            .iter()
            .flat_map(|view| snapshot.dependents(&view.name));
        for sink in members.iter().chain(delivering) {
            if let Definition::Sink(definition) = &sink.definition
                && !sinks.iter().any(|(known, _)| *known == sink.name)
                && let Some(from) = snapshot.object(&definition.from)
            {
                let version = definition.versions.get(&definition.from);
                let from =
                    version.map_or_else(|| CatalogObject::clone(from), |v| from.at_version(*v));
                sinks.push((sink.name.clone(), from.columns().to_vec()));
            }
        }
        Ok(Self {
            streams,
            views,
            sinks,
        })
    }

    fn row(&self, stream: &CatalogObject, compared: Compared) -> Vec<Cell> {
        let name = compared.column.as_ref().map(|(name, _)| name.as_str());
        let field = compared.field.as_ref().map(|(field, _)| field.as_str());
        let name = name.or(field).unwrap_or_default();
        let (views, sinks) = (self.views_of(name), self.sinks_of(name));
        let (field, field_type) = compared.field.map_or((None, None), |(field, sql_type)| {
            (Some(field), sql_type.map(|sql_type| sql_type.to_string()))
        });
        let (column, column_type) = compared.column.unzip();
        vec![
            stream.name.clone().into(),
            field.into(),
            field_type.into(),
            column.into(),
            column_type.into(),
            views.into(),
            sinks.into(),
            compared.status.into(),
            compared.detail.into(),
            compared.statement.into(),
        ]
    }

    fn views_of(&self, column: &str) -> Option<String> {
        let views = self.views.iter();
        listed(views.flat_map(|view| of_name(&view.name, view.columns(), column)))
    }

    fn sinks_of(&self, column: &str) -> Option<String> {
        let sinks = self.sinks.iter();
        listed(sinks.flat_map(|(name, columns)| of_name(name, columns, column)))
    }

    /// Columns of views that have the name of no column of a stream: the query makes them.
    fn computed(&self) -> Vec<Vec<Cell>> {
        let mut names: Vec<&str> = Vec::new();
        for column in self.views.iter().flat_map(|view| view.columns()) {
            let mut of_streams = self.streams.iter().flat_map(|stream| stream.columns());
            let is_own = of_streams.any(|own| own.name == column.name);
            if !is_own && !names.contains(&column.name.as_str()) {
                names.push(&column.name);
            }
        }
        let nothing = || Cell::from(None::<String>);
        let row = |name: &str| {
            let (views, sinks) = (self.views_of(name), self.sinks_of(name));
            vec![
                nothing(),
                nothing(),
                nothing(),
                nothing(),
                nothing(),
                views.into(),
                sinks.into(),
                "computed".into(),
                "The query makes it.".into(),
                nothing(),
            ]
        };
        names.into_iter().map(row).collect()
    }
}

fn no_schema(name: &str, object: Option<&Arc<CatalogObject>>) -> Error {
    let error = match object {
        Some(_) => Error::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("\"{name}\" reads no stream that its columns could be compared with"),
        ),
        None => Error::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("stream, view, sink or pipeline \"{name}\" does not exist"),
        ),
    };
    error.hint("SHOW STREAMS;")
}

/// A member is the object that was asked of, or a view that a sink delivers.
fn is_joined(member: &CatalogObject, object: &CatalogObject) -> bool {
    let delivers = |sink: &CatalogObject, view: &CatalogObject| match &sink.definition {
        Definition::Sink(sink) => sink.from == view.name,
        _ => false,
    };
    member.name == object.name || delivers(object, member)
}

/// Relations that a view or sink reads.
fn reads(object: &Arc<CatalogObject>) -> Vec<String> {
    match &object.definition {
        Definition::MaterializedView(view) => view.depends_on.clone(),
        Definition::View(view) => view.depends_on.clone(),
        Definition::Sink(sink) => vec![sink.from.clone()],
        _ => Vec::new(),
    }
}

fn of_name<'a>(
    object: &'a str,
    columns: &'a [ColumnDefinition],
    name: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let named = columns.iter().filter(move |column| column.name == name);
    named.map(move |column| format!("{object}.{name} {}", column.type_name()))
}

fn listed(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn compare_stream(
    stream: &CatalogObject,
    sampled: Option<&Sampled>,
    snapshot: &CatalogSnapshot,
) -> Result<Vec<Compared>> {
    let Some(sampled) = sampled.filter(|sampled| !sampled.sample.records.is_empty()) else {
        let why = match sampled {
            Some(_) => "Its source has no records that could be looked at.",
            None => "Its rows do not come as records of text.",
        };
        let uncompared = stream.columns().iter().map(|column| Compared {
            column: Some((column.name.clone(), column.type_name())),
            status: "not compared",
            detail: why.to_owned(),
            ..Compared::default()
        });
        return Ok(uncompared.collect());
    };
    let Sampled { format, sample } = sampled;
    let schema = stream.sent_schema();
    let columns = stream.columns();
    let is_payload = |index: &usize| columns[*index].metadata_from.is_none();
    let payload: Vec<usize> = (0..columns.len()).filter(is_payload).collect();
    let fields = schema.project(&payload)?.fields;
    let mut declared = Vec::new();
    for (place, &index) in payload.iter().enumerate() {
        declared.push(Declared {
            column: &columns[index],
            sent_as: schema.field(index).name(),
            refused: refusals(&format.format, &fields, place, sample)?,
        });
    }
    let mut observed = observe(&format.format, sample);
    if sample.header.is_none() {
        // Fields without names are those of the columns in their order.
        for (field, declared) in observed.iter_mut().zip(&declared) {
            if field.name.parse::<usize>().is_ok() {
                declared.sent_as.clone_into(&mut field.name);
            }
        }
    }
    let is_needed = !snapshot.dependents(&stream.name).is_empty();
    let records = sample.records.len() as u64;
    let mut rows = compare(&stream.name, &declared, &observed, records, is_needed);
    let metadata = columns
        .iter()
        .filter(|column| column.metadata_from.is_some());
    rows.extend(metadata.map(|column| Compared {
        column: Some((column.name.clone(), column.type_name())),
        status: "metadata",
        detail: "The connector fills it.".to_owned(),
        ..Compared::default()
    }));
    Ok(rows)
}

/// The columns of a stream and the fields of its source, each with what to do.
fn compare(
    stream: &str,
    declared: &[Declared<'_>],
    observed: &[Observed],
    records: u64,
    is_needed: bool,
) -> Vec<Compared> {
    let is_of = |field: &Observed, declared: &Declared<'_>| {
        field.name.eq_ignore_ascii_case(declared.sent_as)
    };
    let sent = |declared: &Declared<'_>| observed.iter().find(|field| is_of(field, declared));
    let new: Vec<&Observed> = observed
        .iter()
        .filter(|field| !declared.iter().any(|declared| is_of(field, declared)))
        .collect();
    let unsent = declared.iter().filter(|d| sent(d).is_none()).count();
    // One that goes where one comes was renamed, as far as anyone can tell.
    let renamed = match (&new[..], unsent) {
        ([field], 1) => Some(*field),
        _ => None,
    };
    let alter = |what: String| Some(format!("ALTER STREAM {} {what};", quote_identifier(stream)));
    let mut rows: Vec<Compared> = declared
        .iter()
        .map(|declared| {
            let column = declared.column;
            let name = quote_identifier(&column.name);
            let field = sent(declared);
            let (status, detail, statement) = match (field, &declared.refused) {
                (None, _) => {
                    let (detail, statement) = match renamed {
                        Some(field) => (
                            format!(
                                "No record has it; field \"{}\" may be its new name.",
                                field.name
                            ),
                            alter(format!(
                                "RENAME COLUMN {name} TO {}",
                                quote_identifier(&field.name)
                            )),
                        ),
                        None if !column.nullable => (
                            "No record has it, and it must not be NULL.".to_owned(),
                            alter(format!("ALTER COLUMN {name} DROP NOT NULL")),
                        ),
                        None if is_needed => ("No record has it: it is NULL.".to_owned(), None),
                        None => (
                            "No record has it: it is NULL.".to_owned(),
                            alter(format!("DROP COLUMN {name}")),
                        ),
                    };
                    ("not sent", detail, statement)
                }
                (Some(field), (refused, why)) if *refused > 0 => {
                    let why = why.clone().unwrap_or_default();
                    // The type of a column stays: what holds it is a column of another name.
                    let wanted = field.sql_type.as_ref().unwrap_or(&SqlType::Text);
                    let detail = format!(
                        "{refused} of {records} records cannot be read into it: {why}. A column of type {wanted} would hold them."
                    );
                    ("differs", detail, None)
                }
                (Some(field), _) => {
                    let detail = format!("{} of {records} records have it.", field.seen);
                    ("ok", detail, None)
                }
            };
            Compared {
                field: field.map(|field| (field.name.clone(), field.sql_type.clone())),
                column: Some((column.name.clone(), column.type_name())),
                status,
                detail,
                statement,
            }
        })
        .collect();
    rows.extend(new.into_iter().map(|field| {
        let sql_type = field.sql_type.clone().unwrap_or(SqlType::Text);
        let add = format!("ADD COLUMN {} {sql_type}", quote_identifier(&field.name));
        Compared {
            field: Some((field.name.clone(), field.sql_type.clone())),
            status: "new",
            detail: format!(
                "{} of {records} records have it, and the stream has not.",
                field.seen
            ),
            // The other half of a renaming is told at the column.
            statement: renamed.is_none().then(|| alter(add)).flatten(),
            ..Compared::default()
        }
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, sql_type: SqlType) -> Observed {
        Observed {
            name: name.into(),
            sql_type: Some(sql_type),
            seen: 3,
        }
    }

    fn told(
        columns: &[(&ColumnDefinition, u64)],
        observed: &[Observed],
        is_needed: bool,
    ) -> Vec<(&'static str, Option<String>)> {
        let declared: Vec<Declared<'_>> = columns
            .iter()
            .map(|(column, refused)| Declared {
                column,
                sent_as: &column.name,
                refused: (*refused, Some("no boolean".into())),
            })
            .collect();
        let rows = compare("s", &declared, observed, 3, is_needed);
        rows.into_iter()
            .map(|row| (row.status, row.statement))
            .collect()
    }

    #[test]
    fn each_column_has_the_alter_that_follows_from_what_was_seen() {
        let a = ColumnDefinition::new("a", SqlType::BigInt);
        let b = ColumnDefinition::new("b", SqlType::Boolean);
        let mut required = ColumnDefinition::new("c", SqlType::Text);
        required.nullable = false;
        let of_a = || field("a", SqlType::BigInt);
        let say = |text: &str| Some(text.to_owned());
        // A field more.
        assert_eq!(
            told(&[(&a, 0)], &[of_a(), field("d e", SqlType::Double)], true),
            [
                ("ok", None),
                (
                    "new",
                    say("ALTER STREAM s ADD COLUMN \"d e\" double precision;")
                )
            ]
        );
        // One that goes where one comes.
        assert_eq!(
            told(
                &[(&a, 0), (&b, 0)],
                &[of_a(), field("d", SqlType::Boolean)],
                true
            ),
            [
                ("ok", None),
                ("not sent", say("ALTER STREAM s RENAME COLUMN b TO d;")),
                ("new", None)
            ]
        );
        // One that goes: it is kept where a view may need it.
        assert_eq!(
            told(&[(&a, 0), (&b, 0)], &[of_a()], true)[1],
            ("not sent", None)
        );
        assert_eq!(
            told(&[(&a, 0), (&b, 0)], &[of_a()], false)[1],
            ("not sent", say("ALTER STREAM s DROP COLUMN b;"))
        );
        assert_eq!(
            told(&[(&a, 0), (&required, 0)], &[of_a()], true)[1],
            (
                "not sent",
                say("ALTER STREAM s ALTER COLUMN c DROP NOT NULL;")
            )
        );
        // Another type.
        assert_eq!(
            told(&[(&b, 2)], &[field("b", SqlType::Text)], true),
            [("differs", None)]
        );
    }
}
