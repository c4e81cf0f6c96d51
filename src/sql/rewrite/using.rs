//! `JOIN … USING (c)` and `NATURAL JOIN`: one column in the place of two, as PostgreSQL merges them.
//!
//! ```text
//! x JOIN y, x LEFT JOIN y    c  →  x.c                x.c = y.c in the join's condition
//! x RIGHT JOIN y             c  →  y.c
//! x FULL JOIN y              c  →  coalesce(x.c, y.c)
//! *                          →  c, x.* without c, y.* without c
//! x JOIN y USING (c) AS u    u.c  →  what c is
//! ```
//! What the engine makes of USING differs: it takes the column of the first alias by the alphabet,
//! also where that is NULL, in that one's place, and finds names ambiguous in chains. So every such
//! join gets a condition here, and names mean what they mean in PostgreSQL. Which columns the
//! relations have is told by the caller (`session/merged_joins.rs`), since it takes a catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins,
    Value, WildcardAdditionalOptions,
};

use super::merged_names::Merged;
use super::trees::{binary, call};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::folded;
use crate::sql::join_alias;
use crate::types::SqlType;

/// A relation in FROM: what its columns are called by, and their names and types in order.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub name: Ident,
    pub columns: Vec<(String, Option<SqlType>)>,
}

/// The columns of FROM in queries within the select, by [`from_text`]; none where nobody knows.
pub(crate) type InnerColumns = BTreeMap<String, Option<BTreeSet<String>>>;

/// What tells one FROM from another.
pub(crate) fn from_text(select: &Select) -> String {
    let items: Vec<String> = select.from.iter().map(ToString::to_string).collect();
    items.join(", ")
}

/// Whether a select has a join that merges columns, and none of a kind that is not known here.
pub(crate) fn merges(select: &Select) -> bool {
    let joins: Vec<_> = select.from.iter().flat_map(joins_of).collect();
    joins.iter().all(|join| side_of(join).is_some())
        && joins.iter().any(|join| merges_columns(join))
}

/// A bracketed join with a name is a subquery: what is in it has no name outside.
pub(crate) fn named_joins_as_queries(select: &mut Select) {
    fn within(from: &mut TableWithJoins) {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            let TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } = factor
            else {
                continue;
            };
            within(table_with_joins);
            if !joins_of(table_with_joins).into_iter().any(merges_columns) {
                continue;
            }
            let Some(alias) = alias.take() else { continue };
            let mut query = super::trees::template("SELECT * FROM input");
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.from = vec![table_with_joins.as_ref().clone()];
            }
            *factor = super::trees::derived(query, alias);
        }
    }
    select.from.iter_mut().for_each(within);
}

/// The relations of FROM in their order, through brackets.
pub(crate) fn leaves_of(from: &[TableWithJoins]) -> Vec<&TableFactor> {
    let mut leaves = Vec::new();
    for item in from {
        let joined = item.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&item.relation).chain(joined) {
            match factor {
                TableFactor::NestedJoin {
                    table_with_joins,
                    alias: None,
                } => leaves.extend(leaves_of(std::slice::from_ref(table_with_joins))),
                other => leaves.push(other),
            }
        }
    }
    leaves
}

/// The relation that comes after those of the `leaves`, with columns in the place of merged names.
pub(crate) fn lateral(
    from: &[TableWithJoins],
    leaves: &[Leaf],
    inner: &InnerColumns,
) -> Option<TableFactor> {
    let mut from = from.to_vec();
    let mut chains = Chains::new(leaves.to_vec(), inner);
    for item in &mut from {
        match chains.item(item) {
            Ok(columns) => chains.before.extend(columns),
            // It has come to the relation, whose columns nobody knows.
            Err(_) => break,
        }
    }
    leaves_of(&from)
        .get(leaves.len())
        .map(|relation| (*relation).clone())
}

/// Conditions in the place of the merging joins of a select, and what merged columns are in the
/// place of their bare names and of `*`. The `leaves` are those of [`leaves_of`].
pub(crate) fn merge<'a>(
    select: &mut Select,
    leaves: Vec<Leaf>,
    inner: &'a InnerColumns,
) -> Result<Merged<'a>> {
    let mut from = take(&mut select.from);
    let relations = leaves.clone();
    let mut chains = Chains::new(leaves, inner);
    for item in &mut from {
        let columns = chains.item(item)?;
        chains.before.extend(columns);
    }
    let (columns, named) = (chains.before, chains.named);
    let mut items = Vec::new();
    for item in take(&mut select.projection) {
        let of_all = expanded(&item, &columns);
        let expanded = of_all.or_else(|| expanded_relation(&item, &relations, &named));
        match expanded {
            Some(expanded) => items.extend(expanded),
            None => items.push(item),
        }
    }
    select.projection = items;
    let mut merged = Merged::of(&columns, &named, inner);
    for item in &mut select.projection {
        merged.keep_name(item);
    }
    merged.put_into(select);
    select.from = from;
    Ok(merged)
}

