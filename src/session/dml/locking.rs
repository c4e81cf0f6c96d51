//! What `FOR UPDATE` and `FOR SHARE` of a query lock, read off its text: the tables, and the query that gives their
//! keys beside its own columns.
//!
//! Pure. PostgreSQL's rules (manual, SELECT, "The Locking Clause"): a clause is of the tables that it names, or of all
//! in FROM; a query whose rows are not rows of tables takes none. Deliberately absent: clauses that reach into a
//! subquery of FROM, which has to have its own.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{self, Expr, NonBlock, TableFactor, Visit, Visitor};

use super::plan::{column, item, select_of};
use super::target::{CatalogLookup, Target, Verb, folded, last_name, named_relation};
use crate::error::{Error, Result, sqlstate};
use crate::log::tables::layout::TableLayout;
use crate::log::tables::locks::LockStrength;

/// One table's rows to be locked.
#[derive(Debug)]
pub(super) struct Lock {
    pub target: Target,
    pub layout: Arc<TableLayout>,
    pub strength: LockStrength,
    /// what to do about rows that others hold, but wait
    pub nonblock: Option<NonBlock>,
}

impl Lock {
    /// Items that give the key, to be put behind a select list; `number` is the lock's.
    fn key_items(&self, number: usize) -> impl Iterator<Item = ast::SelectItem> {
        let columns = self.layout.key_columns().iter();
        columns.map(move |&c| {
            let name = &self.target.columns()[c].name;
            item(
                column(&self.target.alias, name),
                &format!("locked {number} {c}"),
            )
        })
    }

    /// Rows of the table in which the key alone is filled; `key` are the columns of [`Self::key_items`].
    pub fn key_rows(&self, key: &[ArrayRef], count: usize) -> Result<RecordBatch> {
        let fields = self.layout.schema().fields();
        let mut columns: Vec<ArrayRef> = fields
            .iter()
            .map(|field| new_null_array(field.data_type(), count))
            .collect();
        for (&at, values) in self.layout.key_columns().iter().zip(key) {
            columns[at] = Arc::clone(values);
        }
        let fields = fields
            .iter()
            .map(|f| f.as_ref().clone().with_nullable(true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(
            Arc::new(schema),
            columns,
            &options,
        )?)
    }
}

/// A query that locks.
#[derive(Debug)]
pub(super) struct Locking {
    pub locks: Vec<Lock>,
    /// the query without its clauses; behind its columns, those of the keys, lock by lock
    pub query: ast::Query,
    /// how many columns the keys take
    pub key_columns: usize,
    /// what was taken off `query`, since it counts only rows that are not skipped
    pub bounds: Option<Bounds>,
}

/// `LIMIT` and `OFFSET`.
#[derive(Debug, PartialEq)]
pub(super) struct Bounds {
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
}

impl Locking {
    /// Reads a query with clauses; `is_aggregate` tells of a function by its name.
    pub fn of(
        catalog: CatalogLookup<'_>,
        is_aggregate: &dyn Fn(&str) -> bool,
        query: &ast::Query,
    ) -> Result<Self> {
        let clause = query.locks.first().map_or("FOR UPDATE", clause_name);
        let select = plain_select(query, clause, is_aggregate)?;
        let sources = sources(select);
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        let ctes: Vec<String> = ctes.map(|cte| folded(&cte.alias.name)).collect();
        let mut locks: Vec<Lock> = Vec::new();
        for clause in &query.locks {
            let wanted = clause.of.as_ref().and_then(last_name);
            let mut is_found = false;
            for source in &sources {
                if wanted.as_ref().is_some_and(|w| *w != source.alias) {
                    continue;
                }
                is_found = true;
                if let Some(lock) = source.lock(catalog, clause, &ctes)? {
                    add(&mut locks, lock);
                }
            }
            if let (Some(wanted), false) = (wanted, is_found) {
                return Err(not_in_from(&wanted, clause));
            }
        }
        let mut query = query.clone();
        query.locks.clear();
        let skips = locks
            .iter()
            .any(|l| l.nonblock == Some(NonBlock::SkipLocked));
        let bounds = match skips {
            true => take_bounds(&mut query)?,
            false => None,
        };
        let items: Vec<_> = locks
            .iter()
            .enumerate()
            .flat_map(|(number, lock)| lock.key_items(number))
            .collect();
        let key_columns = items.len();
        select_of(&mut query)?.projection.extend(items);
        Ok(Self {
            locks,
            query,
            key_columns,
            bounds,
        })
    }
}

/// Of two clauses of one table the stronger counts, and one that does not wait.
fn add(locks: &mut Vec<Lock>, lock: Lock) {
    let known = locks
        .iter_mut()
        .find(|l| l.target.alias == lock.target.alias);
    let Some(known) = known else {
        locks.push(lock);
        return;
    };
    if lock.strength == LockStrength::Exclusive {
        known.strength = lock.strength;
    }
    if lock.nonblock == Some(NonBlock::Nowait) || known.nonblock.is_none() {
        known.nonblock = lock.nonblock;
    }
}

fn clause_name(clause: &ast::LockClause) -> &'static str {
    match clause.lock_type {
        ast::LockType::Update => "FOR UPDATE",
        ast::LockType::Share => "FOR SHARE",
    }
}

