//! Names of output columns, as PostgreSQL's parser chooses them (its rule: "Column Aliases" in the
//! documentation of SELECT, and what `psql` shows).

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, Distinct, Expr, Ident, OrderByKind,
    Query, SelectItem, SetExpr, Subscript, TrimWhereField, Value,
};

use super::trees::{number, take};
use crate::sql::data_types::{folded, last_part};
use crate::types::SqlType;

/// What an expression without a name of its own is called.
const UNNAMED: &str = "?column?";

/// Begins the suffix that keeps equal names apart; no name that a user types has this character.
pub(super) const SUFFIX: char = '\u{1}';

/// A plan's field name as the client sees it.
pub fn display_name(field_name: &str) -> &str {
    match field_name.split_once(SUFFIX) {
        Some((name, _)) => name,
        None => field_name,
    }
}

/// Where a list of columns stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What the client gets: a column may be listed beside a `*` that has it too.
    Top,
    /// A subquery, whose columns are referred to by name.
    Inner,
}

/// Names the columns that the client gets.
pub(super) fn name_top_level(query: &mut Query) {
    keep_order_of_distinct(query);
    keep_inputs_beside_sets(query);
    super::order::rename_at_top(query);
    let mut body = query.body.as_mut();
    loop {
        match body {
            SetExpr::Select(select) => {
                for item in &mut select.projection {
                    super::postgres::show_object_names(item);
                }
                return name_items(&mut select.projection, Level::Top);
            }
            SetExpr::SetOperation { left, .. } => body = left.as_mut(),
            SetExpr::Query(inner) => body = inner.body.as_mut(),
            _ => return,
        }
    }
}

/// `SELECT unnest(a), upper(c) AS c FROM t`: the engine computes `upper(c)` beside the columns that
/// it comes from, where two of one name are one too many.
fn keep_inputs_beside_sets(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    let holds_set = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
            super::sets::holds_set_function(e)
        }
        _ => false,
    };
    if !select.projection.iter().any(holds_set) {
        return;
    }
    for (index, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = item else {
            continue;
        };
        let name = folded(alias);
        let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        if is_column || !super::sets::names_column(expr, &name) {
            continue;
        }
        if let Some(OrderByKind::Expressions(orders)) = query.order_by.as_mut().map(|o| &mut o.kind)
        {
            for order in orders {
                if matches!(&order.expr, Expr::Identifier(i) if folded(i) == name) {
                    order.expr = number(index + 1);
                }
            }
        }
        *alias = Ident::with_quote('"', format!("{name}{SUFFIX}of input"));
    }
}

/// Gives every item a name, and keeps equal names apart.
pub(super) fn name_items(items: &mut [SelectItem], level: Level) {
    let has_wildcard = items.iter().any(|i| {
        matches!(
            i,
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
        )
    });
    let mut seen: HashMap<String, usize> = HashMap::new();
    for item in items {
        let (expression, given) = match item {
            SelectItem::UnnamedExpr(e) => (e, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(folded(alias))),
            _ => continue,
        };
        let is_column = matches!(
            expression,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_)
        );
        let explicit = given.is_some();
        let name = given.unwrap_or_else(|| figure(expression));
        // Names that this pass gave in an earlier one keep their suffix.
        if display_name(&name) != name {
            continue;
        }
        let count = seen.entry(name.clone()).or_insert(0);
        *count += 1;
        let beside_wildcard = has_wildcard && level == Level::Top && is_column && !explicit;
        if *count == 1 && (explicit || is_column) && !beside_wildcard {
            continue;
        }
        let alias = if *count > 1 || beside_wildcard {
            format!("{name}{SUFFIX}{count}")
        } else {
            name
        };
        *item = SelectItem::ExprWithAlias {
            expr: take(expression),
            alias: Ident::with_quote('"', alias),
        };
    }
}

/// `SELECT DISTINCT f(x) … ORDER BY f(x)`: once the column has a name, the order must say it.
pub(super) fn keep_order_of_distinct(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return;
    };
    if !matches!(select.distinct, Some(Distinct::Distinct)) {
        return;
    }
    let Some(OrderByKind::Expressions(orders)) = query.order_by.as_mut().map(|o| &mut o.kind)
    else {
        return;
    };
    for order in orders {
        let at = select
            .projection
            .iter()
            .position(|item| matches!(item, SelectItem::UnnamedExpr(e) if *e == order.expr));
        if let Some(at) = at {
            order.expr = number(at + 1);
        }
    }
}

