//! Definitions as SQL text, for `SHOW CREATE` and `pg_get_viewdef`. What is printed parses to the
//! same definition again; secrets appear by name only.

use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, EmitMode, ExpectationDefinition, IndexColumn,
    IndexDefinition, OnViolation, OptionValue, Options, SinkDefinition, StreamDefinition,
    TableDefinition, WatermarkDefinition,
};
use crate::catalog::temporary::temporary_name;
use crate::sql::interval;
use crate::sql::names::{quote_identifier, quote_literal};
use crate::sql::renamed::with_present_names;
use crate::types::SqlType;

/// The `CREATE` statement of an object, with a semicolon at its end.
pub fn create_statement(object: &CatalogObject) -> String {
    let name = quote_identifier(&object.name);
    match &object.definition {
        Definition::Stream(d) => stream(&name, d),
        Definition::Table(d) => table(&name, d),
        Definition::MaterializedView(d) => {
            let mut options = d.options.clone();
            if d.pipeline != object.name {
                options.insert("pipeline".into(), OptionValue::Text(d.pipeline.clone()));
            }
            let emit = match d.emit {
                EmitMode::OnUpdate => "",
                EmitMode::OnWindowClose => "\nEMIT ON WINDOW CLOSE",
            };
            format!(
                "CREATE MATERIALIZED VIEW {name}{} AS\n{}{emit};",
                with_clause(None, &options),
                written(object, &d.query)
            )
        }
        Definition::View(d) => {
            let temporary = if object.is_temporary() {
                "TEMPORARY "
            } else {
                ""
            };
            format!(
                "CREATE {temporary}VIEW {name} AS\n{};",
                written(object, &d.query)
            )
        }
        Definition::Sink(d) => sink(&name, d),
        Definition::Index(d) => format!("{};", index(&name, "", d, quote_identifier)),
    }
}

/// The query of a view, under the names that its relations have now; `None` for other objects.
pub fn present_query(object: &CatalogObject) -> Option<String> {
    match &object.definition {
        Definition::MaterializedView(d) => Some(written(object, &d.query)),
        Definition::View(d) => Some(written(object, &d.query)),
        _ => None,
    }
}

/// A query with the names that its relations have now.
fn written(object: &CatalogObject, query: &str) -> String {
    let mut renamed = object.renamed.clone();
    // Temporary tables have no schema in front where they are seen.
    renamed.retain(|written, name| {
        if let Some(bare) = temporary_name(name) {
            *name = bare.to_owned();
        }
        written != name
    });
    with_present_names(query, &renamed).trim().to_owned()
}

fn stream(name: &str, definition: &StreamDefinition) -> String {
    let mut lines: Vec<String> = definition.columns.iter().map(column).collect();
    if let Some(watermark) = &definition.watermark {
        lines.push(watermark_clause(watermark, &definition.columns));
    }
    lines.extend(definition.expectations.iter().map(expectation));
    format!(
        "CREATE STREAM {name} (\n  {}\n){};",
        lines.join(",\n  "),
        with_clause(definition.connector.as_deref(), &definition.options)
    )
}

fn table(name: &str, definition: &TableDefinition) -> String {
    let mut lines: Vec<String> = definition.columns.iter().map(column).collect();
    if !definition.primary_key.is_empty() {
        let key: Vec<String> = definition
            .primary_key
            .iter()
            .map(|c| quote_identifier(c))
            .collect();
        lines.push(format!("PRIMARY KEY ({})", key.join(", ")));
    }
    format!(
        "CREATE TABLE {name} (\n  {}\n){};",
        lines.join(",\n  "),
        with_clause(None, &definition.options)
    )
}

fn sink(name: &str, definition: &SinkDefinition) -> String {
    format!(
        "CREATE SINK {name} FROM {}{};",
        quote_identifier(&definition.from),
        with_clause(Some(&definition.connector), &definition.options)
    )
}

/// The statement that creates an index, without a semicolon; `schema` stands before the view's name.
pub(crate) fn index(
    name: &str,
    schema: &str,
    definition: &IndexDefinition,
    quoted: impl Fn(&str) -> String,
) -> String {
    let columns = definition.columns.iter();
    let columns: Vec<_> = columns.map(|c| index_column(c, &quoted)).collect();
    let included: Vec<_> = definition.include.iter().map(|c| quoted(c)).collect();
    let included = match included.is_empty() {
        true => String::new(),
        false => format!(" INCLUDE ({})", included.join(", ")),
    };
    format!(
        "CREATE INDEX {name} ON {schema}{} USING btree ({}){included}",
        quoted(&definition.view),
        columns.join(", ")
    )
}

/// A column of an index as PostgreSQL writes it: what goes without saying is not said.
pub(crate) fn index_column(column: &IndexColumn, quoted: impl Fn(&str) -> String) -> String {
    let order = match (column.descending, column.nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    };
    format!("{}{order}", quoted(&column.name))
}

