//! Joins with USING and NATURAL: which columns the relations have is known here, where the relations
//! are, and the rest is PostgreSQL's meaning of these joins (`sql/rewrite/using.rs`).
//!
//! One select after the other, the inner ones first, so that what stands in FROM means what it will.
//! Absent: selects over relations that cannot be planned, such as a LATERAL query over the columns
//! of a query around; the engine plans their joins.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, Query, Select, SetExpr, Statement, TableFactor, TableWithJoins, Visit,
    VisitMut, Visitor, VisitorMut,
};
use futures::future::BoxFuture;

use super::{hidden_columns, planning};
use crate::error::{Error, Result};
use crate::sql::rewrite::merged_names::Merged;
use crate::sql::rewrite::using::{self, InnerColumns, Leaf};
use crate::sql::user_functions::inlined;
use crate::types::SqlType;

/// Puts conditions in the place of USING and NATURAL, and columns in the place of merged names.
///
/// Relations are planned on the way to the statement's plan, and the stack is to hold one at a time.
pub(super) fn with_conditions<'a>(
    state: &'a SessionState,
    statement: &'a mut Statement,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(merge_all(state, statement))
}

async fn merge_all(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let walked = VisitMut::visit(statement, &mut Namer);
    assert!(walked.is_continue(), "the walk never stops early");
    let mut passed = 0;
    loop {
        let Some(found) = found(statement, passed, using::merges) else {
            return Ok(());
        };
        let Some(leaves) = Box::pin(found.leaves(state)).await? else {
            passed += 1;
            continue;
        };
        let inner = Box::pin(found.inner_columns(state, &leaves)).await?;
        let mut merger = Merger {
            place: passed,
            leaves: Some(leaves),
            inner: &inner,
            depth: 0,
            merged: None,
        };
        if let ControlFlow::Break(error) = VisitMut::visit(statement, &mut merger) {
            return Err(error);
        }
    }
}

/// The first select that is wanted after some that were passed by.
pub(super) fn found(
    statement: &Statement,
    passed: usize,
    is_wanted: fn(&Select) -> bool,
) -> Option<Found> {
    let mut finder = Finder {
        passed,
        is_wanted,
        scope: Scope::default(),
    };
    Visit::visit(statement, &mut finder).break_value()
}

/// A select that was wanted, and the WITH queries that it may name.
pub(super) struct Found {
    select: Box<Select>,
    with: Vec<Cte>,
}

impl Found {
    /// The select as it stands in the statement.
    pub(super) fn select(&self) -> &Select {
        &self.select
    }

    /// The columns of its relations; none if one of them cannot be planned.
    pub(super) async fn leaves(&self, state: &SessionState) -> Result<Option<Vec<Leaf>>> {
        let mut leaves: Vec<Leaf> = Vec::new();
        let mut before: Vec<TableWithJoins> = Vec::new();
        for factor in using::leaves_of(&self.select.from) {
            let mut relation = factor.clone();
            if let TableFactor::Table { version, .. } = &mut relation {
                *version = None;
            }
            before.push(TableWithJoins {
                relation,
                joins: vec![],
            });
            let alone = &before[before.len() - 1..];
            let leaf = match planned(state, alone, &self.with).await? {
                Some(plan) => leaf_of(&plan, 0),
                None => self.lateral_leaf(state, &leaves, &mut before).await?,
            };
            match leaf {
                Some(leaf) => leaves.push(leaf),
                None => return Ok(None),
            }
        }
        Ok(Some(leaves))
    }

    /// A relation that names columns of those before it.
    async fn lateral_leaf(
        &self,
        state: &SessionState,
        leaves: &[Leaf],
        before: &mut [TableWithJoins],
    ) -> Result<Option<Leaf>> {
        let inner = self.inner_columns(state, leaves).await?;
        if let Some(last) = before.last_mut()
            && let Some(relation) = using::lateral(&self.select.from, leaves, &inner)
        {
            last.relation = relation;
        }
        let passed = leaves.iter().map(|leaf| leaf.columns.len()).sum();
        let plan = planned(state, before, &self.with).await?;
        Ok(plan.and_then(|plan| leaf_of(&plan, passed)))
    }

    /// What queries within the select have themselves, if they use a name that may be merged.
    async fn inner_columns(&self, state: &SessionState, leaves: &[Leaf]) -> Result<InnerColumns> {
        let mut inner = InnerColumns::new();
        for found in self.naming(leaves) {
            let plan = planned(state, &found.select.from, &found.with).await?;
            let columns = plan.map(|plan| {
                let fields = plan.schema().fields().iter();
                fields.map(|field| field.name().clone()).collect()
            });
            inner.insert(using::from_text(&found.select), columns);
        }
        Ok(inner)
    }

    /// The selects within that use a name which several relations have.
    fn naming(&self, leaves: &[Leaf]) -> Vec<Found> {
        let mut names = BTreeSet::new();
        let mut twice = BTreeSet::new();
        for (name, _) in leaves.iter().flat_map(|leaf| &leaf.columns) {
            if !names.insert(name.clone()) {
                twice.insert(name.clone());
            }
        }
        let mut gatherer = Gatherer {
            names: &twice,
            scope: Scope {
                visible: self.with.clone(),
                around: Vec::new(),
            },
            selects: Vec::new(),
            found: Vec::new(),
        };
        let walked = Visit::visit(self.select.as_ref(), &mut gatherer);
        assert!(walked.is_continue(), "the walk never stops early");
        gatherer.found
    }
}

