//! `CREATE AGGREGATE` and `DROP AGGREGATE`.
//!
//! An aggregate shares its name space with functions, and the catalog keeps it as one.

use std::sync::Arc;

use super::super::rowset::done;
use super::super::{Session, StatementResult, aggregates};
use crate::catalog::changes::{CatalogChange, duplicate_function};
use crate::catalog::function::{
    AggregateBody, FunctionBody, FunctionDefinition, FunctionResult, FunctionVolatility, bare_type,
    signature,
};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{CreateAggregate, FunctionReference};
use crate::types::SqlType;

impl Session {
    pub(in crate::session) async fn create_aggregate(
        &mut self,
        create: &CreateAggregate,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE AGGREGATE";
        self.refuse_name_of_system(&create.name)?;
        let types: Vec<SqlType> = create
            .parameters
            .iter()
            .map(|p| p.sql_type.clone())
            .collect();
        let signature = signature(&create.name, &types);
        let existing = self.definitions().function(&signature).cloned();
        match &existing {
            Some(old) if !old.is_aggregate() => {
                return Err(Error::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("cannot change routine kind of function {signature}"),
                )
                .hint(format!("Use DROP FUNCTION {signature} first.")));
            }
            Some(_) if !create.or_replace => return Err(duplicate_function(&signature)),
            _ => {}
        }
        let state = self.planning_state();
        let parts = aggregates::parts(&state, &create.body, &types)?;
        check_first_value(&create.body, &types, parts.transition.is_strict)?;
        let result = match &parts.last {
            Some(last) => last.result.clone(),
            None => FunctionResult::Value(create.body.state.clone()),
        };
        if let Some(old) = existing.as_ref().filter(|old| old.result != result) {
            return Err(Error::new(
                sqlstate::INVALID_FUNCTION_DEFINITION,
                "cannot change return type of existing function",
            )
            .hint(format!("Use DROP AGGREGATE {} first.", old.signature())));
        }
        let definition = Arc::new(FunctionDefinition {
            name: create.name.clone(),
            oid: match &existing {
                Some(old) => old.oid,
                None => self.parts.catalog.allocate_oid(),
            },
            created_at_us: self.parts.clock.now_us(),
            parameters: create.parameters.clone(),
            result,
            volatility: FunctionVolatility::Immutable,
            is_strict: false,
            body: FunctionBody::Aggregate(create.body.clone()),
        });
        aggregates::planned(&state, &definition, &[]).await?;
        self.stage(CatalogChange::PutFunction(Arc::clone(&definition)), None)?;
        if existing.is_some() {
            self.tell_of_replaced(&definition);
        }
        Ok(done(TAG))
    }

    pub(in crate::session) fn drop_aggregates(
        &mut self,
        wanted: &[FunctionReference],
        if_exists: bool,
        cascade: bool,
    ) -> Result<StatementResult> {
        for reference in wanted {
            let found = self.function_named(reference);
            let aggregate = match found {
                Ok(aggregate) => aggregate,
                Err(error) if error.sqlstate() == sqlstate::UNDEFINED_FUNCTION => {
                    let types = reference.types.iter().flatten();
                    let signature = signature(&reference.name, types);
                    if !if_exists {
                        return Err(Error::new(
                            sqlstate::UNDEFINED_FUNCTION,
                            format!("aggregate {signature} does not exist"),
                        ));
                    }
                    self.notice(format!("aggregate {signature} does not exist, skipping"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !aggregate.is_aggregate() {
                return Err(Error::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("function {} is not an aggregate", aggregate.signature()),
                )
                .hint(format!("Say DROP FUNCTION {}.", aggregate.signature())));
            }
            self.drop_function(&aggregate, cascade)?;
        }
        Ok(done("DROP AGGREGATE"))
    }
}

/// Without a first state, a strict transition takes the first value for it.
fn check_first_value(body: &AggregateBody, arguments: &[SqlType], is_strict: bool) -> Result<()> {
    let is_state = |t: &SqlType| bare_type(t) == bare_type(&body.state);
    if !is_strict || body.initial.is_some() || arguments.first().is_some_and(is_state) {
        return Ok(());
    }
    Err(Error::new(
        sqlstate::INVALID_FUNCTION_DEFINITION,
        "must not omit initial value when transition function is strict and transition type is not compatible with input type",
    )
    .hint("Give the state of no rows: INITCOND = '…'."))
}
