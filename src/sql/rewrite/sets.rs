//! Functions that give a set of rows, and aggregates that give JSON.
//!
//! ```text
//! SELECT f(x)                  →  SELECT unnest(array of f(x))
//! FROM f(x) AS t(c)            →  FROM LATERAL (SELECT unnest(array of f(x)) AS c) AS t(c)
//! FROM f(x) WITH ORDINALITY    →  … , unnest(generate_series(1, cardinality(array of f(x))))
//! json_agg(x ORDER BY y)       →  json_of_array(array_agg(json_item(x) ORDER BY y))
//! ```
//! `generate_series` over number literals stays a function in FROM, which gives its rows as they
//! are asked for; in a select list one of several columns gives rows, `(f(x)).a` a column. Absent: `ROWS FROM`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Query, SelectItem, SetExpr, TableAlias, TableFactor, TableFunctionArgs,
    UnaryOperator, Value, Visit, Visitor,
};

use super::trees::{
    call, cast_to, listed_arguments, number, plain_arguments, relation, string, table_alias, take,
    template,
};
use crate::sql::data_types::{folded, last_part};

/// A set-returning function: its columns' names, and the functions that give them as arrays. A
/// column without a name is called by the alias.
struct SetFunction {
    name: &'static str,
    columns: &'static [(Option<&'static str>, &'static str)],
}

/// What `information_schema` of PostgreSQL, and drivers, take the columns of an index apart with.
const EXPAND_ARRAY: &str = "_pg_expandarray";

const SETS: &[SetFunction] = &[
    SetFunction {
        name: "unnest",
        columns: &[(None, "")],
    },
    SetFunction {
        name: "generate_series",
        columns: &[(None, "generate_series_array")],
    },
    SetFunction {
        name: "generate_subscripts",
        columns: &[(None, "generate_series_array")],
    },
    SetFunction {
        name: "regexp_split_to_table",
        columns: &[(None, "regexp_split_to_array")],
    },
    SetFunction {
        name: "regexp_matches",
        columns: &[(None, "regexp_matches_array")],
    },
    SetFunction {
        name: "string_to_table",
        columns: &[(None, "string_to_array")],
    },
    SetFunction {
        name: "json_array_elements",
        columns: &[(Some("value"), "json_array_elements_array")],
    },
    SetFunction {
        name: "jsonb_array_elements",
        columns: &[(Some("value"), "jsonb_array_elements_array")],
    },
    SetFunction {
        name: "json_array_elements_text",
        columns: &[(Some("value"), "json_array_elements_text_array")],
    },
    SetFunction {
        name: "jsonb_array_elements_text",
        columns: &[(Some("value"), "jsonb_array_elements_text_array")],
    },
    SetFunction {
        name: "json_object_keys",
        columns: &[(None, "json_object_keys_array")],
    },
    SetFunction {
        name: "jsonb_object_keys",
        columns: &[(None, "jsonb_object_keys_array")],
    },
    SetFunction {
        name: "json_each",
        columns: &[
            (Some("key"), "json_object_keys_array"),
            (Some("value"), "json_each_values_array"),
        ],
    },
    SetFunction {
        name: "jsonb_each",
        columns: &[
            (Some("key"), "jsonb_object_keys_array"),
            (Some("value"), "jsonb_each_values_array"),
        ],
    },
    SetFunction {
        name: "json_each_text",
        columns: &[
            (Some("key"), "json_object_keys_array"),
            (Some("value"), "json_each_values_text_array"),
        ],
    },
    SetFunction {
        name: "jsonb_each_text",
        columns: &[
            (Some("key"), "jsonb_object_keys_array"),
            (Some("value"), "jsonb_each_values_text_array"),
        ],
    },
    SetFunction {
        name: "aclexplode",
        columns: &[
            (Some("grantor"), "acl_grantors_array"),
            (Some("grantee"), "acl_grantees_array"),
            (Some("privilege_type"), "acl_privileges_array"),
            (Some("is_grantable"), "acl_grantables_array"),
        ],
    },
    // The element and its number, both without a function of their own.
    SetFunction {
        name: EXPAND_ARRAY,
        columns: &[(Some("x"), ""), (Some("n"), "")],
    },
    SetFunction {
        name: "pg_listening_channels",
        columns: &[(None, "listening_channels_array")],
    },
    SetFunction {
        name: "pg_get_keywords",
        columns: &[
            (Some("word"), "keyword_words_array"),
            (Some("catcode"), "keyword_codes_array"),
            (Some("barelabel"), "keyword_bare_labels_array"),
            (Some("catdesc"), "keyword_descriptions_array"),
            (Some("baredesc"), "keyword_bare_descriptions_array"),
        ],
    },
    SetFunction {
        name: "pg_options_to_table",
        columns: &[
            (Some("option_name"), "option_names_array"),
            (Some("option_value"), "option_values_array"),
        ],
    },
];

