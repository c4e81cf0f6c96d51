//! `FULL JOIN … USING (c)`: the merged column is `coalesce(left.c, right.c)`. The engine takes the
//! left one, which is NULL for rows that only the right side has. Absent: chains of several joins,
//! of which one is a full one with USING; they keep the left column.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, JoinConstraint, JoinOperator, Query, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectItem, TableFactor, TableVersion, VisitMut, VisitorMut,
};

use super::trees::call;
use crate::error::{Error, Result};
use crate::sql::asof;
use crate::sql::data_types::{folded, last_part};
use crate::sql::temporal_join;

/// `ASOF JOIN` becomes a left join whose condition is marked, for the rule that plans it.
pub(super) fn mark_asof(select: &mut Select) -> Result<()> {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let JoinOperator::AsOf {
            match_condition,
            constraint,
        } = &join.join_operator
        else {
            continue;
        };
        let marked = call(asof::MARK, vec![match_condition.clone()]);
        let condition = match constraint {
            JoinConstraint::On(condition) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(condition.clone()))),
                op: ast::BinaryOperator::And,
                right: Box::new(marked),
            },
            JoinConstraint::None => marked,
            JoinConstraint::Using(_) | JoinConstraint::Natural => {
                return Err(Error::unsupported("an ASOF JOIN takes ON, not USING")
                    .hint("Write ON l.key = r.key."));
            }
        };
        join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(condition));
    }
    Ok(())
}

/// `JOIN t FOR SYSTEM_TIME AS OF time ON condition` becomes a join whose condition is marked, for
/// the planner of views.
pub(super) fn mark_system_time(select: &mut Select) -> Result<()> {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let TableFactor::Table { version, .. } = &mut join.relation else {
            continue;
        };
        let Some(TableVersion::ForSystemTimeAsOf(time)) = version else {
            continue;
        };
        let (JoinOperator::Join(JoinConstraint::On(condition))
        | JoinOperator::Inner(JoinConstraint::On(condition))
        | JoinOperator::Left(JoinConstraint::On(condition))
        | JoinOperator::LeftOuter(JoinConstraint::On(condition))) = &mut join.join_operator
        else {
            return Err(no_versions());
        };
        *condition = Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(condition.clone()))),
            op: ast::BinaryOperator::And,
            right: Box::new(call(temporal_join::MARK, vec![time.clone()])),
        };
        *version = None;
    }
    Ok(())
}

/// A relation as of a time stands nowhere else.
pub(super) fn refuse_versions(factor: &TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table {
            version: Some(_), ..
        } => Err(no_versions()),
        _ => Ok(()),
    }
}

fn no_versions() -> Error {
    Error::unsupported("FOR SYSTEM_TIME AS OF is not supported here")
        .detail("It stands at the right side of an inner or left join with ON.")
        .hint("Write s JOIN t FOR SYSTEM_TIME AS OF s.time ON s.key = t.key.")
}

/// Puts merged columns in the place of their bare names.
pub(super) fn merge_full_using(select: &mut Select) {
    let mut merged = Merged::default();
    for from in &select.from {
        let [join] = from.joins.as_slice() else {
            continue;
        };
        let JoinOperator::FullOuter(JoinConstraint::Using(columns)) = &join.join_operator else {
            continue;
        };
        let sides = (name_of(&from.relation), name_of(&join.relation));
        let (Some(left), Some(right)) = sides else {
            continue;
        };
        for column in columns {
            let Some(column) = column.0.last().and_then(|part| part.as_ident()) else {
                continue;
            };
            let of = |side: &Ident| Expr::CompoundIdentifier(vec![side.clone(), column.clone()]);
            let value = call("coalesce", vec![of(&left), of(&right)]);
            merged.columns.push((column.clone(), value));
        }
    }
    if merged.columns.is_empty() {
        return;
    }
    for item in &mut select.projection {
        merged.keep_names(item);
        merged.put_into(item);
    }
    if let Some(condition) = &mut select.selection {
        merged.put_into(condition);
    }
    if let Some(condition) = &mut select.having {
        merged.put_into(condition);
    }
    merged.put_into(&mut select.group_by);
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

#[derive(Default)]
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

    /// A merged column keeps its name, and `*` shows it.
    fn keep_names(&self, item: &mut SelectItem) {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if self.value_of(name).is_some() => {
                *item = SelectItem::ExprWithAlias {
                    expr: Expr::Identifier(name.clone()),
                    alias: name.clone(),
                };
            }
            SelectItem::Wildcard(options) => {
                let items = self.columns.iter().map(|(column, value)| {
                    Box::new(ReplaceSelectElement {
                        expr: value.clone(),
                        column_name: column.clone(),
                        as_keyword: true,
                    })
                });
                options.opt_replace = Some(ReplaceSelectItem {
                    items: items.collect(),
                });
            }
            _ => {}
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

    fn post_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expression
            && self.depth == 0
            && let Some(value) = self.value_of(name)
        {
            *expression = value.clone();
        }
        ControlFlow::Continue(())
    }
}