fn column(column: &ColumnDefinition) -> String {
    let mut text = format!(
        "{} {}",
        quote_identifier(&column.name),
        match column.text_type {
            Some(text_type) => text_type.to_string(),
            None => type_text(&column.sql_type),
        }
    );
    if !column.nullable {
        text.push_str(" NOT NULL");
    }
    if let Some(default) = &column.default {
        text.push_str(" DEFAULT ");
        text.push_str(default);
    }
    if let Some(from) = &column.metadata_from {
        text.push_str(" METADATA FROM ");
        text.push_str(&quote_literal(from));
    }
    text
}

/// A type as it is read again; only the names of a struct's fields need quotes.
fn type_text(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Array(item) => format!("{}[]", type_text(item)),
        SqlType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, t)| format!("{} {}", quote_identifier(name), type_text(t)))
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        other => other.to_string(),
    }
}

fn watermark_clause(watermark: &WatermarkDefinition, columns: &[ColumnDefinition]) -> String {
    let name = quote_identifier(&watermark.column);
    let is_integer = columns.iter().any(|c| {
        c.name == watermark.column
            && matches!(
                c.sql_type,
                SqlType::SmallInt | SqlType::Integer | SqlType::BigInt
            )
    });
    if watermark.delay_us == 0 {
        format!("WATERMARK FOR {name} AS {name}")
    } else if is_integer {
        format!("WATERMARK FOR {name} AS {name} - {}", watermark.delay_us)
    } else {
        format!(
            "WATERMARK FOR {name} AS {name} - INTERVAL '{}'",
            interval::format_us(watermark.delay_us)
        )
    }
}

fn expectation(expectation: &ExpectationDefinition) -> String {
    let action = match expectation.on_violation {
        OnViolation::Keep => "",
        OnViolation::DropRow => " ON VIOLATION DROP ROW",
        OnViolation::FailUpdate => " ON VIOLATION FAIL UPDATE",
    };
    format!(
        "CONSTRAINT {} EXPECT ({}){action}",
        quote_identifier(&expectation.name),
        expectation.condition
    )
}

/// ` WITH (…)`, or nothing.
fn with_clause(connector: Option<&str>, options: &Options) -> String {
    let connector = connector.map(|c| format!("connector = {}", quote_literal(c)));
    let options = options.iter().map(|(name, value)| {
        let value = match value {
            OptionValue::Text(text) => quote_literal(text),
            OptionValue::Secret(name) => format!("SECRET {}", quote_identifier(name)),
        };
        format!("{} = {value}", quote_identifier(name))
    });
    let all: Vec<String> = connector.into_iter().chain(options).collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" WITH ({})", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;
    use crate::sql::statement::Statement;

    /// Prints a parsed CREATE and reads it again.
    fn round_trip(sql: &str) {
        let object = |sql: &str| {
            let (statement, _) = parse(sql).unwrap().remove(0);
            let (name, definition) = match statement {
                Statement::CreateStream(s) => (
                    s.name,
                    Definition::Stream(StreamDefinition {
                        columns: s.columns,
                        watermark: s.watermark,
                        expectations: s.expectations,
                        connector: s.connector,
                        options: s.options,
                        shape: Default::default(),
                    }),
                ),
                Statement::CreateTable(t) => (
                    t.name,
                    Definition::Table(TableDefinition {
                        columns: t.columns,
                        primary_key: t.primary_key,
                        options: t.options,
                        shape: Default::default(),
                        on_commit: Default::default(),
                    }),
                ),
                Statement::CreateSink(k) => (
                    k.name,
                    Definition::Sink(SinkDefinition {
                        from: k.from,
                        pipeline: "p".into(),
                        connector: k.connector,
                        options: k.options,
                        versions: Default::default(),
                    }),
                ),
                other => panic!("{other:?}"),
            };
            CatalogObject {
                name,
                oid: 1,
                created_at_us: 0,
                comment: None,
                kept_as: None,
                renamed: Default::default(),
                definition,
            }
        };
        let first = object(sql);
        let printed = create_statement(&first);
        assert_eq!(object(&printed), first, "{printed}");
    }

    #[test]
    fn printed_definitions_parse_again() {
        round_trip(
            "CREATE STREAM \"Odd name\" (\"user\" BIGINT NOT NULL, tags text[], n NUMERIC(18,2) DEFAULT 0,
             s STRUCT<a int, \"B c\" STRUCT<x text[]>>, ts TIMESTAMPTZ, o BIGINT METADATA FROM 'offset',
             WATERMARK FOR ts AS ts - INTERVAL '90 minutes',
             CONSTRAINT ok EXPECT (\"user\" > 0 AND n <> 'it''s'::numeric) ON VIOLATION DROP ROW)
             WITH (connector = 'kafka', topic = 'a''b', password = SECRET kp, \"kafka.Max.x\" = 1)",
        );
        round_trip("CREATE STREAM n (t BIGINT, WATERMARK FOR t AS t - 100)");
        round_trip("CREATE TABLE t (a INT, b VARCHAR(3) DEFAULT 'x\\y', PRIMARY KEY (b, a))");
        round_trip(
            "CREATE SINK k FROM v WITH (connector = 'files', path = '/out', mode = 'append')",
        );
    }
}