fn set_function(name: &ObjectName) -> Option<&'static SetFunction> {
    let name = last_part(name);
    SETS.iter().find(|set| set.name == name)
}

/// A call in FROM, by all the ways in which the parser has it.
struct Call {
    name: ObjectName,
    arguments: Vec<Expr>,
    alias: Option<TableAlias>,
    with_ordinality: bool,
}

/// Functions of one value that clients put in FROM, where each gives one row.
const VALUES_IN_FROM: &[&str] = &[
    "current_database",
    "current_schema",
    "current_schemas",
    "current_setting",
    "now",
    "pg_advisory_lock",
    "pg_advisory_unlock",
    "pg_backend_pid",
    "pg_cancel_backend",
    "pg_notify",
    "pg_sleep",
    "pg_terminate_backend",
    "pg_try_advisory_lock",
    "regexp_split_to_array",
    "set_config",
    "string_to_array",
    "version",
];

/// Functions that give the rows of a relation of `pg_catalog`.
const RELATIONS_IN_FROM: &[(&str, &str)] = &[
    ("pg_available_extensions", "pg_available_extensions"),
    ("pg_cursor", "pg_cursors"),
    ("pg_lock_status", "pg_locks"),
    ("pg_prepared_statement", "pg_prepared_statements"),
    ("pg_show_all_settings", "pg_settings"),
];

/// `FROM f(x) AS a` of a function that gives no set: a row of one column, called as the relation is.
fn value_in_from(factor: &mut TableFactor) {
    let TableFactor::Table {
        name,
        alias,
        args: Some(TableFunctionArgs { args, .. }),
        with_ordinality: false,
        ..
    } = factor
    else {
        return;
    };
    let function = last_part(name);
    if let Some((_, of)) = RELATIONS_IN_FROM.iter().find(|(f, _)| *f == function) {
        let alias = alias.take();
        let alias = alias.unwrap_or_else(|| table_alias(Ident::new(&function), vec![]));
        *factor = relation(vec![Ident::new("pg_catalog"), Ident::new(*of)]);
        if let TableFactor::Table { alias: given, .. } = factor {
            *given = Some(alias);
        }
        return;
    }
    if !VALUES_IN_FROM.contains(&function.as_str()) {
        return;
    }
    let Some(arguments) = plain_arguments(args) else {
        return;
    };
    let refers = refers_to_columns(&arguments);
    let alias = alias.take();
    let alias = alias.unwrap_or_else(|| table_alias(Ident::new(&function), vec![]));
    let mut subquery: Query = template("SELECT 1");
    if let SetExpr::Select(select) = subquery.body.as_mut() {
        select.projection = vec![item(call(&function, arguments), alias.name.clone())];
    }
    *factor = TableFactor::Derived {
        lateral: refers,
        subquery: Box::new(subquery),
        alias: Some(alias),
        sample: None,
    };
}

