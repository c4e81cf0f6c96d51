//! What Describe tells before a statement runs: its parameters and its columns.

use datafusion::arrow::datatypes::SchemaRef;

use super::dml::has_changes;
use super::parameters::describe_query;
use super::{Session, StatementDescription, explain, planning, recovery, rowset, show, subscribe};
use crate::error::Result;
use crate::sql::statement::{CopyTarget, Statement};
use crate::types::SqlType;

impl Session {
    pub(super) async fn describe_statement(
        &mut self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> Result<StatementDescription> {
        match statement {
            Statement::Query(query) => {
                let mut types = declared.to_vec();
                let (query, state) = match has_changes(query) {
                    false => (query.as_ref().clone(), self.planning_state()),
                    true => {
                        let results = self.describe_changes_of_with(query, &mut types).await?;
                        (results.query, results.state)
                    }
                };
                let statement = planning::query_statement(&query);
                let (parameters, columns) = describe_query(&state, statement, &types).await?;
                Ok(StatementDescription {
                    parameters,
                    columns: Some(columns),
                })
            }
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                self.describe_dml(statement, declared).await
            }
            Statement::DeclareCursor { query, .. } => {
                let described = Box::pin(self.describe_statement(query, declared)).await?;
                Ok(StatementDescription {
                    columns: None,
                    ..described
                })
            }
            Statement::Execute { name, .. } => {
                let prepared = self.prepared_statement(name)?;
                let described = Box::pin(self.describe_statement(&prepared, &[])).await?;
                Ok(without_parameters(described.columns))
            }
            _ => {
                let columns = self.command_columns(statement)?;
                let mut described = without_parameters(columns);
                // What a client declares and the statement does not use is taken as declared.
                described.parameters = declared.iter().flatten().cloned().collect();
                Ok(described)
            }
        }
    }

    fn command_columns(&mut self, statement: &Statement) -> Result<Option<SchemaRef>> {
        Ok(match statement {
            Statement::Subscribe(subscribe) => {
                let snapshot = self.definitions();
                let relation = snapshot.object(&subscribe.name).ok_or_else(|| {
                    crate::error::Error::new(
                        crate::error::sqlstate::UNDEFINED_TABLE,
                        format!("relation \"{}\" does not exist", subscribe.name),
                    )
                })?;
                Some(subscribe::subscription_schema(&relation.schema()))
            }
            Statement::Recovery(statement) => Some(recovery::schema_of(statement)),
            Statement::Explain(explained) => Some(explain::columns(explained)?),
            Statement::ExplainReplace(_) => Some(rowset::text_schema(&show::REPLACE_COLUMNS)),
            Statement::ExplainMaterializedView { analyze, .. } => {
                Some(rowset::text_schema(&show::explain_columns(*analyze)))
            }
            Statement::ShowParameter(name) if name.eq_ignore_ascii_case("all") => {
                Some(rowset::text_schema(&["name", "setting", "description"]))
            }
            Statement::ShowParameter(name) => {
                Some(rowset::text_schema(&[&self.settings.spelling(name)]))
            }
            Statement::ShowObjects(kind) => Some(rowset::text_schema(show::object_columns(*kind))),
            Statement::ShowFunctions => Some(rowset::text_schema(&show::FUNCTION_COLUMNS)),
            Statement::ShowCreate(..) | Statement::ShowCreateFunction(_) => {
                Some(rowset::text_schema(&show::CREATE_COLUMNS))
            }
            Statement::ShowOptions(_) => Some(rowset::text_schema(&show::OPTION_COLUMNS)),
            Statement::Describe(_) => Some(rowset::text_schema(&show::DESCRIBE_COLUMNS)),
            Statement::Fetch { name, .. } => Some(self.cursor(name)?.schema()),
            Statement::Copy(copy) => {
                // COPY data is not rows of a portal.
                if let CopyTarget::Relation(name, _) = &copy.target {
                    self.copied_relation(name)?;
                }
                None
            }
            _ => None,
        })
    }
}

fn without_parameters(columns: Option<SchemaRef>) -> StatementDescription {
    StatementDescription {
        parameters: Vec::new(),
        columns,
    }
}
