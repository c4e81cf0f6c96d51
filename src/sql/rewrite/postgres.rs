//! PostgreSQL's operators, casts and literals that DataFusion does not know.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DataType, Expr, FunctionArguments, Ident, ObjectName, Query,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, Value, ValueWithSpan,
};

use super::{call, numbers, string, template};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::last_part;
use crate::sql::functions::patterns;
use crate::values::interval::Interval;

/// PostgreSQL's types of catalog identifiers, and the name that functions for them carry.
const OBJECT_TYPES: &[(&str, &str)] = &[
    ("regclass", "regclass"),
    ("regtype", "regtype"),
    ("regproc", "regproc"),
    ("regprocedure", "regproc"),
    ("regnamespace", "regnamespace"),
    ("regrole", "regrole"),
];

/// Names that are functions when they stand without parentheses.
const BARE_FUNCTIONS: &[&str] = &["current_schema", "current_role", "localtimestamp"];

/// Functions that give an integer in PostgreSQL.
const WHOLE_RESULTS: &[&str] = &[
    "array_length",
    "array_ndims",
    "array_position",
    "cardinality",
];

/// Functions under their PostgreSQL names, where DataFusion has them under another.
const SYNONYMS: &[(&str, &str)] = &[
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("transaction_timestamp", "now"),
    ("statement_timestamp", "now"),
    ("clock_timestamp", "now"),
];

/// What must be changed before the children are.
pub(super) fn before_children(expression: &mut Expr) -> Result<()> {
    match expression {
        Expr::Identifier(ident) if ident.quote_style.is_none() => {
            let name = ident.value.to_ascii_lowercase();
            if BARE_FUNCTIONS.contains(&name.as_str()) {
                *expression = call(&name, vec![]);
            }
        }
        Expr::Cast {
            expr,
            data_type: DataType::Interval { .. },
            ..
        } => {
            if let Some(text) = string_constant(expr) {
                *expression = interval_of(&text)?;
            }
        }
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::Interval { .. }) => {
            if let Some(text) = typed.value.value.clone().into_string() {
                *expression = interval_of(&text)?;
            }
        }
        Expr::Interval(written) => interval(written)?,
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
            if let Some(text) = string_constant(right)
                && text.trim_start().starts_with('{')
            {
                **right = array(&text)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// What is changed after the children are.
pub(super) fn after_children(expression: &mut Expr) -> Result<()> {
    match expression {
        Expr::Collate { expr, .. } => {
            let inner = take(expr);
            *expression = inner;
        }
        Expr::BinaryOp { op, right, .. } => {
            if matches!(op, BinaryOperator::Arrow | BinaryOperator::LongArrow) {
                numbers::bare(right);
            }
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op {
                *op = operator(parts)?;
            }
            power(expression);
        }
        Expr::Function(function) => {
            strip_catalog(&mut function.name);
            if matches!(function.args, FunctionArguments::Subquery(_)) {
                return array_of_subquery(expression);
            }
            numbers::bare_arguments(function);
            rank(expression);
            modulo(expression);
            whole_result(expression);
            time_function(expression);
        }
        Expr::Cast { .. } => {
            cast(expression);
            shorten(expression);
            numbers::bare_numeric(expression);
        }
        Expr::TypedString(_) => numbers::bare_numeric(expression),
        Expr::Extract { .. } => extract(expression),
        Expr::Substring { .. } => substring(expression),
        Expr::Array(array) if super::sets::refers_to_columns(&array.elem) => {
            // The planner looks for the columns of a literal in the innermost query only.
            *expression = call("make_array", std::mem::take(&mut array.elem));
        }
        Expr::UnaryOp { .. } => sign_operator(expression),
        Expr::Value(value) => {
            if let Value::UnicodeStringLiteral(text) = &mut value.value {
                value.value = Value::SingleQuotedString(std::mem::take(text));
            }
        }
        Expr::Like { .. } | Expr::ILike { .. } => escape(expression)?,
        Expr::SimilarTo { .. } => similar_to(expression)?,
        Expr::AtTimeZone {
            timestamp,
            time_zone,
        } => {
            *expression = call("timezone", vec![take(time_zone), take(timestamp)]);
        }
        _ => {}
    }
    Ok(())
}

/// `TABLE t` is `SELECT * FROM t`.
pub(super) fn table_as_select(body: &mut SetExpr) {
    match body {
        SetExpr::Table(table) => {
            let name = table.table_name.clone().unwrap_or_default();
            let parts = table.schema_name.iter().cloned().chain([name]);
            let parts = parts.map(Ident::new).collect::<Vec<_>>();
            let mut query: Query = template("SELECT * FROM input");
            if let SetExpr::Select(select) = query.body.as_mut()
                && let Some(from) = select.from.first_mut()
                && let TableFactor::Table { name, .. } = &mut from.relation
            {
                *name = ObjectName::from(parts);
            }
            *body = *query.body;
        }
        SetExpr::SetOperation { left, right, .. } => {
            table_as_select(left);
            table_as_select(right);
        }
        _ => {}
    }
}

/// `FETCH FIRST n ROWS ONLY` is `LIMIT n`.
pub(super) fn fetch_as_limit(query: &mut Query) -> Result<()> {
    let Some(fetch) = query.fetch.take() else {
        return Ok(());
    };
    if fetch.with_ties || fetch.percent {
        return Err(Error::unsupported(
            "FETCH FIRST … WITH TIES or PERCENT is not supported",
        ));
    }
    let count = fetch
        .quantity
        .unwrap_or_else(|| Expr::value(Value::Number("1".to_owned(), false)));
    match &mut query.limit_clause {
        Some(ast::LimitClause::LimitOffset { limit, .. }) if limit.is_none() => {
            *limit = Some(count);
        }
        None => {
            query.limit_clause = Some(ast::LimitClause::LimitOffset {
                limit: Some(count),
                offset: None,
                limit_by: vec![],
            });
        }
        Some(_) => {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "multiple LIMIT clauses not allowed",
            ));
        }
    }
    Ok(())
}