/// The SELECT of a query whose rows are rows of what is in its FROM.
fn plain_select<'a>(
    query: &'a ast::Query,
    clause: &str,
    is_aggregate: &dyn Fn(&str) -> bool,
) -> Result<&'a ast::Select> {
    let refused = |what: &str| {
        Err(Error::unsupported(format!(
            "{clause} is not allowed with {what}"
        )))
    };
    let select = match query.body.as_ref() {
        ast::SetExpr::Select(select) => select,
        ast::SetExpr::Values(_) => {
            return Err(Error::unsupported(format!(
                "{clause} cannot be applied to VALUES"
            )));
        }
        _ => return refused("UNION/INTERSECT/EXCEPT"),
    };
    if select.distinct.is_some() {
        return refused("DISTINCT clause");
    }
    let is_grouped = match &select.group_by {
        ast::GroupByExpr::All(_) => true,
        ast::GroupByExpr::Expressions(columns, modifiers) => {
            !columns.is_empty() || !modifiers.is_empty()
        }
    };
    if is_grouped {
        return refused("GROUP BY clause");
    }
    if select.having.is_some() {
        return refused("HAVING clause");
    }
    let mut calls = Calls {
        is_aggregate,
        depth: 0,
    };
    match select.projection.visit(&mut calls) {
        ControlFlow::Break(what) => refused(what),
        ControlFlow::Continue(()) => Ok(select),
    }
}

/// Looks for functions over many rows, not in subqueries.
struct Calls<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
    depth: usize,
}

impl Visitor for Calls<'_> {
    type Break = &'static str;

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if function.over.is_some() {
            return ControlFlow::Break("window functions");
        }
        match last_name(&function.name).is_some_and(|name| (self.is_aggregate)(&name)) {
            true => ControlFlow::Break("aggregate functions"),
            false => ControlFlow::Continue(()),
        }
    }
}

/// An item of FROM.
struct Source<'a> {
    factor: &'a TableFactor,
    alias: String,
    /// an outer join may fill it with NULLs
    is_padded: bool,
}