/// A column that a bare name or `*` finds.
#[derive(Clone)]
pub(super) struct Column {
    pub name: String,
    pub value: Expr,
    sql_type: Option<SqlType>,
    pub is_merged: bool,
}

/// The merged columns of a join, under a name of their own.
#[derive(Clone)]
pub(super) struct Named {
    pub alias: String,
    pub columns: Vec<Column>,
}

/// The joins of a FROM, from left to right.
struct Chains<'a> {
    leaves: std::vec::IntoIter<Leaf>,
    /// The columns of the items before.
    before: Vec<Column>,
    named: Vec<Named>,
    inner: &'a InnerColumns,
}

impl<'a> Chains<'a> {
    fn new(leaves: Vec<Leaf>, inner: &'a InnerColumns) -> Self {
        Self {
            leaves: leaves.into_iter(),
            before: Vec::new(),
            named: Vec::new(),
            inner,
        }
    }

    fn item(&mut self, from: &mut TableWithJoins) -> Result<Vec<Column>> {
        let mut left = self.relation(&mut from.relation, &[])?;
        for join in &mut from.joins {
            let right = self.relation(&mut join.relation, &left)?;
            left = self.join(left, right, &mut join.join_operator)?;
        }
        Ok(left)
    }

    /// The columns of a relation; a LATERAL one may name merged columns left of it.
    fn relation(&mut self, factor: &mut TableFactor, left: &[Column]) -> Result<Vec<Column>> {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            return self.item(table_with_joins);
        }
        let sees_left = match factor {
            TableFactor::Derived { lateral, .. } => *lateral,
            TableFactor::Table { args, .. } => args.is_some(),
            TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
            _ => false,
        };
        if sees_left {
            let visible = [&self.before[..], left].concat();
            Merged::of(&visible, &self.named, self.inner).put_into(factor);
        }
        let leaf = self.leaves.next();
        let leaf = leaf.ok_or_else(|| Error::internal("a relation of FROM has no columns"))?;
        let column = |(name, sql_type): (String, Option<SqlType>)| Column {
            value: Expr::CompoundIdentifier(vec![leaf.name.clone(), quoted(&name)]),
            name,
            sql_type,
            is_merged: false,
        };
        Ok(leaf.columns.into_iter().map(column).collect())
    }

    fn join(
        &mut self,
        mut left: Vec<Column>,
        mut right: Vec<Column>,
        operator: &mut JoinOperator,
    ) -> Result<Vec<Column>> {
        if let JoinOperator::AsOf {
            match_condition, ..
        } = operator
        {
            let both = [&left[..], &right[..]].concat();
            Merged::of(&both, &self.named, self.inner).put_into(match_condition);
        }
        let side = side_of(operator);
        let (Some(side), Some(constraint)) = (side, constraint_of(operator)) else {
            return Ok([left, right].concat());
        };
        let mut alias = None;
        let names = match &mut *constraint {
            JoinConstraint::Using(names) => {
                alias = names.last().and_then(join_alias::of_mark).map(folded);
                names_of(&names[..names.len() - usize::from(alias.is_some())])?
            }
            JoinConstraint::Natural => shared(&left, &right),
            JoinConstraint::On(condition) => {
                left.append(&mut right);
                Merged::of(&left, &self.named, self.inner).put_into(condition);
                return Ok(left);
            }
            JoinConstraint::None => return Ok([left, right].concat()),
        };
        let mut condition: Option<Expr> = None;
        let mut columns = Vec::new();
        for name in names {
            let (before, after) = (
                only(&mut left, &name, "left")?,
                only(&mut right, &name, "right")?,
            );
            let equality = binary(
                before.value.clone(),
                BinaryOperator::Eq,
                after.value.clone(),
            );
            condition = Some(match condition {
                None => equality,
                Some(condition) => binary(condition, BinaryOperator::And, equality),
            });
            columns.push(merged(name, before, after, side));
        }
        self.named.extend(alias.map(|alias| Named {
            alias,
            columns: columns.clone(),
        }));
        let always = || Expr::value(Value::Boolean(true));
        *constraint = JoinConstraint::On(condition.unwrap_or_else(always));
        columns.append(&mut left);
        columns.append(&mut right);
        Ok(columns)
    }
}

/// One column of two. Where their types differ it is of the type that they are compared in; then
/// the other one adds no value, since where one side has no row, neither has it.
fn merged(name: String, before: Column, after: Column, side: Side) -> Column {
    let is_numeric = |t: &Option<SqlType>| matches!(t, Some(SqlType::Numeric { .. }));
    let is_one_type = before.sql_type == after.sql_type
        || is_numeric(&before.sql_type) && is_numeric(&after.sql_type);
    let (first, second) = match side {
        Side::Right => (after, before),
        Side::Left | Side::Both => (before, after),
    };
    let value = match side {
        Side::Left | Side::Right if is_one_type => first.value,
        _ => call("coalesce", vec![first.value, second.value]),
    };
    Column {
        name,
        value,
        sql_type: first.sql_type.filter(|_| is_one_type),
        is_merged: true,
    }
}

