//! The name of a relation as a value: `row_to_json(t)`, `json_agg(t.*)`, `SELECT t FROM t`.
//!
//! A name that is no column of the select's relations but one of these is a row of all its columns,
//! or the value of a function that gives one. Which columns there are is found out elsewhere
//! (`session/whole_rows.rs`). Absent: names of a relation of a query around, and names in GROUP BY
//! and ORDER BY, where PostgreSQL looks at the output first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, JoinOperator, ObjectName, Query, Select, SelectItem, TableFactor,
    TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::trees::{binary, call, string, take};
use super::using::{Leaf, leaves_of};
use crate::sql::data_types::{folded, last_part};

/// What stands for the names of relations.
pub(crate) type Rows = BTreeMap<String, Row>;

/// The row of a relation.
#[derive(Clone)]
pub(crate) struct Row {
    value: Expr,
    /// A column has the name too: only `name.*` is the row.
    is_column: bool,
}

/// True if an expression of the select may be the name of one of its relations.
pub(crate) fn names_relation(select: &Select) -> bool {
    let factors = leaves_of(&select.from).into_iter();
    let mut naming = Naming {
        names: factors.filter_map(relation_name).collect(),
        depth: 0,
    };
    [
        Visit::visit(&select.projection, &mut naming),
        Visit::visit(&select.selection, &mut naming),
        Visit::visit(&select.having, &mut naming),
        Visit::visit(&select.from, &mut naming),
    ]
    .iter()
    .any(ControlFlow::is_break)
}

/// The rows of the relations of a select.
pub(crate) fn rows_of(select: &Select, leaves: &[Leaf]) -> Rows {
    let is_column = |name: &str| {
        let mut columns = leaves.iter().flat_map(|leaf| &leaf.columns);
        columns.any(|(column, _)| column == name)
    };
    let may_be_missing = has_outer_join(&select.from);
    let factors = leaves_of(&select.from);
    let named = factors.into_iter().zip(leaves);
    named
        .map(|(factor, leaf)| {
            let value = match value_of(factor, leaf) {
                Some(value) => value,
                None if may_be_missing => null_if_missing(leaf),
                None => row_of(leaf),
            };
            let is_column = is_column(&leaf.name.value);
            (leaf.name.value.clone(), Row { value, is_column })
        })
        .collect()
}

/// Puts the rows in the place of the names.
pub(crate) fn put_rows(select: &mut Select, rows: &Rows) {
    for item in &mut select.projection {
        // An output that is a row is called by the relation.
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(row) = bare_row(rows, name)
        {
            *item = SelectItem::ExprWithAlias {
                expr: row.clone(),
                alias: Ident::with_quote('"', folded(name)),
            };
        }
    }
    let mut putting = Putting {
        rows,
        depth: 0,
        members: Vec::new(),
    };
    let walked = [
        VisitMut::visit(&mut select.projection, &mut putting),
        VisitMut::visit(&mut select.selection, &mut putting),
        VisitMut::visit(&mut select.having, &mut putting),
        VisitMut::visit(&mut select.from, &mut putting),
    ];
    assert!(
        walked.iter().all(ControlFlow::is_continue),
        "the walk never stops early"
    );
}

/// The row that a name alone is.
fn bare_row<'r>(rows: &'r Rows, name: &Ident) -> Option<&'r Expr> {
    let row = rows.get(&folded(name)).filter(|row| !row.is_column);
    row.map(|row| &row.value)
}

fn relation_name(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(a), .. }
        | TableFactor::Derived { alias: Some(a), .. }
        | TableFactor::Function { alias: Some(a), .. }
        | TableFactor::UNNEST { alias: Some(a), .. } => Some(folded(&a.name)),
        TableFactor::Table { name, .. } => Some(last_part(name)),
        _ => None,
    }
}

fn has_outer_join(from: &[TableWithJoins]) -> bool {
    use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
    let mut joins = from.iter().flat_map(|item| &item.joins);
    joins.any(|join| {
        let operator = &join.join_operator;
        matches!(
            operator,
            Left(_) | LeftOuter(_) | Right(_) | RightOuter(_) | FullOuter(_)
        ) || matches!(&join.relation, TableFactor::NestedJoin { table_with_joins, .. }
            if has_outer_join(std::slice::from_ref(table_with_joins)))
    })
}

fn column_of(leaf: &Leaf, name: &str) -> Expr {
    let name = Ident::with_quote('"', name);
    Expr::CompoundIdentifier(vec![leaf.name.clone(), name])
}

/// The value of a function that gives one column.
fn value_of(factor: &TableFactor, leaf: &Leaf) -> Option<Expr> {
    let is_call = matches!(
        factor,
        TableFactor::Table { args: Some(_), .. }
            | TableFactor::Function { .. }
            | TableFactor::UNNEST { .. }
    );
    match leaf.columns.as_slice() {
        [(name, _)] if is_call => Some(column_of(leaf, name)),
        _ => None,
    }
}

