//! `RETURNING` of `UPDATE … FROM` and `DELETE … USING`, which may name other relations' columns.
//!
//! Such a column is computed by the query that gives the changed rows, and stands beside the
//! target's columns, under a name of its own, when RETURNING is evaluated.
//! Absent: `RETURNING *` with other relations, which would have to list their columns too.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, SelectItem, VisitMut, VisitorMut};

use super::plan::item;
use super::target::{Target, folded};
use crate::error::{Error, Result};

/// Words that are functions, not columns, when they stand alone.
const BARE_FUNCTIONS: [&str; 2] = ["current_schema", "current_role"];

/// RETURNING, ready to be evaluated over the target's columns and those of others.
pub(super) struct Returning {
    /// what is returned; `None` without RETURNING
    pub items: Option<Vec<SelectItem>>,
    others: Vec<Expr>,
}

impl Returning {
    /// Takes the columns that are not the target's out of the items.
    pub fn new(
        target: &Target,
        relations: &[ast::TableWithJoins],
        items: Option<&Vec<SelectItem>>,
    ) -> Result<Self> {
        let mut items = items.cloned();
        let mut others = Vec::new();
        if let (Some(items), false) = (&mut items, relations.is_empty()) {
            for item in items {
                others = take_others(target, item, others)?;
            }
        }
        Ok(Self { items, others })
    }

    /// Items that the query of the rows must give at its end.
    pub fn query_items(&self) -> Vec<SelectItem> {
        self.others
            .iter()
            .enumerate()
            .map(|(at, column)| item(column.clone(), &name_of(at)))
            .collect()
    }

    /// The schema of the rows that RETURNING sees; `query` is that of the query of the rows.
    pub fn schema(&self, target: &Target, query: &SchemaRef) -> SchemaRef {
        let first = query.fields().len() - self.others.len();
        let others = query.fields()[first..].iter().cloned();
        let fields: Vec<_> = target
            .schema
            .fields()
            .iter()
            .cloned()
            .chain(others)
            .collect();
        Arc::new(Schema::new(fields))
    }

    /// Other relations' columns of the rows that count.
    pub fn others_of(&self, batch: &RecordBatch, counts: &BooleanArray) -> Result<Vec<ArrayRef>> {
        let first = batch.num_columns() - self.others.len();
        batch.columns()[first..]
            .iter()
            .map(|column| Ok(filter(column, counts)?))
            .collect()
    }
}

fn name_of(at: usize) -> String {
    format!("other {at}")
}

fn take_others(target: &Target, item: &mut SelectItem, others: Vec<Expr>) -> Result<Vec<Expr>> {
    match item {
        SelectItem::Wildcard(_) => {
            return Err(
                Error::unsupported("RETURNING * with further relations is not supported")
                    .hint("Name the columns to be returned."),
            );
        }
        // A column keeps its name, whatever takes its place.
        SelectItem::UnnamedExpr(column @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
            let alias = match &*column {
                Expr::CompoundIdentifier(parts) => parts.last().cloned(),
                Expr::Identifier(name) => Some(name.clone()),
                _ => None,
            };
            if let Some(alias) = alias {
                let expr = column.clone();
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        _ => {}
    }
    let mut taker = Taker {
        target,
        depth: 0,
        others,
    };
    let walked = item.visit(&mut taker);
    assert!(walked.is_continue(), "the taker never stops early");
    Ok(taker.others)
}

struct Taker<'a> {
    target: &'a Target,
    /// subqueries around; what is inside has columns of its own
    depth: usize,
    others: Vec<Expr>,
}

impl Taker<'_> {
    fn is_other(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Identifier(name) => {
                let name = folded(name);
                let is_own = self.target.columns().iter().any(|c| c.name == name);
                !is_own && !BARE_FUNCTIONS.contains(&name.as_str())
            }
            Expr::CompoundIdentifier(parts) => parts
                .first()
                .is_some_and(|relation| folded(relation) != self.target.alias),
            _ => false,
        }
    }
}

impl VisitorMut for Taker<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0 && self.is_other(expression) {
            let at = match self.others.iter().position(|other| other == expression) {
                Some(at) => at,
                None => {
                    self.others.push(expression.clone());
                    self.others.len() - 1
                }
            };
            *expression = Expr::Identifier(Ident::with_quote('"', name_of(at)));
        }
        ControlFlow::Continue(())
    }
}
