//! `RETURNING` of `UPDATE … FROM` and `DELETE … USING`, which may name other relations' columns.
//!
//! Such a column is computed by the query that gives the changed rows, and stands beside the
//! target's columns, under a name of its own, when RETURNING is evaluated.
//! `*` is the target's columns and those of the other relations by their names in the catalog.
//! Absent: `*` beside queries and joins, whose columns only a plan could tell.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, SelectItem, VisitMut, VisitorMut};

use super::plan::item;
use super::target::{CatalogLookup, Target, folded, named_relation};
use crate::catalog::definition::ColumnDefinition;
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
        catalog: CatalogLookup<'_>,
        target: &Target,
        relations: &[ast::TableWithJoins],
        items: Option<&Vec<SelectItem>>,
    ) -> Result<Self> {
        let mut items = items.cloned();
        let mut others = Vec::new();
        if let (Some(items), false) = (&mut items, relations.is_empty()) {
            let mut expanded = Vec::with_capacity(items.len());
            for item in items.drain(..) {
                match item {
                    SelectItem::Wildcard(_) => {
                        expanded.extend(all_columns(catalog, target, relations)?);
                    }
                    item => expanded.push(item),
                }
            }
            *items = expanded;
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

/// The columns of `*`, the target's first.
fn all_columns(
    catalog: CatalogLookup<'_>,
    target: &Target,
    relations: &[ast::TableWithJoins],
) -> Result<Vec<SelectItem>> {
    let unknown = || {
        Error::unsupported("RETURNING * beside a query or a join is not supported")
            .hint("Name the columns to be returned.")
    };
    let mut columns = Vec::new();
    let mut add = |relation: &str, names: &[ColumnDefinition]| {
        let quoted = |name: &str| Ident::with_quote('"', name);
        for column in names {
            let parts = vec![quoted(relation), quoted(&column.name)];
            columns.push(SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)));
        }
    };
    add(&target.alias, target.columns());
    for relation in relations {
        if !relation.joins.is_empty() {
            return Err(unknown());
        }
        let (name, alias) = named_relation(&relation.relation).map_err(|_| unknown())?;
        let object = catalog(&name).ok_or_else(unknown)?;
        add(alias.as_deref().unwrap_or(&object.name), object.columns());
    }
    Ok(columns)
}

fn take_others(target: &Target, item: &mut SelectItem, others: Vec<Expr>) -> Result<Vec<Expr>> {
    // A column keeps its name, whatever takes its place.
    if let SelectItem::UnnamedExpr(column @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) =
        item
    {
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