/// An output column of an object type is shown as the object's name.
pub(super) fn show_object_names(item: &mut SelectItem) {
    let (SelectItem::UnnamedExpr(expression)
    | SelectItem::ExprWithAlias {
        expr: expression, ..
    }) = item
    else {
        return;
    };
    let is_object =
        matches!(expression, Expr::Cast { data_type, .. } if object_type(data_type).is_some());
    if is_object {
        let inner = std::mem::replace(expression, Expr::value(Value::Null));
        *expression = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(inner),
            data_type: DataType::Text,
            array: false,
            format: None,
        };
    }
}

fn take(expression: &mut Expr) -> Expr {
    std::mem::replace(expression, Expr::value(Value::Null))
}

pub(super) fn string_constant(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(_)
            | Value::EscapedStringLiteral(_)
            | Value::DollarQuotedString(_) => v.value.clone().into_string(),
            _ => None,
        },
        Expr::Nested(inner) => string_constant(inner),
        _ => None,
    }
}

/// `pg_catalog.f` is `f`, and a synonym is what it means.
fn strip_catalog(name: &mut ObjectName) {
    let is_catalog = name.0.len() == 2 && name.0[0].to_string().eq_ignore_ascii_case("pg_catalog");
    if is_catalog {
        name.0.remove(0);
    }
    if name.0.len() == 1 {
        let plain = last_part(name);
        if let Some((_, meaning)) = SYNONYMS.iter().find(|(n, _)| *n == plain) {
            *name = ObjectName::from(vec![Ident::new(*meaning)]);
        }
    }
}

/// `OPERATOR(pg_catalog.~)`.
fn operator(parts: &[String]) -> Result<BinaryOperator> {
    let symbol = match parts {
        [symbol] => symbol,
        [schema, symbol] if schema.eq_ignore_ascii_case("pg_catalog") => symbol,
        _ => return Err(no_operator(&parts.join("."))),
    };
    Ok(match symbol.as_str() {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "@>" => BinaryOperator::AtArrow,
        "<@" => BinaryOperator::ArrowAt,
        "->" => BinaryOperator::Arrow,
        "->>" => BinaryOperator::LongArrow,
        other => return Err(no_operator(other)),
    })
}

