//! Trees of our own making, of which the rewrites are put together.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Query, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, Value,
};
use datafusion::sql::sqlparser::parser::Parser;

/// Parses a text of ours into a query.
pub(in crate::sql) fn template(sql: &str) -> Query {
    let parsed = Parser::new(&crate::sql::source::DIALECT)
        .try_with_sql(sql)
        .and_then(|mut p| p.parse_query());
    *parsed.expect("templates are constant texts that parse")
}

/// Puts a relation in the place of the first one in FROM.
pub(in crate::sql) fn set_relation(query: &mut Query, relation: TableFactor) {
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(first) = select.from.first_mut()
    {
        first.relation = relation;
    }
}

/// A relation by its name.
pub(super) fn relation(name: Vec<Ident>) -> TableFactor {
    TableFactor::Table {
        name: name.into(),
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

pub(in crate::sql) fn table_alias(name: Ident, columns: Vec<Ident>) -> TableAlias {
    let column = |name| TableAliasColumnDef {
        name,
        data_type: None,
    };
    TableAlias {
        explicit: true,
        name,
        columns: columns.into_iter().map(column).collect(),
        at: None,
    }
}

pub(super) fn derived(subquery: Query, alias: TableAlias) -> TableFactor {
    TableFactor::Derived {
        lateral: false,
        subquery: Box::new(subquery),
        alias: Some(alias),
        sample: None,
    }
}

/// A call of a function with positional arguments.
pub(in crate::sql) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments
                .into_iter()
                .map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e)))
                .collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// The arguments of a call; `None` where one has a name, or is a `*`.
pub(super) fn plain_arguments(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    arguments
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
            _ => None,
        })
        .collect()
}

/// As [`plain_arguments`], of the list in parentheses.
pub(super) fn listed_arguments(arguments: &FunctionArguments) -> Option<Vec<Expr>> {
    match arguments {
        FunctionArguments::List(list) => plain_arguments(&list.args),
        _ => None,
    }
}

/// A string literal.
pub(super) fn string(text: impl Into<String>) -> Expr {
    Expr::value(Value::SingleQuotedString(text.into()))
}

/// A number literal, which has no type yet.
pub(super) fn number(text: impl ToString) -> Expr {
    Expr::value(Value::Number(text.to_string(), false))
}

/// `(left op right)`
pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }))
}

/// `expression::type`
pub(in crate::sql) fn cast_to(expression: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(expression),
        data_type,
        array: false,
        format: None,
    }
}

/// The expression, out of its place.
pub(super) fn take(expression: &mut Expr) -> Expr {
    std::mem::replace(expression, Expr::value(Value::Null))
}
