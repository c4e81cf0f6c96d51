//! Calls of functions in SQL, in the tree of a statement: which there are, arguments by position,
//! and calls in FROM as subqueries that the planner takes.
//!
//! Named arguments and defaults are settled by the names and the number of arguments; types choose
//! later, among functions of that many parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    Query, SelectItem, SetExpr, TableFactor, TableFunctionArgs, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::rows_name;
use crate::catalog::definition::ColumnDefinition;
use crate::catalog::function::{FunctionDefinition, FunctionParameter, bare_type};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::{folded, last_part};
use crate::sql::rewrite::{call, cast_to, refers_to_columns, table_alias, template};

/// Functions by name.
pub(crate) type Visible = BTreeMap<String, Vec<Arc<FunctionDefinition>>>;

/// What a statement calls: name and number of arguments.
pub(crate) type Calls = BTreeSet<(String, usize)>;

/// Finds the calls of visible functions, and brings them into the planner's form.
pub(crate) fn mark_calls(tree: &mut impl VisitMut, visible: &Visible) -> Result<Calls> {
    if visible.is_empty() {
        return Ok(Calls::new());
    }
    let mut marking = Marking {
        visible,
        calls: Calls::new(),
    };
    match tree.visit(&mut marking) {
        ControlFlow::Continue(()) => Ok(marking.calls),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The name of a function without its schema; `None` in another schema than ours.
pub(super) fn own_name(name: &ObjectName) -> Option<String> {
    let parts = name.0.iter().filter_map(|p| p.as_ident()).map(folded);
    let mut parts: Vec<String> = parts.collect();
    let name = parts.pop()?;
    match parts.as_slice() {
        [] => Some(name),
        [schema] if schema == "public" => Some(name),
        _ => None,
    }
}

struct Marking<'a> {
    visible: &'a Visible,
    calls: Calls,
}

impl VisitorMut for Marking<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Function(function) = expression
            && let Err(error) = self.value_call(function)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.call_in_from(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// An argument and its name, where it has one.
type Argument = (Option<String>, Expr);

impl<'a> Marking<'a> {
    /// The functions that a name means; those of other schemas are not ours.
    fn functions(&self, name: &ObjectName) -> Option<&'a Vec<Arc<FunctionDefinition>>> {
        self.visible.get(&own_name(name)?)
    }

    fn value_call(&mut self, function: &mut Function) -> Result<()> {
        let Some(functions) = self.functions(&function.name) else {
            return Ok(());
        };
        let name = last_part(&function.name);
        refuse_clauses(&name, function)?;
        let FunctionArguments::List(list) = &mut function.args else {
            return Ok(());
        };
        let given = named_arguments(&name, &list.args)?;
        let chosen = self.by_position(&name, functions, given)?;
        let gives_rows = chosen.candidates.iter().all(|f| f.columns().is_some());
        if gives_rows && !chosen.candidates.is_empty() {
            return Err(Error::unsupported(format!(
                "function {name} gives rows and is called outside FROM"
            ))
            .hint(format!("Write FROM {name}(…).")));
        }
        list.args = chosen
            .arguments
            .into_iter()
            .map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e)))
            .collect();
        self.calls.insert((name.clone(), list.args.len()));
        function.name = ObjectName::from(vec![Ident::with_quote('"', name)]);
        Ok(())
    }

    fn call_in_from(&mut self, factor: &mut TableFactor) -> Result<()> {
        let (name, arguments, alias, with_ordinality) = match factor {
            TableFactor::Table {
                name,
                alias,
                args: Some(TableFunctionArgs { args, .. }),
                with_ordinality,
                ..
            } => (name, args, alias, *with_ordinality),
            TableFactor::Function {
                name,
                args,
                alias,
                with_ordinality,
                ..
            } => (name, args, alias, *with_ordinality),
            _ => return Ok(()),
        };
        let Some(functions) = self.functions(name) else {
            return Ok(());
        };
        let name = last_part(name);
        if with_ordinality {
            return Err(Error::unsupported(format!(
                "WITH ORDINALITY of function {name} is not supported"
            ))
            .hint("Number the rows with row_number() OVER (ORDER BY …)."));
        }
        let given = named_arguments(&name, arguments)?;
        let chosen = self.by_position(&name, functions, given)?;
        let alias = alias.take();
        let shown = alias
            .as_ref()
            .map_or_else(|| Ident::with_quote('"', name.clone()), |a| a.name.clone());
        self.calls.insert((name.clone(), chosen.arguments.len()));
        let lateral = refers_to_columns(&chosen.arguments);
        let subquery = match columns_of(&name, &chosen.candidates)? {
            Some(columns) => rows_query(&name, &columns, chosen.arguments, &shown)?,
            None => value_query(&name, chosen.arguments, shown.clone()),
        };
        *factor = TableFactor::Derived {
            lateral,
            subquery: Box::new(subquery),
            alias: Some(alias.unwrap_or_else(|| table_alias(shown, vec![]))),
            sample: None,
        };
        Ok(())
    }

    /// The functions that take the arguments, and these in the order of the parameters.
    fn by_position(
        &mut self,
        name: &str,
        functions: &[Arc<FunctionDefinition>],
        given: Vec<Argument>,
    ) -> Result<Chosen> {
        let is_plain = given.iter().all(|(name, _)| name.is_none());
        let of_length = |count: usize| -> Vec<Arc<FunctionDefinition>> {
            let fits = functions.iter().filter(|f| f.parameters.len() == count);
            fits.cloned().collect()
        };
        let exact = of_length(given.len());
        let takes = |f: &&Arc<FunctionDefinition>| positions(f, &given).is_some();
        let taking: Vec<_> = functions.iter().filter(takes).collect();
        let (candidates, arguments) = match taking.as_slice() {
            _ if is_plain && (!exact.is_empty() || taking.is_empty()) => {
                (exact, given.into_iter().map(|(_, e)| e).collect())
            }
            [only] => {
                let order = positions(only, &given).unwrap_or_default();
                let arguments = self.with_defaults(only, given, &order)?;
                (vec![Arc::clone(only)], arguments)
            }
            [] => return Err(undefined(name, &given)),
            _ => {
                return Err(Error::new(
                    sqlstate::AMBIGUOUS_FUNCTION,
                    format!("function {name} is not unique"),
                )
                .hint("Give all arguments by position."));
            }
        };
        Ok(Chosen {
            arguments: with_literal_types(arguments, &candidates)?,
            candidates,
        })
    }

    fn with_defaults(
        &mut self,
        function: &FunctionDefinition,
        given: Vec<Argument>,
        order: &[Option<usize>],
    ) -> Result<Vec<Expr>> {
        let mut arguments = Vec::with_capacity(order.len());
        for (parameter, place) in function.parameters.iter().zip(order) {
            let argument = match (place.and_then(|at| given.get(at)), &parameter.default) {
                (Some((_, argument)), _) => argument.clone(),
                (None, Some(default)) => {
                    let mut default = parse_with(default, |parser| parser.parse_expr())?;
                    if let ControlFlow::Break(error) = default.visit(self) {
                        return Err(error);
                    }
                    default
                }
                (None, None) => return Err(Error::internal("an argument without a value")),
            };
            arguments.push(argument);
        }
        Ok(arguments)
    }
}

