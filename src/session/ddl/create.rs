//! `CREATE STREAM`, `CREATE TABLE`, `CREATE SINK`, `CREATE SECRET`.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast;

use super::super::rowset::done;
use super::super::temporary::refuse_temporary;
use super::super::work::Action;
use super::super::{Session, StatementResult, planning, versions};
use super::merging::own_name;
use super::{Existing, new_pipeline};
use crate::catalog::changes::{CatalogChange, duplicate_secret};
use crate::catalog::definition::{
    ColumnDefinition, Definition, SinkDefinition, StreamDefinition, TableDefinition,
};
use crate::catalog::snapshot::{a_kind, kind_of, pipeline_of};
use crate::catalog::temporary;
use crate::connectors::evolution::{SchemaEvolution, keeps_rescued, rescued_column};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{CreateSink, CreateStream, CreateTable};

impl Session {
    pub(in crate::session) fn create_stream(
        &mut self,
        create: &CreateStream,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE STREAM";
        let mut stream = StreamDefinition {
            columns: create.columns.clone(),
            watermark: create.watermark.clone(),
            expectations: create.expectations.clone(),
            connector: create.connector.clone(),
            options: create.options.clone(),
            shape: Default::default(),
        };
        if wants_rescued_column(&stream) {
            stream.columns.push(rescued_column());
        }
        match self.existing(&create.name, create.if_not_exists, create.or_replace)? {
            Existing::Skip => return Ok(done(TAG)),
            Existing::Replace(object) if is_same_stream(&object.definition, &stream) => {
                self.notice(format!("stream \"{}\" is unchanged", create.name));
                return Ok(done(TAG));
            }
            Existing::Replace(_) => {
                return Err(Error::unsupported(format!(
                    "cannot replace stream \"{}\" by another definition",
                    create.name
                ))
                .hint(format!(
                    "Say DROP STREAM {} CASCADE, then create it and its views again.",
                    create.name
                )));
            }
            Existing::None => {}
        }
        check_columns(&stream.columns)?;
        self.check_stream_expressions(&stream)?;
        self.check_secrets(&stream.options)?;
        let object = self.new_object(&create.name, Definition::Stream(stream));
        self.parts.engine().check_source(&object)?;
        self.stage(
            CatalogChange::Create(object.clone()),
            Some(Action::Create(object)),
        )?;
        Ok(done(TAG))
    }