fn row_of(leaf: &Leaf) -> Expr {
    let members = leaf.columns.iter();
    let members = members.flat_map(|(name, _)| [string(name.clone()), column_of(leaf, name)]);
    call("named_struct", members.collect())
}

/// NULL for the side of an outer join that has no row; a row of nothing but NULL is taken for none.
fn null_if_missing(leaf: &Leaf) -> Expr {
    let columns = leaf.columns.iter();
    let are_null = columns
        .map(|(name, _)| Expr::IsNull(Box::new(column_of(leaf, name))))
        .reduce(|all, one| binary(all, BinaryOperator::And, one));
    match are_null {
        None => row_of(leaf),
        Some(condition) => Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen {
                condition,
                result: Expr::value(Value::Null),
            }],
            else_result: Some(Box::new(row_of(leaf))),
        },
    }
}

/// Stops at the name of a relation in the expressions of one select, not of those within it.
struct Naming {
    names: BTreeSet<String>,
    depth: usize,
}

impl Visitor for Naming {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.depth += usize::from(takes_relation(factor));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.depth -= usize::from(takes_relation(factor));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        let is_named = match expression {
            _ if self.depth > 0 => false,
            Expr::Identifier(name) => self.names.contains(&folded(name)),
            Expr::Function(function) => wildcards_of(function)
                .into_iter()
                .any(|name| self.names.contains(&last_part(name))),
            _ => false,
        };
        match is_named {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// A window over a relation, whose name among the arguments is the relation itself.
fn takes_relation(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, args: Some(_), .. }
        if matches!(last_part(name).as_str(), "tumble" | "hop" | "session"))
}

/// `t` of arguments `t.*`.
fn wildcards_of(function: &Function) -> Vec<&ObjectName> {
    let FunctionArguments::List(list) = &function.args else {
        return Vec::new();
    };
    let arguments = list.args.iter();
    let names = arguments.filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => Some(name),
        _ => None,
    });
    names.collect()
}

/// Puts rows in the place of names where [`Naming`] looks for them.
struct Putting<'a> {
    rows: &'a Rows,
    depth: usize,
    /// Names after dots of the accesses around, which are no names of relations.
    members: Vec<Vec<Expr>>,
}

impl VisitorMut for Putting<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.depth += usize::from(takes_relation(factor));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.depth -= usize::from(takes_relation(factor));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        self.begin_with_column(expression);
        if let Expr::CompoundFieldAccess { access_chain, .. } = expression {
            let mut members = Vec::new();
            for access in access_chain {
                if let AccessExpr::Dot(member @ Expr::Identifier(_)) = access {
                    members.push(std::mem::replace(member, Expr::value(Value::Null)));
                }
            }
            self.members.push(members);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::CompoundFieldAccess { access_chain, .. } => self.put_back(access_chain),
            _ if self.depth > 0 => {}
            Expr::Identifier(name) => {
                if let Some(row) = bare_row(self.rows, name) {
                    *expression = row.clone();
                }
            }
            Expr::Function(function) => self.put_into(function),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Putting<'_> {
    /// `(t).a`, and `t.a[1]`, which is parsed as an element of a member of `t`, begin with the column `t.a`.
    fn begin_with_column(&self, expression: &mut Expr) {
        let Expr::CompoundFieldAccess { root, access_chain } = expression else {
            return;
        };
        let bare = match root.as_ref() {
            Expr::Nested(inner) => inner.as_ref(),
            bare => bare,
        };
        if let (Expr::Identifier(relation), Some(AccessExpr::Dot(Expr::Identifier(column)))) =
            (bare, access_chain.first())
            && bare_row(self.rows, relation).is_some()
        {
            let parts = vec![relation.clone(), column.clone()];
            **root = Expr::CompoundIdentifier(parts);
            access_chain.remove(0);
            if access_chain.is_empty() {
                *expression = take(root);
            }
        }
    }

    fn put_back(&mut self, access_chain: &mut [AccessExpr]) {
        let mut members = self.members.pop().unwrap_or_default().into_iter();
        for access in access_chain {
            if let AccessExpr::Dot(member) = access
                && matches!(member, Expr::Value(value) if value.value == Value::Null)
                && let Some(name) = members.next()
            {
                *member = name;
            }
        }
    }

    fn put_into(&self, function: &mut Function) {
        let FunctionArguments::List(list) = &mut function.args else {
            return;
        };
        for argument in &mut list.args {
            if let FunctionArg::Unnamed(value) = argument
                && let FunctionArgExpr::QualifiedWildcard(name) = value
                && let Some(row) = self.rows.get(&last_part(name))
            {
                *value = FunctionArgExpr::Expr(row.value.clone());
            }
        }
    }
}