/// The name of an expression.
pub(super) fn figure(expression: &Expr) -> String {
    named(expression).map_or_else(|| UNNAMED.to_owned(), |(name, _)| name)
}

/// How much a name says: a cast over a column keeps the column's name, over a call too, but over a
/// constant it takes the type's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Weak,
    Strong,
}

fn named(expression: &Expr) -> Option<(String, Strength)> {
    let strong = |name: &str| Some((name.to_owned(), Strength::Strong));
    match expression {
        Expr::Identifier(i) => Some((folded(i), Strength::Strong)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|i| (folded(i), Strength::Strong)),
        Expr::CompoundFieldAccess { root, access_chain } => access_chain
            .iter()
            .rev()
            .find_map(|access| match access {
                AccessExpr::Dot(e) => named(e),
                AccessExpr::Subscript(Subscript::Index { .. } | Subscript::Slice { .. }) => None,
            })
            .or_else(|| named(root)),
        Expr::Function(f) => strong(&last_part(&f.name)),
        Expr::Cast {
            expr, data_type, ..
        } => match named(expr) {
            Some((name, Strength::Strong)) => Some((name, Strength::Strong)),
            _ => Some((type_name(data_type), Strength::Weak)),
        },
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), Strength::Weak)),
        Expr::Interval(_) => Some(("interval".into(), Strength::Weak)),
        Expr::Value(v) => match v.value {
            Value::Boolean(_) => Some(("bool".into(), Strength::Weak)),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => named(inner),
        Expr::Case { else_result, .. } => match else_result.as_ref().and_then(|e| named(e)) {
            Some((name, Strength::Strong)) => Some((name, Strength::Strong)),
            _ => Some(("case".into(), Strength::Weak)),
        },
        Expr::Exists { .. } => strong("exists"),
        Expr::Subquery(query) => subquery_name(&query.body).map(|n| (n, Strength::Strong)),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Substring {
            shorthand: true, ..
        } => strong("substr"),
        Expr::Substring { .. } => strong("substring"),
        Expr::IsNormalized { .. } => strong("is_normalized"),
        Expr::BinaryOp {
            op: BinaryOperator::Overlaps,
            ..
        } => strong("overlaps"),
        Expr::Position { .. } => strong("position"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        _ => None,
    }
}

/// The name of a scalar subquery's only column.
fn subquery_name(body: &SetExpr) -> Option<String> {
    match body {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(e) => named(e).map(|(name, _)| name),
            SelectItem::ExprWithAlias { alias, .. } => {
                Some(display_name(&folded(alias)).to_owned())
            }
            _ => None,
        },
        SetExpr::Query(query) => subquery_name(&query.body),
        SetExpr::SetOperation { left, .. } => subquery_name(left),
        _ => None,
    }
}

/// PostgreSQL's internal name of a type (`pg_type.typname`), without an array's brackets.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Custom(name, _) => last_part(name),
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            "varchar".into()
        }
        DataType::Char(_) | DataType::Character(_) => "bpchar".into(),
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item),
        ) => type_name(item),
        other => match crate::sql::data_types::sql_type(other) {
            Ok(sql_type) => internal_name(&sql_type),
            Err(_) => other.to_string().to_lowercase(),
        },
    }
}

fn internal_name(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Boolean => "bool",
        SqlType::SmallInt => "int2",
        SqlType::Integer => "int4",
        SqlType::BigInt => "int8",
        SqlType::Real => "float4",
        SqlType::Double => "float8",
        SqlType::Numeric { .. } => "numeric",
        SqlType::Time => "time",
        SqlType::Timestamp => "timestamp",
        SqlType::TimestampTz => "timestamptz",
        SqlType::Struct(_) => "row",
        SqlType::Array(item) => return internal_name(item),
        SqlType::Text
        | SqlType::Bytea
        | SqlType::Date
        | SqlType::Interval
        | SqlType::Uuid
        | SqlType::Json
        | SqlType::Jsonb => return sql_type.to_string(),
    }
    .to_owned()
}