    /// Expectations and the watermark name columns of the stream, and have the types they need.
    pub(super) fn check_stream_expressions(&self, stream: &StreamDefinition) -> Result<()> {
        use datafusion::arrow::datatypes::DataType;
        use datafusion::common::DFSchema;
        use datafusion::logical_expr::ExprSchemable;

        if let Some(watermark) = &stream.watermark {
            let column = stream
                .columns
                .iter()
                .find(|c| c.name == watermark.column)
                .ok_or_else(|| {
                    Error::new(
                        sqlstate::UNDEFINED_COLUMN,
                        format!(
                            "column \"{}\" named in the watermark does not exist",
                            watermark.column
                        ),
                    )
                })?;
            use crate::types::SqlType as T;
            if !matches!(
                column.sql_type,
                T::Timestamp | T::TimestampTz | T::BigInt | T::Integer
            ) {
                return Err(Error::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!("a watermark column cannot be of type {}", column.sql_type),
                )
                .hint("Declare it TIMESTAMPTZ or TIMESTAMP."));
            }
        }
        let schema = crate::catalog::definition::columns_schema(&stream.columns);
        let schema = DFSchema::try_from(schema)?;
        let state = self.planning_state();
        for expectation in &stream.expectations {
            let at = |e: Error| e.context(format!("constraint \"{}\"", expectation.name));
            let expr = state
                .create_logical_expr(&expectation.condition, &schema)
                .map_err(|e| at(e.into()))?;
            let data_type = expr.get_type(&schema).map_err(|e| at(e.into()))?;
            if !matches!(data_type, DataType::Boolean | DataType::Null) {
                return Err(Error::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "constraint \"{}\": the condition must be of type boolean",
                        expectation.name
                    ),
                ));
            }
        }
        Ok(())
    }

    pub(in crate::session) async fn create_table(
        &mut self,
        create: &CreateTable,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE TABLE";
        let existing = match create.temporary {
            Some(_) => self.existing_temporary(&create.name, create.if_not_exists, false)?,
            None => self.existing(&create.name, create.if_not_exists, false)?,
        };
        if let Existing::Skip = existing {
            return Ok(done(TAG));
        }
        let mut columns = create.columns.clone();
        if let Some(query) = &create.query {
            let state = self.planning_state();
            let plan = planning::plan_statement(&state, planning::query_statement(query)).await?;
            columns = planning::columns_of(&plan, &create.column_names)?;
            columns.iter_mut().for_each(|c| c.nullable = true);
        }
        check_columns(&columns)?;
        check_primary_key(&columns, &create.primary_key)?;
        self.check_secrets(&create.options)?;
        for column in &mut columns {
            column.nullable &= !create.primary_key.contains(&column.name);
        }
        let definition = Definition::Table(TableDefinition {
            columns,
            primary_key: create.primary_key.clone(),
            options: create.options.clone(),
            shape: Default::default(),
            on_commit: create.temporary.unwrap_or_default(),
        });
        let mut object = self.new_object(&create.name, definition);
        if create.temporary.is_some() {
            let table = Arc::make_mut(&mut object);
            table.oid = temporary::allocate_oid();
            table.kept_as = None;
        }
        self.stage(
            CatalogChange::Create(object.clone()),
            Some(Action::Create(object.clone())),
        )?;
        let query = match &create.query {
            None => return Ok(done(TAG)),
            Some(_) if !create.with_data => return Ok(done("CREATE TABLE AS")),
            Some(query) => query,
        };
        // The query means what its names meant before.
        self.scope.leave_out(object.oid);
        let rows = self.insert_query_rows(&object, query).await?;
        Ok(done(format!("SELECT {rows}")))
    }

    /// `CREATE TABLE … AS`: the query's rows, as `INSERT INTO table query` puts them in.
    pub(super) async fn insert_query_rows(
        &mut self,
        object: &crate::catalog::definition::CatalogObject,
        query: &ast::Query,
    ) -> Result<u64> {
        let text = format!(
            "INSERT INTO {}.{} {query}",
            object.schema_name(),
            ast::Ident::with_quote('"', &object.name)
        );
        let (insert, _) = crate::sql::parse(&text)?
            .pop()
            .ok_or_else(|| Error::internal("an INSERT that is none"))?;
        match self.change(&insert, &[]).await? {
            StatementResult::Command { tag } => tag
                .rsplit(' ')
                .next()
                .and_then(|count| count.parse().ok())
                .ok_or_else(|| Error::internal("an INSERT that counts no rows")),
            _ => Err(Error::internal("an INSERT that gives rows")),
        }
    }

    pub(in crate::session) fn create_sink(
        &mut self,
        create: &CreateSink,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE SINK";
        if let Existing::Skip = self.existing(&create.name, create.if_not_exists, false)? {
            return Ok(done(TAG));
        }
        self.check_secrets(&create.options)?;
        let snapshot = self.definitions();
        let from = snapshot.object(&create.from).ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_TABLE,
                format!("relation \"{}\" does not exist", create.from),
            )
        })?;
        refuse_temporary(from, "deliver the changes of")?;
        let pipeline = match &from.definition {
            Definition::MaterializedView(_) => pipeline_of(&from.definition)
                .ok_or_else(|| Error::internal("a view without a pipeline"))?
                .to_owned(),
            Definition::Stream(_) | Definition::Table(_) => own_name(&snapshot, &create.name),
            Definition::View(_) => {
                return Err(Error::unsupported(format!(
                    "cannot deliver the changes of view \"{}\"",
                    create.from
                ))
                .hint("Create a materialized view of the same query, and deliver that."));
            }
            definition @ (Definition::Sink(_) | Definition::Index(_)) => {
                return Err(Error::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("\"{}\" is {}", create.from, a_kind(kind_of(definition))),
                ));
            }
        };
        if snapshot.pipeline(&pipeline).is_none() {
            let definition = new_pipeline(super::pipeline_part(&create.options));
            let change = CatalogChange::PutPipeline(pipeline.clone(), definition);
            self.stage(change, None)?;
        }
        let object = self.new_object(
            &create.name,
            Definition::Sink(SinkDefinition {
                from: create.from.clone(),
                pipeline,
                connector: create.connector.clone(),
                options: create.options.clone(),
                versions: versions::present(&snapshot, [&create.from]),
            }),
        );
        self.stage(
            CatalogChange::Create(object.clone()),
            Some(Action::Create(object)),
        )?;
        Ok(done(TAG))
    }

    pub(in crate::session) fn create_secret(
        &mut self,
        name: &str,
        value: &str,
        if_not_exists: bool,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE SECRET";
        if self.definitions().has_secret(name) {
            if if_not_exists {
                self.notice(format!("secret \"{name}\" already exists, skipping"));
                return Ok(done(TAG));
            }
            return Err(duplicate_secret(name));
        }
        let record = self.sealed(name, value)?;
        self.stage(CatalogChange::CreateSecret(name.to_owned(), record), None)?;
        Ok(done(TAG))
    }

    pub(in crate::session) fn alter_secret(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<StatementResult> {
        use crate::catalog::snapshot::undefined;
        use crate::sql::statement::ObjectKind;

        if !self.definitions().has_secret(name) {
            return Err(undefined(ObjectKind::Secret, name));
        }
        let record = self.sealed(name, value)?;
        self.stage(CatalogChange::ReplaceSecret(name.to_owned(), record), None)?;
        Ok(done("ALTER SECRET"))
    }

    fn sealed(&self, name: &str, value: &str) -> Result<crate::catalog::snapshot::SecretRecord> {
        let mut record = self.parts.catalog.seal_secret(name, value)?;
        record.changed_at_us = self.parts.clock.now_us();
        Ok(record)
    }
}

/// What `ALTER` made of the old one's columns does not count.
fn is_same_stream(old: &Definition, new: &StreamDefinition) -> bool {
    let Definition::Stream(old) = old else {
        return false;
    };
    let mut new = new.clone();
    new.shape = old.shape.clone();
    *old == new
}

pub(super) fn check_columns(columns: &[ColumnDefinition]) -> Result<()> {
    if columns.is_empty() {
        return Err(Error::new(
            sqlstate::INVALID_OBJECT_DEFINITION,
            "a relation needs at least one column",
        ));
    }
    let mut seen = BTreeSet::new();
    for column in columns {
        if !seen.insert(&column.name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", column.name),
            ));
        }
    }
    Ok(())
}

/// What a stream rescues must have a column.
pub(super) fn wants_rescued_column(stream: &StreamDefinition) -> bool {
    let rescues = SchemaEvolution::of(&stream.options) == SchemaEvolution::Rescue;
    rescues && !stream.columns.iter().any(keeps_rescued)
}

pub(super) fn check_primary_key(columns: &[ColumnDefinition], key: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in key {
        if !columns.iter().any(|c| &c.name == name) {
            return Err(Error::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("column \"{name}\" named in key does not exist"),
            ));
        }
        if !seen.insert(name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{name}\" appears twice in primary key constraint"),
            ));
        }
    }
    Ok(())
}