fn names_of(names: &[ObjectName]) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        let name = name.0.last().and_then(|part| part.as_ident());
        let name = name.map(folded);
        let name =
            name.ok_or_else(|| Error::new(sqlstate::SYNTAX_ERROR, "USING takes columns' names"))?;
        if found.contains(&name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column name \"{name}\" appears more than once in USING clause"),
            ));
        }
        found.push(name);
    }
    Ok(found)
}

/// The names that both sides have, in the order of the left one.
fn shared(left: &[Column], right: &[Column]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in left {
        let is_shared = right.iter().any(|other| other.name == column.name);
        if is_shared && !names.contains(&column.name) {
            names.push(column.name.clone());
        }
    }
    names
}

/// Takes the one column of a name out of a side.
fn only(columns: &mut Vec<Column>, name: &str, side: &str) -> Result<Column> {
    let mut places = columns.iter().enumerate().filter(|(_, c)| c.name == name);
    let Some((place, _)) = places.next() else {
        return Err(Error::new(
            sqlstate::UNDEFINED_COLUMN,
            format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
        ));
    };
    if places.next().is_some() {
        return Err(Error::new(
            sqlstate::AMBIGUOUS_COLUMN,
            format!("common column name \"{name}\" appears more than once in {side} table"),
        ));
    }
    Ok(columns.remove(place))
}

/// The columns of a `*`, also of one `EXCLUDE`s some.
fn expanded(item: &SelectItem, columns: &[Column]) -> Option<Vec<SelectItem>> {
    let SelectItem::Wildcard(options) = item else {
        return None;
    };
    let excluded: Vec<String> = match &options.opt_exclude {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => names_of(std::slice::from_ref(name)).ok()?,
        Some(ExcludeSelectItem::Multiple(names)) => names_of(names).ok()?,
    };
    let others = WildcardAdditionalOptions {
        opt_exclude: options.opt_exclude.clone(),
        ..WildcardAdditionalOptions::default()
    };
    if *options != others {
        return None;
    }
    let shown = columns.iter().filter(|c| !excluded.contains(&c.name));
    Some(shown.map(shown_as_itself).collect())
}

fn shown_as_itself(column: &Column) -> SelectItem {
    match &column.value {
        Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(column.value.clone()),
        value => SelectItem::ExprWithAlias {
            expr: value.clone(),
            alias: quoted(&column.name),
        },
    }
}

/// The columns of `x.*`: beside a merged column, the engine cannot tell them from it.
fn expanded_relation(
    item: &SelectItem,
    relations: &[Leaf],
    named: &[Named],
) -> Option<Vec<SelectItem>> {
    let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) =
        item
    else {
        return None;
    };
    let name = folded(name.0.last()?.as_ident()?);
    let has_no_options = *options == WildcardAdditionalOptions::default();
    if let Some(merged) = named.iter().find(|merged| merged.alias == name) {
        let shown = merged.columns.iter().map(shown_as_itself);
        return has_no_options.then(|| shown.collect());
    }
    let mut called = relations.iter().filter(|leaf| leaf.name.value == name);
    let (Some(leaf), None) = (called.next(), called.next()) else {
        return None;
    };
    let column = |(column, _): &(String, _)| {
        let parts = vec![leaf.name.clone(), quoted(column)];
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))
    };
    has_no_options.then(|| leaf.columns.iter().map(column).collect())
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// Whose rows all are in a join's result.
#[derive(Clone, Copy)]
enum Side {
    /// An inner join too, whose columns are equal.
    Left,
    Right,
    Both,
}

fn side_of(operator: &JoinOperator) -> Option<Side> {
    Some(match operator {
        JoinOperator::Join(_)
        | JoinOperator::Inner(_)
        | JoinOperator::CrossJoin(_)
        | JoinOperator::Left(_)
        | JoinOperator::LeftOuter(_) => Side::Left,
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Side::Right,
        JoinOperator::FullOuter(_) => Side::Both,
        // It takes no USING.
        JoinOperator::AsOf {
            constraint: JoinConstraint::On(_) | JoinConstraint::None,
            ..
        } => Side::Left,
        _ => return None,
    })
}

fn merges_columns(operator: &JoinOperator) -> bool {
    let (JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)) = operator
    else {
        return false;
    };
    matches!(
        constraint,
        JoinConstraint::Using(_) | JoinConstraint::Natural
    )
}

fn constraint_of(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c)
        | JoinOperator::AsOf { constraint: c, .. } => Some(c),
        _ => None,
    }
}

/// The joins of an item of FROM, also those in brackets.
fn joins_of(from: &TableWithJoins) -> Vec<&JoinOperator> {
    let mut joins: Vec<&JoinOperator> = from.joins.iter().map(|j| &j.join_operator).collect();
    let joined = from.joins.iter().map(|join| &join.relation);
    for factor in std::iter::once(&from.relation).chain(joined) {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        {
            joins.extend(joins_of(table_with_joins));
        }
    }
    joins
}