struct Chosen {
    candidates: Vec<Arc<FunctionDefinition>>,
    arguments: Vec<Expr>,
}

/// For each parameter the argument that it takes, `None` for its default; `None` if the function
/// does not take the arguments.
fn positions(function: &FunctionDefinition, given: &[Argument]) -> Option<Vec<Option<usize>>> {
    let mut places = vec![None; function.parameters.len()];
    for (at, (name, _)) in given.iter().enumerate() {
        let index = match name {
            None => at,
            Some(name) => {
                let is_named = |p: &&str| *p == name;
                function
                    .parameters
                    .iter()
                    .position(|p| p.name.as_deref().as_ref().is_some_and(is_named))?
            }
        };
        let place = places.get_mut(index)?;
        if place.is_some() {
            return None;
        }
        *place = Some(at);
    }
    let has_value = |(place, parameter): (&Option<usize>, &FunctionParameter)| {
        place.is_some() || parameter.default.is_some()
    };
    let is_complete = places.iter().zip(&function.parameters).all(has_value);
    is_complete.then_some(places)
}

fn undefined(name: &str, given: &[Argument]) -> Error {
    let shown: Vec<String> = given
        .iter()
        .map(|(name, _)| match name {
            Some(name) => format!("{name} => …"),
            None => "…".to_owned(),
        })
        .collect();
    Error::new(
        sqlstate::UNDEFINED_FUNCTION,
        format!("function {name}({}) does not exist", shown.join(", ")),
    )
    .hint("No function matches the given name and argument names.")
}