/// The plan of all columns of a FROM. What is wrong with a relation is told by the plan of the
/// whole statement.
async fn planned(
    state: &SessionState,
    from: &[TableWithJoins],
    with: &[Cte],
) -> Result<Option<LogicalPlan>> {
    let mut query = planning::parse_query("SELECT * FROM input")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = from.to_vec();
    }
    if !with.is_empty() {
        let mut first = planning::parse_query("WITH RECURSIVE a AS (SELECT 1) SELECT 1")?;
        query.with = first.with.take();
        if let Some(clause) = &mut query.with {
            clause.cte_tables = with.to_vec();
        }
    }
    let mut statement = Statement::Query(query);
    hidden_columns::leave_out(state, &mut statement);
    let Ok(statement) = planning::rewritten(statement) else {
        return Ok(None);
    };
    let statement = ParsedStatement::Statement(Box::new(statement));
    match state.statement_to_plan(statement).await {
        Ok(plan) => Ok(inlined(plan).ok().map(|inlined| inlined.plan)),
        Err(_) => Ok(None),
    }
}

/// The relation whose columns come after the first ones of a plan.
fn leaf_of(plan: &LogicalPlan, passed: usize) -> Option<Leaf> {
    let mut name = None;
    let mut columns = Vec::new();
    for (qualifier, field) in plan.schema().iter().skip(passed) {
        name = Some(qualifier?.table().to_owned());
        columns.push((field.name().clone(), SqlType::from_field(field)));
    }
    Some(Leaf {
        name: Ident::with_quote('"', name?),
        columns,
    })
}

/// The WITH queries that may be named where a walk is.
#[derive(Default)]
pub(super) struct Scope {
    pub visible: Vec<Cte>,
    around: Vec<(Vec<Cte>, Vec<WithQuery>)>,
}

/// A query of a WITH that is being walked, and what it may name.
struct WithQuery {
    query: *const Query,
    visible: Vec<Cte>,
}

impl Scope {
    pub fn enter(&mut self, query: &Query) {
        let own = self.around.last().and_then(|(_, queries)| {
            let found = queries.iter().find(|q| std::ptr::eq(q.query, query));
            found.map(|q| q.visible.clone())
        });
        let before = std::mem::take(&mut self.visible);
        let mut visible = own.unwrap_or_else(|| before.clone());
        let mut queries = Vec::new();
        if let Some(with) = &query.with {
            let outer = visible.clone();
            for cte in &with.cte_tables {
                let name = |cte: &Cte| cte.alias.name.value.clone();
                visible.retain(|other| name(other) != name(cte));
                queries.push(WithQuery {
                    query: cte.query.as_ref(),
                    visible: visible.clone(),
                });
                visible.push(cte.clone());
            }
            if with.recursive {
                queries.iter_mut().for_each(|q| q.visible = visible.clone());
            } else {
                // What the name hides is what the query within means by it.
                for (number, query) in queries.iter_mut().enumerate() {
                    let own = &with.cte_tables[number].alias.name.value;
                    let hidden = outer.iter().find(|cte| cte.alias.name.value == *own);
                    query.visible.extend(hidden.cloned());
                }
            }
        }
        self.visible = visible;
        self.around.push((before, queries));
    }

    pub fn leave(&mut self) {
        if let Some((before, _)) = self.around.pop() {
            self.visible = before;
        }
    }
}

/// Stops at a select, after those that stand within it.
struct Finder {
    passed: usize,
    is_wanted: fn(&Select) -> bool,
    scope: Scope,
}

impl Visitor for Finder {
    type Break = Found;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Found> {
        self.scope.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Found> {
        self.scope.leave();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<Found> {
        if !(self.is_wanted)(select) {
            return ControlFlow::Continue(());
        }
        if self.passed > 0 {
            self.passed -= 1;
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(Found {
            select: Box::new(select.clone()),
            with: self.scope.visible.clone(),
        })
    }
}

/// The selects within one that use some names.
struct Gatherer<'a> {
    names: &'a BTreeSet<String>,
    scope: Scope,
    /// Those around, as far as they have not been found.
    selects: Vec<Option<Found>>,
    found: Vec<Found>,
}

impl Visitor for Gatherer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.scope.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.scope.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.selects.push(Some(Found {
            select: Box::new(select.clone()),
            with: self.scope.visible.clone(),
        }));
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &Select) -> ControlFlow<()> {
        self.selects.pop();
        ControlFlow::Continue(())
    }

    /// All selects around a name are needed, but for the outermost, which is the one to merge in.
    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expression
            && self.names.contains(&crate::sql::data_types::folded(name))
        {
            let around = self.selects.iter_mut().skip(1);
            self.found.extend(around.filter_map(Option::take));
        }
        ControlFlow::Continue(())
    }
}

/// Merges in the select that [`Finder`] found, and in the order of its query.
struct Merger<'a> {
    place: usize,
    leaves: Option<Vec<Leaf>>,
    inner: &'a InnerColumns,
    depth: usize,
    merged: Option<(usize, Merged<'a>)>,
}

impl VisitorMut for Merger<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if let Some((_, mut merged)) = self.merged.take_if(|(depth, _)| *depth == self.depth) {
            merged.put_into_order(query);
        }
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if !using::merges(select) {
            return ControlFlow::Continue(());
        }
        if self.place > 0 {
            self.place -= 1;
            return ControlFlow::Continue(());
        }
        if let Some(leaves) = self.leaves.take() {
            match using::merge(select, leaves, self.inner) {
                Ok(merged) => self.merged = Some((self.depth, merged)),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// Makes subqueries of joins in brackets that have a name.
struct Namer;

impl VisitorMut for Namer {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        using::named_joins_as_queries(select);
        ControlFlow::Continue(())
    }
}