/// Rewrites a function in FROM.
pub(super) fn rewrite_in_from(factor: &mut TableFactor) {
    value_in_from(factor);
    let Some(found) = taken(factor) else { return };
    let Some(set) = set_function(&found.name) else {
        return;
    };
    let refers = refers_to_columns(&found.arguments);
    let alias = found
        .alias
        .unwrap_or_else(|| table_alias(Ident::new(set.name), vec![]));
    let mut items = Vec::new();
    let arrays = arrays_of(set, &found.arguments);
    let is_single = arrays.len() == 1;
    for (index, (name, array)) in arrays.iter().enumerate() {
        let column = match name {
            Some(name) => Ident::new(*name),
            None if is_single => alias.name.clone(),
            None => Ident::new(format!("{}_{}", set.name, index + 1)),
        };
        items.push(item(unnested(array.clone()), column));
    }
    if let (true, Some((_, array))) = (found.with_ordinality, arrays.first()) {
        let last = call("cardinality", vec![array.clone()]);
        let numbers = call(
            "generate_series_array",
            vec![number(1), cast_to(last, DataType::BigInt(None))],
        );
        items.push(item(unnested(numbers), Ident::new("ordinality")));
    }
    let mut subquery: Query = template("SELECT 1");
    if let SetExpr::Select(select) = subquery.body.as_mut() {
        select.projection = items;
    }
    *factor = TableFactor::Derived {
        lateral: refers,
        subquery: Box::new(subquery),
        alias: Some(alias),
        sample: None,
    };
}

/// Takes a call out of its place, if it is one that is rewritten.
fn taken(factor: &mut TableFactor) -> Option<Call> {
    match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(TableFunctionArgs { args, .. }),
            with_ordinality,
            ..
        } => {
            set_function(name)?;
            let arguments = plain_arguments(args)?;
            if is_lazy_series(name, &arguments) && !*with_ordinality {
                return None;
            }
            Some(Call {
                name: name.clone(),
                arguments,
                alias: alias.take(),
                with_ordinality: *with_ordinality,
            })
        }
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality,
            ..
        } => {
            set_function(name)?;
            Some(Call {
                name: name.clone(),
                arguments: plain_arguments(args)?,
                alias: alias.take(),
                with_ordinality: *with_ordinality,
            })
        }
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_ordinality,
            ..
        } => Some(Call {
            name: ObjectName::from(vec![Ident::new("unnest")]),
            arguments: std::mem::take(array_exprs),
            alias: alias.take(),
            with_ordinality: *with_ordinality,
        }),
        _ => None,
    }
}

/// `generate_series(1, 1000000)`.
fn is_lazy_series(name: &ObjectName, arguments: &[Expr]) -> bool {
    last_part(name) == "generate_series" && arguments.iter().all(is_whole_literal)
}

fn is_whole_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Value(v) => matches!(&v.value, Value::Number(text, _) if text.parse::<i64>().is_ok()),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        }
        | Expr::Nested(expr) => is_whole_literal(expr),
        _ => false,
    }
}

/// Names of columns, and the arrays that are to be unnested side by side.
fn arrays_of(set: &SetFunction, arguments: &[Expr]) -> Vec<(Option<&'static str>, Expr)> {
    if set.name == "unnest" {
        return arguments.iter().map(|a| (None, a.clone())).collect();
    }
    if set.name == EXPAND_ARRAY {
        let numbers = |array: &Expr| {
            let series = subscripts(&[array.clone(), number(1)]);
            let integers = ArrayElemTypeDef::SquareBracket(Box::new(DataType::Int(None)), None);
            cast_to(
                call("generate_series_array", series),
                DataType::Array(integers),
            )
        };
        let columns = |array: &Expr| vec![(Some("x"), array.clone()), (Some("n"), numbers(array))];
        return arguments.first().map(columns).unwrap_or_default();
    }
    let arguments = match set.name {
        "generate_subscripts" => subscripts(arguments),
        _ => arguments.to_vec(),
    };
    set.columns
        .iter()
        .map(|(column, function)| (*column, call(function, arguments.clone())))
        .collect()
}

/// `generate_subscripts(a, 1)` is a series from 1 to the array's length.
fn subscripts(arguments: &[Expr]) -> Vec<Expr> {
    let length = call("array_length", arguments.iter().take(2).cloned().collect());
    vec![number(1), cast_to(length, DataType::BigInt(None))]
}

fn unnested(array: Expr) -> Expr {
    call("unnest", vec![array])
}

fn item(expr: Expr, alias: Ident) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias }
}

