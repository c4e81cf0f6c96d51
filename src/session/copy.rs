//! `COPY`: out of a relation, query or subscription; in by way of the rows' own module.

use std::sync::Arc;

use super::{Session, StatementResult, planning, query};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::snapshot::{a_kind, kind_of};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{CopyStatement, CopyTarget, Statement};

impl Session {
    pub(super) async fn copy(&mut self, copy: &CopyStatement) -> Result<StatementResult> {
        if copy.from_stdin {
            let CopyTarget::Relation(name, columns) = &copy.target else {
                return Err(Error::new(
                    sqlstate::SYNTAX_ERROR,
                    "COPY FROM needs a relation, not a query",
                ));
            };
            let object = self.copied_relation(name)?;
            return self.copy_in(copy, &object, columns).await;
        }
        let (schema, rows) = match &copy.target {
            CopyTarget::Relation(name, columns) => {
                let object = self.copied_relation(name)?;
                let query = planning::parse_query(&selection(&object, columns))?;
                self.start_query(&query, &[]).await?
            }
            CopyTarget::Query(statement) => match statement.as_ref() {
                Statement::Query(query) => self.start_query(query, &[]).await?,
                Statement::Subscribe(subscribe) => self.start_subscription(subscribe).await?,
                _ => {
                    return Err(Error::unsupported("COPY takes a query or a SUBSCRIBE"));
                }
            },
        };
        Ok(StatementResult::CopyOut {
            statement: copy.clone(),
            schema,
            stream: query::watched(rows, self.stream_failed.clone()),
        })
    }

    /// The relation that `COPY` names.
    pub(super) fn copied_relation(&self, name: &str) -> Result<Arc<CatalogObject>> {
        let snapshot = self.definitions();
        let object = snapshot.object(name).ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_TABLE,
                format!("relation \"{name}\" does not exist"),
            )
        })?;
        match &object.definition {
            Definition::View(_) => Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("cannot copy from view \"{name}\""),
            )
            .hint(format!("Say COPY (SELECT * FROM {name}) TO STDOUT."))),
            definition @ (Definition::Sink(_) | Definition::Index(_)) => Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{name}\" is {}", a_kind(kind_of(definition))),
            )),
            _ => Ok(object.clone()),
        }
    }
}

fn selection(object: &CatalogObject, columns: &[String]) -> String {
    let quoted = |n: &String| format!("\"{}\"", n.replace('"', "\"\""));
    let list = match columns.is_empty() {
        true => "*".to_owned(),
        false => columns.iter().map(quoted).collect::<Vec<_>>().join(", "),
    };
    let schema = object.schema_name();
    format!("SELECT {list} FROM {schema}.{}", quoted(&object.name))
}
