//! Changes of rows: PostgreSQL's answers statement by statement, transactions, random statements
//! against a plain model, and changes through whole sessions. Here: the tables that they change.

mod model;
mod sessions;
mod statements;
mod transactions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::*;
use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, ExpectationDefinition, OnViolation,
    StreamDefinition, TableDefinition,
};
use crate::catalog::samples;
use crate::error::Error;
use crate::log::DurableLog;
use crate::log::tables::TableStore;
use crate::state::MemoryBudget;
use crate::types::SqlType;

fn column(
    name: &str,
    sql_type: SqlType,
    nullable: bool,
    default: Option<&str>,
) -> ColumnDefinition {
    ColumnDefinition {
        nullable,
        default: default.map(str::to_owned),
        ..ColumnDefinition::new(name, sql_type)
    }
}

fn object(name: &str, oid: u32, definition: Definition) -> Arc<CatalogObject> {
    Arc::new(samples::object(oid, name, definition))
}

fn table(name: &str, oid: u32, key: &[&str], columns: Vec<ColumnDefinition>) -> Arc<CatalogObject> {
    let definition = Definition::Table(TableDefinition {
        columns,
        primary_key: key.iter().map(|k| (*k).to_owned()).collect(),
        options: BTreeMap::new(),
        shape: Default::default(),
        on_commit: Default::default(),
    });
    object(name, oid, definition)
}

const MONEY: SqlType = SqlType::Numeric {
    precision: 10,
    scale: 2,
};

fn definitions() -> Vec<Arc<CatalogObject>> {
    let stream = |connector: Option<&str>| {
        Definition::Stream(StreamDefinition {
            columns: vec![
                column("id", SqlType::BigInt, false, None),
                column("name", SqlType::Text, true, Some("'none'")),
            ],
            watermark: None,
            expectations: vec![ExpectationDefinition {
                name: "positive".to_owned(),
                condition: "id > 0".to_owned(),
                on_violation: OnViolation::FailUpdate,
            }],
            connector: connector.map(str::to_owned),
            options: BTreeMap::new(),
            shape: Default::default(),
        })
    };
    vec![
        table(
            "accounts",
            20001,
            &["id"],
            vec![
                column("id", SqlType::BigInt, false, None),
                column("name", SqlType::Text, true, Some("'nobody'")),
                column("balance", MONEY, false, Some("0")),
                column("opened", SqlType::Date, true, None),
            ],
        ),
        table(
            "pairs",
            20002,
            &["b", "a"],
            vec![
                column("a", SqlType::Integer, true, None),
                column("b", SqlType::Text, true, None),
                column("flag", SqlType::Boolean, true, None),
            ],
        ),
        table(
            "bag",
            20003,
            &[],
            vec![
                column("k", SqlType::Integer, true, None),
                column("v", SqlType::Text, true, None),
            ],
        ),
        object("events", 20004, stream(None)),
        object("fed", 20005, stream(Some("kafka"))),
    ]
}

struct Database {
    store: Arc<TableStore>,
    objects: Vec<Arc<CatalogObject>>,
}

impl Database {
    fn open(dir: &Path) -> Self {
        let log = DurableLog::open(&dir.join("log")).unwrap();
        let objects = definitions();
        let tables: Vec<_> = objects
            .iter()
            .filter(|o| matches!(o.definition, Definition::Table(_)))
            .cloned()
            .collect();
        let budget = MemoryBudget::new(64 << 20);
        let store = TableStore::open(&dir.join("log/tables"), &log, &budget, &tables).unwrap();
        Self { store, objects }
    }

    fn context(&self, transaction: &Transaction) -> SessionContext {
        let config = SessionConfig::new()
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        let context = SessionContext::new_with_config(config);
        for object in &self.objects {
            if let Definition::Table(_) = object.definition {
                let relation = TableRelation::new(object, transaction.view().clone()).unwrap();
                context
                    .register_table(object.name.as_str(), Arc::new(relation))
                    .unwrap();
            }
        }
        context
    }

    /// Runs one statement inside a transaction.
    async fn run_in(
        &self,
        transaction: &mut Transaction,
        sql: &str,
        parameters: &[ScalarValue],
    ) -> Result<DmlResult> {
        let parameters: Vec<Parameter> =
            parameters.iter().cloned().map(Parameter::untyped).collect();
        transaction.begin_statement()?;
        let context = self.context(transaction);
        let state = context.state();
        let catalog = |name: &str| self.objects.iter().find(|o| o.name == name).cloned();
        let dml = DmlContext {
            state: &state,
            planner: &PlainPlanner,
            catalog: &catalog,
            transaction,
            parameters: &parameters,
        };
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql)
            .unwrap()
            .remove(0);
        match &statement {
            ast::Statement::Insert(statement) => insert(dml, statement).await,
            ast::Statement::Update(_) => update(dml, &statement).await,
            ast::Statement::Delete(statement) => delete(dml, statement).await,
            ast::Statement::Truncate(truncated) => {
                let names: Vec<String> = truncated
                    .table_names
                    .iter()
                    .map(|t| t.name.to_string())
                    .collect();
                truncate(dml, &names).await
            }
            ast::Statement::Query(query) => {
                let planning = dml.planning();
                let stream = planning.start(query.as_ref().clone()).await?;
                let schema = stream.schema();
                let rows = datafusion::physical_plan::common::collect(stream).await?;
                Ok(DmlResult {
                    rows: 0,
                    returning: Some((schema, rows)),
                })
            }
            other => panic!("{other} is not for this test"),
        }
    }

    async fn run(&self, sql: &str) -> Result<DmlResult> {
        self.run_with(sql, &[]).await
    }

    async fn run_with(&self, sql: &str, parameters: &[ScalarValue]) -> Result<DmlResult> {
        let mut transaction = Transaction::begin(&self.store)?;
        let result = self.run_in(&mut transaction, sql, parameters).await?;
        transaction.commit().await?;
        Ok(result)
    }

    async fn count(&self, sql: &str) -> u64 {
        self.run(sql).await.unwrap().rows
    }

    async fn fails(&self, sql: &str) -> Error {
        self.run(sql).await.unwrap_err()
    }

    async fn rows(&self, sql: &str) -> Vec<String> {
        texts(self.run(sql).await.unwrap())
    }
}

fn texts(result: DmlResult) -> Vec<String> {
    let (_, batches) = result.returning.unwrap();
    batches.iter().flat_map(batch_texts).collect()
}

fn batch_texts(batch: &RecordBatch) -> Vec<String> {
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|c| cast(c, &DataType::Utf8).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            let values: Vec<&str> = columns
                .iter()
                .map(|c| match c.is_null(row) {
                    true => "∅",
                    false => c.as_string::<i32>().value(row),
                })
                .collect();
            values.join("|")
        })
        .collect()
}
