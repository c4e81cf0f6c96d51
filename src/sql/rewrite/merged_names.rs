//! What stands for the bare names of merged columns, in expressions and in the queries within them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
};

use super::using::{Column, InnerColumns, Named, from_text};
use crate::sql::data_types::folded;

/// What a select without FROM has.
static NO_COLUMNS: BTreeSet<String> = BTreeSet::new();

/// What stands for the bare names of merged columns.
pub(crate) struct Merged<'a> {
    values: BTreeMap<String, Expr>,
    /// Under the name of a join's merged columns.
    named: BTreeMap<(String, String), Expr>,
    inner: &'a InnerColumns,
    /// Selects around, within the tree: what they have is theirs.
    around: Vec<Option<&'a BTreeSet<String>>>,
    /// Orders of queries around, which may name outputs; they are passed by.
    orders: Vec<Option<OrderBy>>,
}

impl<'a> Merged<'a> {
    /// A name that two columns have is ambiguous, as the engine will find.
    pub(super) fn of(columns: &[Column], named: &[Named], inner: &'a InnerColumns) -> Self {
        let is_only = |name: &str| columns.iter().filter(|c| c.name == name).count() == 1;
        let merged = columns.iter().filter(|c| c.is_merged && is_only(&c.name));
        let named = named.iter().flat_map(|named| {
            let of = |c: &Column| ((named.alias.clone(), c.name.clone()), c.value.clone());
            named.columns.iter().map(of)
        });
        Self {
            values: merged.map(|c| (c.name.clone(), c.value.clone())).collect(),
            named: named.collect(),
            inner,
            around: Vec::new(),
            orders: Vec::new(),
        }
    }

    pub(super) fn put_into(&mut self, tree: &mut impl VisitMut) {
        let walked = tree.visit(self);
        assert!(walked.is_continue(), "the walk never stops early");
    }

    /// A merged column keeps its name.
    pub(super) fn keep_name(&self, item: &mut SelectItem) {
        let SelectItem::UnnamedExpr(expr) = item else {
            return;
        };
        let name = match &*expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let (Some(name), Some(value)) = (name, self.value_of(expr))
            && !matches!(value, Expr::CompoundIdentifier(_))
        {
            *item = SelectItem::ExprWithAlias {
                alias: name.clone(),
                expr: expr.clone(),
            };
        }
    }

    /// What stands for a name.
    fn value_of(&self, expression: &Expr) -> Option<&Expr> {
        match expression {
            Expr::Identifier(name) => self.values.get(&folded(name)),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [alias, name] => self.named.get(&(folded(alias), folded(name))),
                _ => None,
            },
            _ => None,
        }
    }

    /// The order of a query stands outside of its select, and names outputs first.
    pub fn put_into_order(&mut self, query: &mut Query) {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return;
        };
        let names_output = |name: &Ident| {
            let name = folded(name);
            select.projection.iter().any(|item| match item {
                SelectItem::UnnamedExpr(Expr::Identifier(output)) => folded(output) == name,
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                    parts.last().is_some_and(|output| folded(output) == name)
                }
                SelectItem::ExprWithAlias { alias, .. } => folded(alias) == name,
                SelectItem::Wildcard(_) => true,
                _ => false,
            })
        };
        let Some(OrderByKind::Expressions(orders)) = query.order_by.as_mut().map(|o| &mut o.kind)
        else {
            return;
        };
        for order in orders {
            if !matches!(&order.expr, Expr::Identifier(name) if names_output(name)) {
                self.put_into(&mut order.expr);
            }
        }
    }
}

impl VisitorMut for Merged<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.orders.push(query.order_by.take());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        query.order_by = self.orders.pop().flatten();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let columns = match select.from.is_empty() {
            true => Some(&NO_COLUMNS),
            false => self.inner.get(&from_text(select)).and_then(Option::as_ref),
        };
        self.around.push(columns);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.around.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let Some(value) = self.value_of(expression) else {
            return ControlFlow::Continue(());
        };
        let is_hidden = match &*expression {
            Expr::Identifier(name) => {
                let is_inner = |columns: &Option<&BTreeSet<String>>| {
                    columns.is_none_or(|columns| columns.contains(&folded(name)))
                };
                self.around.iter().any(is_inner)
            }
            _ => false,
        };
        if !is_hidden {
            *expression = value.clone();
        }
        ControlFlow::Continue(())
    }
}