fn no_operator(symbol: &str) -> Error {
    Error::new(
        sqlstate::UNDEFINED_FUNCTION,
        format!("operator does not exist: {symbol}"),
    )
}

/// The suffix of the functions for an object type.
fn object_type(data_type: &DataType) -> Option<&'static str> {
    let name = match data_type {
        DataType::Regclass => "regclass".to_owned(),
        DataType::Custom(name, _) => last_part(name),
        _ => return None,
    };
    OBJECT_TYPES
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, suffix)| *suffix)
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Text | DataType::Varchar(_) | DataType::CharacterVarying(_) => true,
        DataType::Custom(name, _) => {
            matches!(last_part(name).as_str(), "text" | "varchar" | "name")
        }
        _ => false,
    }
}

/// `x::regclass` gives the object's number, `x::regclass::text` its name; `x::uuid` parses.
fn cast(expression: &mut Expr) {
    let Expr::Cast {
        expr, data_type, ..
    } = expression
    else {
        return;
    };
    if let Some(suffix) = object_type(data_type) {
        let inner = take(expr);
        *expression = call(&format!("to_{suffix}_oid"), vec![inner]);
    } else if is_text(data_type) {
        if let Some(suffix) = object_function(expr) {
            let inner = take(expr);
            *expression = call(&format!("oid_to_{suffix}_text"), vec![inner]);
        }
    } else if matches!(data_type, DataType::Uuid)
        || matches!(data_type, DataType::Custom(name, _) if last_part(name) == "uuid")
    {
        let inner = take(expr);
        *expression = call("to_uuid", vec![inner]);
    }
}

/// The object type of a call that [`cast`] made of an inner cast.
fn object_function(expression: &Expr) -> Option<&'static str> {
    match expression {
        Expr::Nested(inner) => object_function(inner),
        Expr::Function(f) => {
            let name = last_part(&f.name);
            let suffix = name.strip_prefix("to_")?.strip_suffix("_oid")?;
            OBJECT_TYPES
                .iter()
                .find(|(_, s)| *s == suffix)
                .map(|(_, s)| *s)
        }
        _ => None,
    }
}

/// A constant's text as an interval that the engine reads; texts of other types are read by their
/// input functions when the query is planned. Windows need the interval before that.
fn interval_of(text: &str) -> Result<Expr> {
    Ok(Expr::Interval(ast::Interval {
        value: Box::new(string(interval_text(text)?)),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

/// The text itself where it is a list of numbers with units, which the engine reads as well.
fn interval_text(text: &str) -> Result<String> {
    let is_plain = {
        let words: Vec<&str> = text.split_whitespace().collect();
        !words.is_empty()
            && words.chunks(2).all(|pair| match pair {
                [number, unit] => {
                    number.parse::<i64>().is_ok()
                        && unit.len() > 1
                        && unit.bytes().all(|b| b.is_ascii_lowercase())
                        && *unit != "ago"
                }
                _ => false,
            })
    };
    let interval = Interval::parse(text)?;
    if is_plain {
        return Ok(text.to_owned());
    }
    Ok(format!(
        "{} months {} days {} microseconds",
        interval.months, interval.days, interval.us
    ))
}

/// `INTERVAL '1 day 02:03'`, `INTERVAL '5' MINUTE`.
fn interval(interval: &mut ast::Interval) -> Result<()> {
    let Some(text) = string_constant(&interval.value) else {
        return Ok(());
    };
    let text = match &interval.leading_field {
        None => text,
        Some(field) if interval.last_field.is_none() && text.trim().parse::<f64>().is_ok() => {
            format!("{} {}", text.trim(), field.to_string().to_ascii_lowercase())
        }
        Some(_) => return Ok(()),
    };
    *interval.value = string(interval_text(&text)?);
    interval.leading_field = None;
    Ok(())
}

/// `mod(a, b)` is `a % b`.
fn modulo(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let FunctionArguments::List(list) = &function.args else {
        return;
    };
    let operands: Vec<Expr> = list
        .args
        .iter()
        .filter_map(|argument| match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Some(e.clone()),
            _ => None,
        })
        .collect();
    if let ("mod", [left, right]) = (last_part(&function.name).as_str(), operands.as_slice()) {
        *expression = binary(
            Expr::Nested(Box::new(left.clone())),
            BinaryOperator::Modulo,
            Expr::Nested(Box::new(right.clone())),
        );
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }))
}

fn cast_to(expression: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(expression),
        data_type,
        array: false,
        format: None,
    }
}

