//! `JOIN … USING (c)`: one column in the place of two, as PostgreSQL merges them.
//!
//! ```text
//! x JOIN y, x LEFT JOIN y    c  →  x.c
//! x RIGHT JOIN y             c  →  y.c
//! x FULL JOIN y              c  →  coalesce(x.c, y.c)
//! *                             →  c, x.* without c, y.* without c
//! x … y USING (c) … z USING (c) →  … z ON merged c = z.c
//! ```
//! The engine takes whichever column has the first alias by the alphabet, in that one's place, and
//! finds the name ambiguous in chains. NATURAL joins have become such before (`session/natural.rs`).
//! Absent: joins in brackets, relations without a name, and columns that one of several relations
//! before the join has; the engine plans those.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    TableWithJoins, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use super::trees::{binary, call};
use crate::sql::data_types::{folded, last_part};

/// Merges the columns of a query's joins; ORDER BY stands outside of its SELECT.
pub(super) fn merge_in_query(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    let Some(mut merged) = merged_of(select) else {
        return;
    };
    let names_output = |name: &Ident| {
        let name = folded(name);
        select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(output)) => folded(output) == name,
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
            merged.put_into(&mut order.expr);
        }
    }
}

/// Puts merged columns in the place of their bare names and into `*`.
pub(super) fn merge(select: &mut Select) {
    let chains: Vec<Option<Chain>> = select.from.iter().map(Chain::of).collect();
    if let Some(items) = expanded(&select.from, &chains) {
        let is_wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default());
        let mut projection = Vec::new();
        for item in std::mem::take(&mut select.projection) {
            match is_wildcard(&item) {
                true => projection.extend(items.iter().cloned()),
                false => projection.push(item),
            }
        }
        select.projection = projection;
    }
    let Some(mut merged) = merged_of(select) else {
        return;
    };
    for (from, chain) in select.from.iter_mut().zip(&chains) {
        if let Some(chain) = chain {
            chain.put_conditions(from, &mut merged);
        }
    }
    for item in &mut select.projection {
        merged.keep_name(item);
        merged.put_into(item);
    }
    merged.put_into(&mut select.selection);
    merged.put_into(&mut select.having);
    merged.put_into(&mut select.group_by);
    merged.put_into(&mut select.distinct);
}

/// Columns whose bare names mean something else than the engine takes them for.
fn merged_of(select: &Select) -> Option<Merged> {
    let mut columns = Vec::new();
    for chain in select.from.iter().filter_map(Chain::of) {
        if chain.conditions.len() > 1 || !chain.keeps_left {
            columns.extend(chain.merged);
        }
    }
    (!columns.is_empty()).then_some(Merged { columns, depth: 0 })
}

/// `*` over relations some of which are joined with USING.
fn expanded(from: &[TableWithJoins], chains: &[Option<Chain>]) -> Option<Vec<SelectItem>> {
    if chains.iter().flatten().all(|c| c.merged.is_empty()) {
        return None;
    }
    let mut items = Vec::new();
    for (from, chain) in from.iter().zip(chains) {
        if let Some(chain) = chain {
            for (name, value) in &chain.merged {
                items.push(SelectItem::ExprWithAlias {
                    expr: value.clone(),
                    alias: name.clone(),
                });
            }
        }
        let relations = [&from.relation]
            .into_iter()
            .chain(from.joins.iter().map(|join| &join.relation));
        for relation in relations {
            let name = name_of(relation)?;
            let hidden = chain.as_ref().map_or(vec![], |c| c.hidden_of(&name));
            items.push(all_but(name, hidden));
        }
    }
    Some(items)
}

fn all_but(relation: Ident, hidden: Vec<ObjectName>) -> SelectItem {
    let options = WildcardAdditionalOptions {
        opt_exclude: (!hidden.is_empty()).then_some(ExcludeSelectItem::Multiple(hidden)),
        ..WildcardAdditionalOptions::default()
    };
    let name = ObjectName::from(vec![relation]);
    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
}

/// The joins of one item of FROM, as far as USING goes.
struct Chain {
    /// The relations that stand before the next join.
    relations: Vec<Ident>,
    /// Merged columns and their values, those of the last join first.
    merged: Vec<(Ident, Expr)>,
    /// Relations' columns that only the merged ones show.
    hidden: Vec<(Ident, Ident)>,
    /// Each USING as a condition, with the number of its join.
    conditions: Vec<(usize, Expr)>,
    /// Every merged column is the leftmost one, as the engine has it.
    keeps_left: bool,
}