/// A function in SQL is neither an aggregate nor a window function.
fn refuse_clauses(name: &str, function: &Function) -> Result<()> {
    let clause = match &function.args {
        FunctionArguments::List(list) if list.duplicate_treatment.is_some() => Some("DISTINCT"),
        FunctionArguments::List(list) if !list.clauses.is_empty() => Some("ORDER BY"),
        _ if function.filter.is_some() => Some("FILTER"),
        _ if function.over.is_some() => Some("OVER"),
        _ if !function.within_group.is_empty() => Some("WITHIN GROUP"),
        _ => None,
    };
    match clause {
        None => Ok(()),
        Some(clause) => Err(Error::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("{clause} specified, but {name} is not an aggregate function"),
        )),
    }
}

fn named_arguments(name: &str, arguments: &[FunctionArg]) -> Result<Vec<Argument>> {
    let mut given = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let (label, value) = match argument {
            FunctionArg::Unnamed(value) => (None, value),
            FunctionArg::Named {
                name: label, arg, ..
            } => (Some(folded(label)), arg),
            FunctionArg::ExprNamed {
                name: Expr::Identifier(label),
                arg,
                ..
            } => (Some(folded(label)), arg),
            FunctionArg::ExprNamed { .. } => {
                return Err(Error::new(
                    sqlstate::SYNTAX_ERROR,
                    format!("an argument of function {name} has a name that is none"),
                ));
            }
        };
        let FunctionArgExpr::Expr(value) = value else {
            return Err(undefined(name, &given));
        };
        if label.is_none() && given.iter().any(|(label, _): &Argument| label.is_some()) {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "positional argument cannot follow named argument",
            ));
        }
        given.push((label, value.clone()));
    }
    Ok(given)
}

/// Literals in quotes become of the type that all candidates take there.
fn with_literal_types(
    mut arguments: Vec<Expr>,
    candidates: &[Arc<FunctionDefinition>],
) -> Result<Vec<Expr>> {
    for (index, argument) in arguments.iter_mut().enumerate() {
        let is_literal =
            matches!(argument, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)));
        let types: BTreeSet<String> = candidates
            .iter()
            .filter_map(|f| f.parameters.get(index))
            .map(|p| bare_type(&p.sql_type))
            .collect();
        if let (true, Some(name), 1) = (is_literal, types.first(), types.len())
            && name != "text"
        {
            *argument = cast_to(argument.clone(), parse_type(name)?);
        }
    }
    Ok(arguments)
}