/// `EXTRACT(field FROM time)`.
fn extract(expression: &mut Expr) {
    if let Expr::Extract { field, expr, .. } = expression {
        let name = field.to_string();
        let name = name.trim_matches('\'').to_ascii_lowercase();
        *expression = call("extract_field", vec![string(name), take(expr)]);
    }
}

/// `a ^ b` is a power.
fn power(expression: &mut Expr) {
    if let Expr::BinaryOp {
        left,
        op: BinaryOperator::PGExp,
        right,
    } = expression
    {
        *expression = call("power", vec![take(left), take(right)]);
    }
}

/// `substring(x FROM start FOR length)` as a plain call.
fn substring(expression: &mut Expr) {
    let Expr::Substring {
        expr,
        substring_from,
        substring_for,
        ..
    } = expression
    else {
        return;
    };
    let one = || Box::new(Expr::value(Value::Number("1".to_owned(), false)));
    let start = substring_from.take().unwrap_or_else(one);
    let mut arguments = vec![take(expr), *start];
    arguments.extend(substring_for.take().map(|length| *length));
    *expression = call("substr", arguments);
}

/// Square and cube roots, absolute values.
fn sign_operator(expression: &mut Expr) {
    let Expr::UnaryOp { op, expr } = expression else {
        return;
    };
    let function = match op {
        ast::UnaryOperator::PGSquareRoot => "sqrt",
        ast::UnaryOperator::PGCubeRoot => "cbrt",
        ast::UnaryOperator::PGAbs => "abs",
        _ => return,
    };
    *expression = call(function, vec![take(expr)]);
}

/// Functions whose results the engine counts without a sign, and NULL for the length of nothing.
fn whole_result(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let name = last_part(&function.name);
    if !WHOLE_RESULTS.contains(&name.as_str()) {
        return;
    }
    *expression = cast_to(take(expression), DataType::Int(None));
    if name == "array_length" {
        let nothing = Expr::value(Value::Number("0".to_owned(), false));
        let nothing = cast_to(nothing, DataType::Int(None));
        *expression = call("nullif", vec![take(expression), nothing]);
    }
}