impl Chain {
    /// The joins, if everything about them is known from their text.
    fn of(from: &TableWithJoins) -> Option<Self> {
        let mut chain = Self {
            relations: vec![name_of(&from.relation)?],
            merged: Vec::new(),
            hidden: Vec::new(),
            conditions: Vec::new(),
            keeps_left: true,
        };
        for (number, join) in from.joins.iter().enumerate() {
            let right = name_of(&join.relation)?;
            let (side, constraint) = side_of(&join.join_operator)?;
            match constraint {
                JoinConstraint::Using(columns) => {
                    chain.join(number, side, &right, columns)?;
                }
                JoinConstraint::On(_) | JoinConstraint::None => {}
                JoinConstraint::Natural => return None,
            }
            chain.relations.push(right);
        }
        Some(chain)
    }

    fn join(
        &mut self,
        number: usize,
        side: Side,
        right: &Ident,
        columns: &[ObjectName],
    ) -> Option<()> {
        let mut condition: Option<Expr> = None;
        let mut added = Vec::new();
        for column in columns {
            let column = column.0.last()?.as_ident()?;
            let before = self.take_left(column)?;
            let after = Expr::CompoundIdentifier(vec![right.clone(), column.clone()]);
            self.hidden.push((right.clone(), column.clone()));
            let equality = binary(before.clone(), BinaryOperator::Eq, after.clone());
            condition = Some(match condition {
                None => equality,
                Some(condition) => binary(condition, BinaryOperator::And, equality),
            });
            let value = match side {
                Side::Left => before,
                Side::Right => after,
                Side::Both => call("coalesce", vec![before, after]),
            };
            added.push((column.clone(), value));
        }
        self.keeps_left &= matches!(side, Side::Left);
        self.conditions.push((number, condition?));
        added.append(&mut self.merged);
        self.merged = added;
        Some(())
    }

    /// What a name means left of a join; from then on it is the join's.
    fn take_left(&mut self, column: &Ident) -> Option<Expr> {
        let name = folded(column);
        if let Some(place) = self.merged.iter().position(|(c, _)| folded(c) == name) {
            return Some(self.merged.remove(place).1);
        }
        let [only] = self.relations.as_slice() else {
            return None;
        };
        self.hidden.push((only.clone(), column.clone()));
        Some(Expr::CompoundIdentifier(vec![only.clone(), column.clone()]))
    }

    fn hidden_of(&self, relation: &Ident) -> Vec<ObjectName> {
        let of = self.hidden.iter().filter(|(r, _)| r == relation);
        of.map(|(_, column)| ObjectName::from(vec![column.clone()]))
            .collect()
    }

    /// Conditions in the place of a chain's USINGs; those that stand beside them may name merged
    /// columns.
    fn put_conditions(&self, from: &mut TableWithJoins, merged: &mut Merged) {
        for (number, join) in from.joins.iter_mut().enumerate() {
            let Some(constraint) = constraint_of(&mut join.join_operator) else {
                continue;
            };
            let using = self.conditions.iter().find(|(n, _)| *n == number);
            match (using, &mut *constraint) {
                (Some((_, condition)), _) if self.conditions.len() > 1 => {
                    *constraint = JoinConstraint::On(condition.clone());
                }
                (None, JoinConstraint::On(condition)) => merged.put_into(condition),
                _ => {}
            }
        }
    }
}

/// Whose rows all are in a join's result.
#[derive(Clone, Copy)]
enum Side {
    /// An inner join too, whose columns are equal.
    Left,
    Right,
    Both,
}

fn side_of(operator: &JoinOperator) -> Option<(Side, &JoinConstraint)> {
    Some(match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::CrossJoin(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c) => (Side::Left, c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (Side::Right, c),
        JoinOperator::FullOuter(c) => (Side::Both, c),
        _ => return None,
    })
}

/// The condition of a join that may have USING or NATURAL.
pub(crate) fn constraint_of(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
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

fn name_of(relation: &TableFactor) -> Option<Ident> {
    match relation {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => Some(Ident::with_quote('"', last_part(name))),
        _ => None,
    }
}

struct Merged {
    columns: Vec<(Ident, Expr)>,
    /// subqueries around; what is inside has columns of its own
    depth: usize,
}

impl Merged {
    fn value_of(&self, name: &Ident) -> Option<&Expr> {
        let name = folded(name);
        self.columns
            .iter()
            .find(|(column, _)| folded(column) == name)
            .map(|(_, value)| value)
    }

    fn put_into(&mut self, tree: &mut impl VisitMut) {
        let walked = tree.visit(self);
        assert!(walked.is_continue(), "the walk never stops early");
    }

    /// A merged column keeps its name.
    fn keep_name(&self, item: &mut SelectItem) {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && self.value_of(name).is_some()
        {
            *item = SelectItem::ExprWithAlias {
                expr: Expr::Identifier(name.clone()),
                alias: name.clone(),
            };
        }
    }
}

impl VisitorMut for Merged {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expression
            && self.depth == 0
            && let Some(value) = self.value_of(name)
        {
            *expression = value.clone();
        }
        ControlFlow::Continue(())
    }
}
