//! PostgreSQL's operators, casts and literals that DataFusion does not know.

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, DataType, Expr, FunctionArguments, Ident, ObjectName, Query,
    SelectItem, SetExpr, Value, ValueWithSpan,
};

use super::trees::{call, cast_to, number, relation, set_relation, string, take, template};
use super::{arrays, calls, clock_words, json_calls, numbers, quantified};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::{folded, last_part};
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
const BARE_FUNCTIONS: &[&str] = &[
    "current_schema",
    "current_role",
    "localtime",
    "localtimestamp",
];

/// Functions under their PostgreSQL names, where DataFusion has them under another.
const SYNONYMS: &[(&str, &str)] = &[
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("ceiling", "ceil"),
    ("pow", "power"),
    // The engine's take the first element of its kind alone.
    ("array_remove", "array_remove_all"),
    ("array_replace", "array_replace_all"),
    ("array_to_json", "to_json"),
    ("row_to_json", "to_json"),
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
        Expr::UnaryOp { .. } => numbers::least_of_type(expression),
        Expr::CompoundFieldAccess { .. } => {
            field_of_name(expression);
            if let Expr::CompoundFieldAccess { access_chain, .. } = expression {
                arrays::open_slices(access_chain);
            }
        }
        _ => quantified::rewrite(expression)?,
    }
    Ok(())
}

/// The name of a column, without what it is qualified by.
pub(super) fn last_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded),
        _ => None,
    }
}

/// `(t).a`: the column of a relation, or the member of a row in a column.
fn field_of_name(expression: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expression else {
        return;
    };
    let Expr::Nested(inner) = root.as_ref() else {
        return;
    };
    if let [AccessExpr::Dot(Expr::Identifier(name))] = access_chain.as_slice()
        && let Some(column) = super::sets::column_of_call(inner, &folded(name))
    {
        *expression = column;
        return;
    }
    let mut parts = match inner.as_ref() {
        Expr::Identifier(name) => vec![name.clone()],
        Expr::CompoundIdentifier(parts) => parts.clone(),
        Expr::QualifiedWildcard(name, _) => name
            .0
            .iter()
            .filter_map(|part| part.as_ident().cloned())
            .collect(),
        _ => return,
    };
    let is_name = |access: &AccessExpr| matches!(access, AccessExpr::Dot(Expr::Identifier(_)));
    let names = access_chain.iter().take_while(|a| is_name(a)).count();
    if names == 0 {
        return;
    }
    for access in access_chain.drain(..names) {
        if let AccessExpr::Dot(Expr::Identifier(name)) = access {
            parts.push(name);
        }
    }
    let named = Expr::CompoundIdentifier(parts);
    match access_chain.is_empty() {
        true => *expression = named,
        false => **root = named,
    }
}

/// Columns of the catalog that name a procedure (`regproc`): here they hold its name.
const PROCEDURE_COLUMNS: &[&str] = &[
    "typinput",
    "typoutput",
    "typreceive",
    "typsend",
    "typmodin",
    "typmodout",
    "typanalyze",
    "amhandler",
    "oprcode",
];

/// `p.oid = t.typreceive` looks a procedure up, and finds it by its name.
fn procedure_by_name(number: &mut Expr, procedure: &Expr) {
    let is_procedure =
        last_name(procedure).is_some_and(|c| PROCEDURE_COLUMNS.contains(&c.as_str()));
    if !is_procedure || last_name(number).as_deref() != Some("oid") {
        return;
    }
    match number {
        Expr::Identifier(name) => name.value = "proname".to_owned(),
        Expr::CompoundIdentifier(parts) => {
            if let Some(name) = parts.last_mut() {
                name.value = "proname".to_owned();
            }
        }
        _ => {}
    }
}

/// What is changed after the children are.
pub(super) fn after_children(expression: &mut Expr) -> Result<()> {
    match expression {
        Expr::Collate { expr, .. } => *expression = take(expr),
        Expr::BinaryOp { left, op, right } => {
            if *op == BinaryOperator::Eq {
                procedure_by_name(left, right);
                procedure_by_name(right, left);
            }
            if matches!(op, BinaryOperator::Arrow | BinaryOperator::LongArrow) {
                numbers::bare(right);
            }
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op {
                *op = operator(parts)?;
            }
            calls::dot_of_lines(op, right);
            calls::power(expression);
            calls::starts_with(expression);
        }
        Expr::Function(function) => {
            strip_catalog(&mut function.name);
            if matches!(function.args, FunctionArguments::Subquery(_)) {
                return arrays::array_of_subquery(expression);
            }
            numbers::bare_arguments(function);
            calls::rows_as_values(function);
            calls::rank(expression);
            calls::modulo(expression);
            calls::whole_result(expression);
            calls::time_function(expression);
            calls::made_interval(expression);
            calls::array_function(expression);
            calls::normalization(expression);
            json_calls::set_lax(expression);
        }
        Expr::IsNormalized { .. } => calls::normalization(expression),
        Expr::Cast { .. } => {
            clock_words::rewrite(expression);
            cast(expression);
            shorten(expression);
            numbers::bare_numeric(expression);
        }
        Expr::TypedString(_) => {
            clock_words::rewrite(expression);
            numbers::bare_numeric(expression);
        }
        Expr::Extract { .. } => calls::extract(expression),
        Expr::Substring { .. } => calls::substring(expression)?,
        Expr::Position { .. } | Expr::Overlay { .. } => calls::of_parts(expression),
        Expr::Array(array) if super::sets::refers_to_columns(&array.elem) => {
            // The planner looks for the columns of a literal in the innermost query only.
            *expression = call("make_array", std::mem::take(&mut array.elem));
        }
        Expr::UnaryOp { .. } => calls::sign_operator(expression),
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => calls::distinct(expression),
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
pub(crate) fn table_as_select(body: &mut SetExpr) {
    match body {
        SetExpr::Table(table) => {
            let name = table.table_name.clone().unwrap_or_default();
            let parts = table.schema_name.iter().cloned().chain([name]);
            let parts = parts.map(Ident::new).collect::<Vec<_>>();
            let mut query = template("SELECT * FROM input");
            set_relation(&mut query, relation(parts));
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
    if fetch.percent {
        return Err(Error::unsupported("FETCH FIRST … PERCENT is not supported"));
    }
    let count = fetch.quantity.unwrap_or_else(|| number(1));
    if fetch.with_ties {
        return super::ties::keep(query, count);
    }
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
        *expression = cast_to(take(expression), DataType::Text);
    }
}

pub(in crate::sql) fn string_constant(expression: &Expr) -> Option<String> {
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
    if matches!(data_type, DataType::Custom(name, _) if last_part(name) == "oid")
        && object_function(expr) == Some("regproc")
    {
        // Columns of type regproc hold names; a number was asked for.
        let inner = take(expr);
        *expression = call("function_oid", vec![inner]);
    } else if let Some(suffix) = object_type(data_type) {
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
        *expression = call("left", vec![text, number(length)]);
    }
}

fn take_operand(cast: &mut Expr) -> Expr {
    match cast {
        Expr::Cast { expr, .. } => take(expr),
        other => take(other),
    }
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