/// `date_part('year', t)`, `age(t)`, `localtimestamp`.
fn time_function(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let name = last_part(&function.name);
    if name == "localtimestamp" {
        let now = call("now", vec![]);
        *expression = cast_to(now, DataType::Timestamp(None, ast::TimezoneInfo::None));
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    match (name.as_str(), list.args.len()) {
        ("date_part" | "datepart", 2) => {
            function.name = ObjectName::from(vec![Ident::new("extract_field")]);
            *expression = cast_to(take(expression), DataType::DoublePrecision);
        }
        ("age", 1) => {
            let today = ast::FunctionArgExpr::Expr(call("current_date", vec![]));
            list.args.insert(0, ast::FunctionArg::Unnamed(today));
        }
        _ => {}
    }
}

/// A cast to `varchar(n)` or `char(n)` cuts what is longer.
fn shorten(expression: &mut Expr) {
    let length = match expression {
        Expr::Cast {
            data_type:
                DataType::Varchar(Some(length))
                | DataType::CharacterVarying(Some(length))
                | DataType::Char(Some(length))
                | DataType::Character(Some(length)),
            ..
        } => *length,
        _ => return,
    };
    if let ast::CharacterLength::IntegerLength { length, .. } = length {
        let text = cast_to(take_operand(expression), DataType::Text);
        let length = Expr::value(Value::Number(length.to_string(), false));
        *expression = call("left", vec![text, length]);
    }
}

fn take_operand(cast: &mut Expr) -> Expr {
    match cast {
        Expr::Cast { expr, .. } => take(expr),
        other => take(other),
    }
}

/// `row_number()` and its like are bigint; the engine counts without a sign.
const RANKS: &[&str] = &["row_number", "rank", "dense_rank"];

/// A ranking window function as bigint.
fn rank(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    if function.over.is_none() || !RANKS.contains(&last_part(&function.name).as_str()) {
        return;
    }
    *expression = cast_to(take(expression), DataType::BigInt(None));
}

/// `'{a,"b c",NULL}'`, one dimension, as `ARRAY['a', 'b c', NULL]`.
fn array(text: &str) -> Result<Expr> {
    let malformed = || {
        Error::new(
            sqlstate::INVALID_TEXT,
            format!("malformed array literal: \"{text}\""),
        )
    };
    let body = text
        .trim()
        .strip_prefix('{')
        .and_then(|t| t.strip_suffix('}'))
        .ok_or_else(malformed)?;
    let elem = array_elements(body)
        .ok_or_else(malformed)?
        .into_iter()
        .map(|e| e.map_or_else(|| Expr::value(Value::Null), string))
        .collect();
    Ok(Expr::Array(ast::Array { elem, named: true }))
}

/// Elements of an array literal's inside; `None` for NULL. `None` as a whole: malformed.
fn array_elements(body: &str) -> Option<Vec<Option<String>>> {
    if body.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut elements = Vec::new();
    let mut characters = body.chars().peekable();
    loop {
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        let mut element = String::new();
        let quoted = characters.next_if_eq(&'"').is_some();
        loop {
            match characters.next() {
                Some('\\') => element.push(characters.next()?),
                Some('"') if quoted => break,
                Some('{' | '}' | '"') if !quoted => return None,
                Some(',') if !quoted => {
                    elements.push(unquoted(&element)?);
                    element.clear();
                    while characters.next_if(|c| c.is_whitespace()).is_some() {}
                    if characters.peek() == Some(&'"') {
                        break;
                    }
                }
                Some(c) => element.push(c),
                None if quoted => return None,
                None => {
                    elements.push(unquoted(&element)?);
                    return Some(elements);
                }
            }
        }
        if quoted {
            elements.push(Some(element));
            while characters.next_if(|c| c.is_whitespace()).is_some() {}
            match characters.next() {
                None => return Some(elements),
                Some(',') => {}
                Some(_) => return None,
            }
        }
    }
}

fn unquoted(element: &str) -> Option<Option<String>> {
    let element = element.trim();
    match element {
        "" => None,
        e if e.eq_ignore_ascii_case("null") => Some(None),
        e => Some(Some(e.to_owned())),
    }
}

/// `ARRAY(SELECT …)`. The subquery's ORDER BY becomes the aggregate's, since a relation has no
/// order of its own:
///
/// ```text
/// ARRAY(SELECT x FROM t ORDER BY y DESC)
///   → (SELECT array_agg(element ORDER BY order_1 DESC)
///      FROM (SELECT x, y AS order_1 FROM t ORDER BY y DESC) AS elements (element, order_1))
/// ```
fn array_of_subquery(expression: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expression else {
        return Ok(());
    };
    if last_part(&function.name) != "array" {
        return Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            format!(
                "a query as the argument of {} needs parentheses of its own",
                function.name
            ),
        ));
    }
    let FunctionArguments::Subquery(mut query) =
        std::mem::replace(&mut function.args, FunctionArguments::None)
    else {
        return Ok(());
    };
    let orders = order_columns(&mut query);
    let mut element = call("array_agg", vec![Expr::Identifier(Ident::new("element"))]);
    if let Expr::Function(aggregate) = &mut element
        && let FunctionArguments::List(list) = &mut aggregate.args
        && !orders.is_empty()
    {
        list.clauses
            .push(ast::FunctionArgumentClause::OrderBy(orders.clone()));
    }
    let mut columns = vec![Ident::new("element")];
    columns.extend(orders.iter().filter_map(|order| match &order.expr {
        Expr::Identifier(ident) if ident.value != "element" => Some(ident.clone()),
        _ => None,
    }));
    let mut aggregate: Query = template("SELECT element FROM input");
    if let SetExpr::Select(select) = aggregate.body.as_mut() {
        let element = call("array_or_empty", vec![element]);
        select.projection = vec![SelectItem::UnnamedExpr(element)];
        if let Some(from) = select.from.first_mut() {
            from.relation = TableFactor::Derived {
                lateral: false,
                subquery: query,
                alias: Some(TableAlias {
                    explicit: true,
                    name: Ident::new("elements"),
                    columns: columns
                        .into_iter()
                        .map(|name| TableAliasColumnDef {
                            name,
                            data_type: None,
                        })
                        .collect(),
                    at: None,
                }),
                sample: None,
            };
        }
    }
    *expression = Expr::Subquery(Box::new(aggregate));
    Ok(())
}