impl Source<'_> {
    /// What a clause locks of it; `None`: it has no rows of a table, and none was asked for.
    fn lock(
        &self,
        catalog: CatalogLookup<'_>,
        clause: &ast::LockClause,
        ctes: &[String],
    ) -> Result<Option<Lock>> {
        let named = clause_name(clause);
        let refused = |what: &str| match clause.of {
            Some(_) => Err(Error::unsupported(format!(
                "{named} cannot be applied to {what}"
            ))),
            None => Ok(None),
        };
        let (name, alias) = match self.factor {
            TableFactor::Table { args: None, .. } => named_relation(self.factor)?,
            TableFactor::Derived { .. } => {
                return Err(Error::unsupported(format!(
                    "{named} of the rows of a subquery is not supported"
                ))
                .hint(format!("Say {named} within the subquery.")));
            }
            _ => return refused("a function"),
        };
        if ctes.contains(&name) {
            return refused("a WITH query");
        }
        // Relations of the system are locked by nobody; of what is not there the planner tells.
        if catalog(&name).is_none() {
            return Ok(None);
        }
        let target = Target::find(catalog, &name, alias.as_deref(), Verb::Lock)?;
        if self.is_padded {
            return Err(Error::unsupported(format!(
                "{named} cannot be applied to the nullable side of an outer join"
            )));
        }
        let layout = target.layout.clone();
        Ok(Some(Lock {
            layout: layout.ok_or_else(|| Error::internal("only rows of tables are locked"))?,
            target,
            strength: match clause.lock_type {
                ast::LockType::Update => LockStrength::Exclusive,
                ast::LockType::Share => LockStrength::Shared,
            },
            nonblock: clause.nonblock,
        }))
    }
}

/// All items of a FROM, joined or not.
fn sources(select: &ast::Select) -> Vec<Source<'_>> {
    select.from.iter().flat_map(joined).collect()
}

fn joined(table: &ast::TableWithJoins) -> Vec<Source<'_>> {
    let mut found = of_factor(&table.relation);
    for join in &table.joins {
        let mut right = of_factor(&join.relation);
        use ast::JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
        let operator = &join.join_operator;
        let pads_right = matches!(operator, Left(_) | LeftOuter(_) | FullOuter(_));
        let pads_left = matches!(operator, Right(_) | RightOuter(_) | FullOuter(_));
        right.iter_mut().for_each(|s| s.is_padded |= pads_right);
        found.iter_mut().for_each(|s| s.is_padded |= pads_left);
        found.extend(right);
    }
    found
}

fn of_factor(factor: &TableFactor) -> Vec<Source<'_>> {
    if let TableFactor::NestedJoin {
        table_with_joins, ..
    } = factor
    {
        return joined(table_with_joins);
    }
    let alias = match factor {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(folded(&alias.name)),
            None => last_name(name),
        },
        TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::UNNEST { alias, .. } => alias.as_ref().map(|a| folded(&a.name)),
        _ => None,
    };
    vec![Source {
        factor,
        alias: alias.unwrap_or_default(),
        is_padded: false,
    }]
}

fn not_in_from(name: &str, clause: &ast::LockClause) -> Error {
    Error::new(
        sqlstate::UNDEFINED_TABLE,
        format!(
            "relation \"{name}\" in {} clause not found in FROM clause",
            clause_name(clause)
        ),
    )
}

/// Takes `LIMIT`, `OFFSET` and `FETCH` off a query.
fn take_bounds(query: &mut ast::Query) -> Result<Option<Bounds>> {
    let mut bounds = Bounds {
        limit: None,
        offset: None,
    };
    match query.limit_clause.take() {
        Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
            bounds.limit = limit;
            bounds.offset = offset.map(|offset| offset.value);
        }
        Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => {
            bounds.limit = Some(limit);
            bounds.offset = Some(offset);
        }
        None => {}
    }
    if let Some(fetch) = query.fetch.take() {
        if fetch.with_ties {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "SKIP LOCKED and WITH TIES options cannot be used together",
            ));
        }
        let one = || Expr::value(ast::Value::Number("1".to_owned(), false));
        bounds.limit = Some(fetch.quantity.unwrap_or_else(one));
    }
    let has_bounds = bounds.limit.is_some() || bounds.offset.is_some();
    Ok(has_bounds.then_some(bounds))
}
