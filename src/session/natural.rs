//! NATURAL joins as joins with USING: which columns two relations share is known here, where the
//! relations are, and the rest is PostgreSQL's meaning of USING (`sql/rewrite/using.rs`).
//!
//! Absent: relations that cannot be planned by themselves, such as a LATERAL query over another
//! one; the engine plans those NATURAL joins.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SetExpr, Statement,
    TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::planning;
use crate::error::Result;
use crate::sql::rewrite::{display_name, using};

/// Puts USING in the place of every NATURAL whose relations are known.
pub(super) async fn as_using(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let mut finder = Finder::default();
    let walked = Visit::visit(&*statement, &mut finder);
    assert!(walked.is_continue(), "the walk never stops early");
    if finder.found.is_empty() {
        return Ok(());
    }
    let mut constraints = VecDeque::new();
    for natural in finder.found {
        constraints.push_back(natural.constraint(state).await?);
    }
    let walked = VisitMut::visit(statement, &mut Replacer(constraints));
    assert!(walked.is_continue(), "the walk never stops early");
    Ok(())
}

/// The two sides of a NATURAL join and the WITH queries that they may name.
struct Natural {
    left: TableWithJoins,
    right: TableWithJoins,
    with: Vec<Cte>,
}

impl Natural {
    /// What the join is on; none if a side cannot be planned.
    async fn constraint(&self, state: &SessionState) -> Result<Option<JoinConstraint>> {
        let left = columns(state, &self.left, &self.with).await?;
        let right = columns(state, &self.right, &self.with).await?;
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(None);
        };
        let shared: Vec<ObjectName> = left
            .into_iter()
            .filter(|name| right.contains(name))
            .map(|name| ObjectName::from(vec![Ident::with_quote('"', name)]))
            .collect();
        Ok(Some(match shared.is_empty() {
            true => JoinConstraint::On(Expr::value(Value::Boolean(true))),
            false => JoinConstraint::Using(shared),
        }))
    }
}

async fn columns(
    state: &SessionState,
    from: &TableWithJoins,
    with: &[Cte],
) -> Result<Option<Vec<String>>> {
    let mut query = planning::parse_query("SELECT * FROM input")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = vec![from.clone()];
    }
    if !with.is_empty() {
        let mut first = planning::parse_query("WITH RECURSIVE a AS (SELECT 1) SELECT 1")?;
        query.with = first.with.take();
        if let Some(clause) = &mut query.with {
            clause.cte_tables = with.to_vec();
        }
    }
    let statement = planning::rewritten(Statement::Query(query))?;
    let statement = ParsedStatement::Statement(Box::new(statement));
    // What is wrong with a relation is told by the plan of the whole statement.
    let Ok(plan) = state.statement_to_plan(statement).await else {
        return Ok(None);
    };
    let fields = plan.schema().fields().iter();
    Ok(Some(
        fields
            .map(|field| display_name(field.name()).to_owned())
            .collect(),
    ))
}

#[derive(Default)]
struct Finder {
    with: Vec<Vec<Cte>>,
    found: Vec<Natural>,
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.as_ref();
        self.with
            .push(with.map_or(vec![], |with| with.cte_tables.clone()));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for from in &select.from {
            for (place, join) in from.joins.iter().enumerate() {
                if constraint_of(&join.join_operator) != Some(&JoinConstraint::Natural) {
                    continue;
                }
                let alone = |relation: &TableFactor| TableWithJoins {
                    relation: relation.clone(),
                    joins: vec![],
                };
                self.found.push(Natural {
                    left: TableWithJoins {
                        relation: from.relation.clone(),
                        joins: from.joins[..place].to_vec(),
                    },
                    right: alone(&join.relation),
                    with: self.with.concat(),
                });
            }
        }
        ControlFlow::Continue(())
    }
}

/// Goes the way of [`Finder`], with what was found out for each join.
struct Replacer(VecDeque<Option<JoinConstraint>>);

impl VisitorMut for Replacer {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            if constraint_of(&join.join_operator) != Some(&JoinConstraint::Natural) {
                continue;
            }
            if let (Some(Some(constraint)), Some(place)) = (
                self.0.pop_front(),
                using::constraint_of(&mut join.join_operator),
            ) {
                *place = constraint;
            }
        }
        ControlFlow::Continue(())
    }
}

fn constraint_of(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c) => Some(c),
        _ => None,
    }
}