/// The order of a subquery of one column as an order over its columns; an order by something
/// else than the column adds that as a column. Empty where the query's form does not allow it.
fn order_columns(query: &mut Query) -> Vec<ast::OrderByExpr> {
    let Some(ast::OrderByKind::Expressions(orders)) = query.order_by.as_ref().map(|o| &o.kind)
    else {
        return Vec::new();
    };
    let mut orders = orders.clone();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Vec::new();
    };
    let [SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. }] =
        select.projection.as_slice()
    else {
        return Vec::new();
    };
    let output = output.clone();
    let output_name = match &select.projection[0] {
        SelectItem::ExprWithAlias { alias, .. } => Some(Expr::Identifier(alias.clone())),
        _ => None,
    };
    for (index, order) in orders.iter_mut().enumerate() {
        let is_first = matches!(&order.expr, Expr::Value(v)
            if matches!(&v.value, Value::Number(n, _) if *n == "1"));
        let is_output =
            is_first || order.expr == output || output_name.as_ref() == Some(&order.expr);
        let name = if is_output {
            Ident::new("element")
        } else if select.distinct.is_some() {
            return Vec::new();
        } else {
            let name = Ident::new(format!("order_{}", index + 1));
            select.projection.push(SelectItem::ExprWithAlias {
                expr: order.expr.clone(),
                alias: name.clone(),
            });
            name
        };
        order.expr = Expr::Identifier(name);
    }
    orders
}

/// `LIKE … ESCAPE c`: the engine's escape is always a backslash.
fn escape(expression: &mut Expr) -> Result<()> {
    let (Expr::Like {
        pattern,
        escape_char,
        ..
    }
    | Expr::ILike {
        pattern,
        escape_char,
        ..
    }) = expression
    else {
        return Ok(());
    };
    let Some(given) = escape_char.take() else {
        return Ok(());
    };
    let escape = escape_text(&given)?;
    if escape == "\\" {
        return Ok(());
    }
    let original = take(pattern);
    **pattern = match string_constant(&original) {
        Some(text) => string(patterns::like_escape(&text, &escape)?),
        None => call("like_escape", vec![original, string(escape)]),
    };
    Ok(())
}

fn escape_text(given: &ValueWithSpan) -> Result<String> {
    given.value.clone().into_string().ok_or_else(|| {
        Error::new(
            sqlstate::SYNTAX_ERROR,
            "ESCAPE needs a string of one character",
        )
    })
}

/// `x SIMILAR TO p` is `x ~ regular expression of p`.
fn similar_to(expression: &mut Expr) -> Result<()> {
    let Expr::SimilarTo {
        negated,
        expr,
        pattern,
        escape_char,
    } = expression
    else {
        return Ok(());
    };
    let escape = match escape_char.take() {
        Some(given) => escape_text(&given)?,
        None => "\\".to_owned(),
    };
    let op = if *negated {
        BinaryOperator::PGRegexNotMatch
    } else {
        BinaryOperator::PGRegexMatch
    };
    let original = take(pattern);
    let right = match string_constant(&original) {
        Some(text) => string(patterns::similar_to_regex(&text, &escape)?),
        None => call("similar_to_escape", vec![original, string(escape)]),
    };
    *expression = Expr::BinaryOp {
        left: Box::new(take(expr)),
        op,
        right: Box::new(right),
    };
    Ok(())
}
