//! `CREATE FUNCTION` and `DROP FUNCTION`.
//!
//! A function is planned when it is created, so that one that cannot be called is refused. Views
//! hold on to the functions that they call; a body does not, it is text until something calls it.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::execution::FunctionRegistry;

use super::super::rowset::done;
use super::super::{Session, StatementResult, functions, planning};
use super::listed;
use crate::catalog::changes::{CatalogChange, duplicate_function};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::function::{FunctionBody, FunctionDefinition, signature};
use crate::catalog::snapshot::{kind_name, kind_of};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{CreateFunction, FunctionReference, Statement};

impl Session {
    pub(in crate::session) async fn create_function(
        &mut self,
        create: &CreateFunction,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE FUNCTION";
        self.refuse_name_of_system(&create.name)?;
        check_body(&create.body)?;
        let types = create.parameters.iter().map(|p| &p.sql_type);
        let signature = signature(&create.name, types);
        let existing = self.definitions().function(&signature).cloned();
        if existing.is_some() && !create.or_replace {
            return Err(duplicate_function(&signature));
        }
        if existing.as_ref().is_some_and(|old| old.is_aggregate()) {
            return Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("cannot change routine kind of aggregate {signature}"),
            )
            .hint(format!("Use DROP AGGREGATE {signature} first.")));
        }
        let function = Arc::new(FunctionDefinition {
            name: create.name.clone(),
            oid: match &existing {
                Some(old) => old.oid,
                None => self.parts.catalog.allocate_oid(),
            },
            created_at_us: self.parts.clock.now_us(),
            parameters: create.parameters.clone(),
            result: create.result.clone(),
            volatility: create.volatility,
            is_strict: create.is_strict,
            body: create.body.clone(),
        });
        if let Some(old) = &existing {
            check_replaceable(old, &function)?;
        }
        // Staged first, so that a body that calls its own function is told from one that calls none.
        self.stage(CatalogChange::PutFunction(Arc::clone(&function)), None)?;
        self.check_defaults(&function).await?;
        functions::check(&self.planning_state(), &function).await?;
        if existing.is_some() {
            self.tell_of_replaced(&function);
        }
        Ok(done(TAG))
    }

    /// A function of ours goes before one of the user's, which then could never be called.
    pub(super) fn refuse_name_of_system(&self, name: &str) -> Result<()> {
        let state = self.planning_state();
        let is_known = state.udfs().contains(name)
            || state.udafs().contains(name)
            || state.udwfs().contains(name)
            || crate::sql::rewrite::is_function(name);
        if !is_known {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::DUPLICATE_FUNCTION,
            format!("function \"{name}\" already exists"),
        )
        .detail("The name belongs to a function of the system.")
        .hint("Choose another name."))
    }

    /// A default is an expression over nothing, of the parameter's type.
    async fn check_defaults(&self, function: &FunctionDefinition) -> Result<()> {
        let state = self.planning_state();
        for parameter in &function.parameters {
            let Some(default) = &parameter.default else {
                continue;
            };
            let text = format!("SELECT CAST(({default}) AS {})", parameter.sql_type);
            let query = planning::parse_query(&text)?;
            let statement = planning::query_statement(&query);
            planning::plan_statement(&state, statement).await?;
        }
        Ok(())
    }

    /// Running views were planned with the old body, and go on with it.
    pub(super) fn tell_of_replaced(&mut self, function: &FunctionDefinition) {
        let users = self.definitions().function_users(function.oid);
        let running: Vec<_> = users
            .iter()
            .filter(|o| matches!(o.definition, Definition::MaterializedView(_)))
            .map(|o| o.name.as_str())
            .collect();
        if !running.is_empty() {
            self.notice(format!(
                "these materialized views go on with the function as it was: {}",
                listed(running)
            ));
        }
    }

    /// The function that a statement names.
    pub(in crate::session) fn function_named(
        &self,
        wanted: &FunctionReference,
    ) -> Result<Arc<FunctionDefinition>> {
        let snapshot = self.definitions();
        let name = &wanted.name;
        if let Some(types) = &wanted.types {
            let signature = signature(name, types);
            let found = snapshot.function(&signature).cloned();
            return found.ok_or_else(|| undefined(&format!("function {signature}")));
        }
        let mut found = snapshot.functions().filter(|f| f.name == *name);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(Arc::clone(only)),
            (None, _) => Err(undefined(&format!(
                "could not find a function named \"{name}\""
            ))),
            (Some(_), Some(_)) => Err(Error::new(
                sqlstate::AMBIGUOUS_FUNCTION,
                format!("function name \"{name}\" is not unique"),
            )
            .hint("Specify the argument list to select the function unambiguously.")),
        }
    }

    pub(in crate::session) fn drop_functions(
        &mut self,
        wanted: &[FunctionReference],
        if_exists: bool,
        cascade: bool,
    ) -> Result<StatementResult> {
        for reference in wanted {
            let function = match self.function_named(reference) {
                Ok(function) => function,
                Err(error) if if_exists && error.sqlstate() == sqlstate::UNDEFINED_FUNCTION => {
                    let types = reference.types.iter().flatten();
                    let signature = signature(&reference.name, types);
                    self.notice(format!("function {signature} does not exist, skipping"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if function.is_aggregate() {
                let signature = function.signature();
                return Err(Error::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("function {signature} is an aggregate function"),
                )
                .hint(format!("Use DROP AGGREGATE {signature} to drop it.")));
            }
            self.drop_function(&function, cascade)?;
        }
        Ok(done("DROP FUNCTION"))
    }

    pub(super) fn drop_function(
        &mut self,
        function: &Arc<FunctionDefinition>,
        cascade: bool,
    ) -> Result<()> {
        for aggregate in self.definitions().aggregates_of(function) {
            if !cascade {
                return Err(is_part_of(function, &aggregate));
            }
            let signature = aggregate.signature();
            self.notice(format!("drop cascades to function {signature}"));
            self.drop_function(&aggregate, cascade)?;
        }
        let users = self.definitions().function_users(function.oid);
        if !users.is_empty() {
            if !cascade {
                return Err(has_users(function, &users));
            }
            self.drop_users(&users)?;
        }
        self.stage(CatalogChange::DropFunction(Arc::clone(function)), None)
    }

    /// The views that call a function go with all that needs them.
    fn drop_users(&mut self, users: &[Arc<CatalogObject>]) -> Result<()> {
        let snapshot = self.definitions();
        let mut names: BTreeSet<String> = BTreeSet::new();
        for user in users {
            names.insert(described(user));
            let dependents = snapshot.dependents_in_drop_order(&user.name);
            names.extend(dependents.iter().map(|d| described(d)));
        }
        let names: Vec<String> = names.into_iter().collect();
        self.notice(format!("drop cascades to {}", names.join(", ")));
        self.drop_silently(users)
    }
}

fn described(object: &CatalogObject) -> String {
    format!("{} {}", kind_name(kind_of(&object.definition)), object.name)
}

fn undefined(message: &str) -> Error {
    let message = match message.starts_with("could not") {
        true => message.to_owned(),
        false => format!("{message} does not exist"),
    };
    Error::new(sqlstate::UNDEFINED_FUNCTION, message)
}

fn has_users(function: &FunctionDefinition, users: &[Arc<CatalogObject>]) -> Error {
    let signature = function.signature();
    let detail: Vec<_> = users
        .iter()
        .map(|user| format!("{} depends on function {signature}.", described(user)))
        .collect();
    Error::new(
        sqlstate::DEPENDENT_OBJECTS,
        format!("cannot drop function {signature} because other objects depend on it"),
    )
    .detail(detail.join(" "))
    .hint(format!(
        "Say DROP FUNCTION {signature} CASCADE to drop the dependent objects too."
    ))
}

fn is_part_of(function: &FunctionDefinition, aggregate: &FunctionDefinition) -> Error {
    let (signature, user) = (function.signature(), aggregate.signature());
    Error::new(
        sqlstate::DEPENDENT_OBJECTS,
        format!("cannot drop function {signature} because other objects depend on it"),
    )
    .detail(format!("function {user} depends on function {signature}."))
    .hint(format!(
        "Say DROP FUNCTION {signature} CASCADE to drop the dependent objects too."
    ))
}

/// The body of a function is one query.
fn check_body(body: &FunctionBody) -> Result<()> {
    let FunctionBody::Query(text) = body else {
        return Ok(());
    };
    let statements = crate::sql::parse(text).map_err(|e| e.context("function body"))?;
    match statements.as_slice() {
        [(Statement::Query(query), _)] if !crate::sql::changes_rows(query) => Ok(()),
        [(Statement::Query(_), _)] | [] => Err(not_one_query()),
        [(Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_), _)] => {
            Err(Error::unsupported("a function cannot change rows").hint("Its body is one SELECT."))
        }
        [_] => Err(not_one_query()),
        _ => Err(
            Error::unsupported("a function body of several statements is not supported")
                .hint("Its body is one SELECT."),
        ),
    }
}

fn not_one_query() -> Error {
    Error::new(
        sqlstate::INVALID_FUNCTION_DEFINITION,
        "a function's body must be one SELECT statement",
    )
}

/// As in PostgreSQL: what callers rely on stays.
fn check_replaceable(old: &FunctionDefinition, new: &FunctionDefinition) -> Result<()> {
    let invalid = |message: String| {
        Error::new(sqlstate::INVALID_FUNCTION_DEFINITION, message)
            .hint(format!("Use DROP FUNCTION {} first.", old.signature()))
    };
    if old.result != new.result {
        return Err(invalid(
            "cannot change return type of existing function".to_owned(),
        ));
    }
    for (before, after) in old.parameters.iter().zip(&new.parameters) {
        if let Some(name) = &before.name
            && after.name.as_ref() != Some(name)
        {
            return Err(invalid(format!(
                "cannot change name of input parameter \"{name}\""
            )));
        }
        if before.default.is_some() && after.default.is_none() {
            return Err(invalid(
                "cannot remove parameter defaults from existing function".to_owned(),
            ));
        }
    }
    Ok(())
}