/// Whether an expression names a column, so that it needs the relations before it.
pub(in crate::sql) fn refers_to_columns(expressions: &[Expr]) -> bool {
    let is_column = |e: &Expr| matches!(e, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    expressions.iter().any(|e| finds(e, is_column))
}

/// Whether an expression calls a set-returning function.
pub(super) fn holds_set_function(expression: &Expr) -> bool {
    finds(
        expression,
        |e| matches!(e, Expr::Function(f) if set_function(&f.name).is_some()),
    )
}

/// Whether an expression has a column of a name.
pub(super) fn names_column(expression: &Expr, name: &str) -> bool {
    finds(expression, |e| match e {
        Expr::Identifier(column) => folded(column) == name,
        Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|p| folded(p) == name),
        _ => false,
    })
}

/// Whether an expression has such a part.
pub(super) fn finds(expression: &Expr, wanted: impl Fn(&Expr) -> bool) -> bool {
    struct Finder<F>(F);
    impl<F: Fn(&Expr) -> bool> Visitor for Finder<F> {
        type Break = ();
        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match (self.0)(expression) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    expression.visit(&mut Finder(wanted)).is_break()
}

/// As [`finds`], without what stands in subqueries.
pub(super) fn finds_outside_queries(expression: &Expr, wanted: impl Fn(&Expr) -> bool) -> bool {
    struct Finder<F>(F, usize);
    impl<F: Fn(&Expr) -> bool> Visitor for Finder<F> {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.1 += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.1 -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match self.1 == 0 && (self.0)(expression) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    expression.visit(&mut Finder(wanted, 0)).is_break()
}

/// A set-returning function elsewhere than in FROM, and aggregates that give JSON.
pub(super) fn rewrite_call(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let name = last_part(&function.name);
    match name.as_str() {
        "json_agg" | "jsonb_agg" => json_array(expression, name == "jsonb_agg"),
        "json_object_agg" | "jsonb_object_agg" => {
            json_object(expression, name == "jsonb_object_agg");
        }
        _ => {
            let Some(set) = set_function(&function.name).filter(|set| set.name != "unnest") else {
                return;
            };
            let Some(arguments) = listed_arguments(&function.args) else {
                return;
            };
            *expression = match arrays_of(set, &arguments).as_slice() {
                [(_, array)] => unnested(array.clone()),
                columns => rows_of(columns),
            };
        }
    }
}

/// A row per call's row: its columns side by side.
fn rows_of(columns: &[(Option<&'static str>, Expr)]) -> Expr {
    let members = columns.iter().flat_map(|(name, array)| {
        let value = unnested(array.clone());
        [string(name.unwrap_or_default()), value]
    });
    call("named_struct", members.collect())
}

/// `(f(x)).a`: one column of a set-returning function.
pub(super) fn column_of_call(inner: &Expr, column: &str) -> Option<Expr> {
    let Expr::Function(function) = inner else {
        return None;
    };
    let set = set_function(&function.name)?;
    let arguments = listed_arguments(&function.args)?;
    arrays_of(set, &arguments)
        .into_iter()
        .find(|(name, _)| *name == Some(column))
        .map(|(_, array)| unnested(array))
}

/// Makes the call an `array_agg` of something else, within a function over the array.
fn gathered(expression: &mut Expr, outer: &str, element: impl FnOnce(&[Expr]) -> Option<Expr>) {
    let Expr::Function(function) = expression else {
        return;
    };
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    let Some(element) = plain_arguments(&list.args).and_then(|a| element(&a)) else {
        return;
    };
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(element))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    // The walk has been here, and comes to the outer call only.
    super::numbers::bare_arguments(function);
    *expression = call(outer, vec![take(expression)]);
}

fn json_array(expression: &mut Expr, sorted: bool) {
    let (outer, inner) = match sorted {
        true => ("jsonb_of_array", "to_jsonb"),
        false => ("json_of_array", "json_item"),
    };
    gathered(expression, outer, |arguments| match arguments {
        [value] => Some(call(inner, vec![value.clone()])),
        _ => None,
    });
}

fn json_object(expression: &mut Expr, sorted: bool) {
    let (outer, inner) = match sorted {
        true => ("jsonb_of_pairs", "to_jsonb"),
        false => ("json_of_pairs", "to_json"),
    };
    gathered(expression, outer, |arguments| match arguments {
        [name, value] => {
            let name = cast_to(name.clone(), DataType::Text);
            let value = call(inner, vec![value.clone()]);
            let members = vec![string("name"), name, string("value"), value];
            Some(call("named_struct", members))
        }
        _ => None,
    });
}