/// The columns of the rows that functions of one name give; `None` for values.
fn columns_of(
    name: &str,
    candidates: &[Arc<FunctionDefinition>],
) -> Result<Option<Vec<ColumnDefinition>>> {
    let mut columns = candidates.iter().map(|f| f.columns());
    let first = columns.next().unwrap_or_default();
    match columns.all(|other| other == first) {
        true => Ok(first),
        false => {
            let all = candidates.iter().map(|f| f.signature());
            Err(Error::new(
                sqlstate::AMBIGUOUS_FUNCTION,
                format!("function {name} is not unique"),
            )
            .detail(format!(
                "These give rows of different columns: {}.",
                all.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

/// `SELECT NULL::type AS column, … WHERE "rows of f"(arguments)`, for `inline` to find.
fn rows_query(
    name: &str,
    columns: &[ColumnDefinition],
    arguments: Vec<Expr>,
    alias: &Ident,
) -> Result<Query> {
    // The only column of a SETOF is called by the alias.
    let is_set = matches!(columns, [only] if only.name == name);
    let mut items = Vec::with_capacity(columns.len());
    for column in columns {
        let nothing = Expr::value(Value::Null);
        items.push(SelectItem::ExprWithAlias {
            expr: cast_to(nothing, parse_type(&column.sql_type.to_string())?),
            alias: match is_set {
                true => alias.clone(),
                false => Ident::with_quote('"', column.name.clone()),
            },
        });
    }
    let mut marker = call("rows", arguments);
    if let Expr::Function(function) = &mut marker {
        function.name = ObjectName::from(vec![Ident::with_quote('"', rows_name(name))]);
    }
    let mut query = template("SELECT 1");
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = items;
        select.selection = Some(marker);
    }
    Ok(query)
}

/// `SELECT f(arguments) AS alias`
fn value_query(name: &str, arguments: Vec<Expr>, alias: Ident) -> Query {
    let mut value = call("value", arguments);
    if let Expr::Function(function) = &mut value {
        function.name = ObjectName::from(vec![Ident::with_quote('"', name)]);
    }
    let mut query = template("SELECT 1");
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![SelectItem::ExprWithAlias { expr: value, alias }];
    }
    query
}

/// The parameters of a body as columns of the relation `alias`: `$1`, and names after the
/// function's own. Bare names stay, since a column of the body goes before a parameter.
pub(crate) fn parameters_as_columns(
    query: &mut Query,
    function: &FunctionDefinition,
    alias: &str,
) -> Result<()> {
    struct Naming<'a> {
        function: &'a FunctionDefinition,
        alias: &'a str,
    }
    impl VisitorMut for Naming<'_> {
        type Break = Error;
        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
            let count = self.function.parameters.len();
            let index = match expression {
                Expr::Value(value) => match &value.value {
                    Value::Placeholder(id) => {
                        let number = id.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
                        match number
                            .and_then(|n| n.checked_sub(1))
                            .filter(|at| *at < count)
                        {
                            Some(index) => index,
                            None => {
                                return ControlFlow::Break(Error::new(
                                    sqlstate::UNDEFINED_PARAMETER,
                                    format!("there is no parameter {id}"),
                                ));
                            }
                        }
                    }
                    _ => return ControlFlow::Continue(()),
                },
                Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [relation, column] if folded(relation) == self.function.name => {
                        let wanted = folded(column);
                        let named = |p: &FunctionParameter| p.name.as_ref() == Some(&wanted);
                        match self.function.parameters.iter().position(named) {
                            Some(index) => index,
                            None => return ControlFlow::Continue(()),
                        }
                    }
                    _ => return ControlFlow::Continue(()),
                },
                _ => return ControlFlow::Continue(()),
            };
            let name = self.function.parameter_name(index);
            *expression = Expr::CompoundIdentifier(vec![
                Ident::with_quote('"', self.alias),
                Ident::with_quote('"', name),
            ]);
            ControlFlow::Continue(())
        }
    }
    match query.visit(&mut Naming { function, alias }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// A type by the name that we write for it.
fn parse_type(name: &str) -> Result<DataType> {
    parse_with(name, |parser| parser.parse_data_type())
}

fn parse_with<T>(
    text: &str,
    parse: impl FnOnce(
        &mut Parser<'_>,
    ) -> std::result::Result<T, datafusion::sql::sqlparser::parser::ParserError>,
) -> Result<T> {
    let parser = Parser::new(&crate::sql::source::DIALECT).try_with_sql(text);
    let mut parser = parser.map_err(|_| Error::damaged("a stored expression cannot be read"))?;
    parse(&mut parser).map_err(|_| Error::damaged("a stored expression cannot be read"))
}
