//! Expressions over relations that are always empty.
//!
//! psql asks for policies, extended statistics and publications of every table, in words that the
//! engine's planner does not take (`generate_series` over an outer column, array subqueries over
//! array columns). These relations have no rows here, so that the expressions of a SELECT over
//! them are never evaluated: an output expression that holds a subquery is replaced by a NULL
//! before planning. Nothing depends on the text of a statement, only on what it reads.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, Query,
    Select, SelectItem, Statement, TableAlias, TableAliasColumnDef, TableFactor, Value, Visit,
    VisitMut, Visitor, VisitorMut,
};

use super::specifications::RELATIONS;

/// Relations that can have rows; `rows` and `system_rows` make them.
pub(super) const TOLD: &[&str] = &[
    "pg_am",
    "pg_attrdef",
    "pg_attribute",
    "pg_auth_members",
    "pg_authid",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_database",
    "pg_db_role_setting",
    "pg_default_acl",
    "pg_depend",
    "pg_description",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_group",
    "pg_index",
    "pg_indexes",
    "pg_language",
    "pg_matviews",
    "pg_namespace",
    "pg_proc",
    "pg_range",
    "pg_rewrite",
    "pg_roles",
    "pg_settings",
    "pg_shadow",
    "pg_stat_activity",
    "pg_stat_all_indexes",
    "pg_stat_all_tables",
    "pg_stat_database",
    "pg_stat_gssapi",
    "pg_stat_ssl",
    "pg_stat_user_indexes",
    "pg_stat_user_tables",
    "pg_tables",
    "pg_tablespace",
    "pg_timezone_abbrevs",
    "pg_timezone_names",
    "pg_type",
    "pg_user",
    "pg_views",
];

const AGGREGATES: &[&str] = &[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "array_agg",
    "string_agg",
    "bool_and",
    "bool_or",
    "every",
    "json_agg",
    "jsonb_agg",
];

/// Replaces what is never evaluated.
pub fn without_unreachable(statement: &mut Statement) {
    let visited = statement.visit(&mut Unreachable);
    debug_assert!(visited.is_continue(), "the visitor never breaks");
}

struct Unreachable;

impl VisitorMut for Unreachable {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        plain_unnest(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if reads_nothing(select) && !select.projection.iter().any(aggregates) {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expression)
                | SelectItem::ExprWithAlias {
                    expr: expression, ..
                } = item
                    && Visit::visit(&*expression, &mut Subqueries).is_break()
                {
                    *expression = null();
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// `pg_catalog.unnest(x)` in FROM, which only without its schema is known to the parser.
fn plain_unnest(factor: &mut TableFactor) {
    let TableFactor::Table {
        name,
        alias,
        args: Some(arguments),
        with_ordinality,
        ..
    } = factor
    else {
        return;
    };
    if !name.to_string().eq_ignore_ascii_case("pg_catalog.unnest") {
        return;
    }
    let mut arrays = Vec::new();
    for argument in &arguments.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) = argument else {
            return;
        };
        arrays.push(array.clone());
    }
    *factor = TableFactor::UNNEST {
        alias: alias.take().map(named_column),
        array_exprs: arrays,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: *with_ordinality,
    };
}

/// The alias of a function in FROM names its column too.
fn named_column(mut alias: TableAlias) -> TableAlias {
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
    alias
}

/// One of the relations that are joined by inner joins is always empty.
fn reads_nothing(select: &Select) -> bool {
    select.from.iter().any(|from| {
        let only_inner = from.joins.iter().all(|join| {
            matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            )
        });
        let joined = from.joins.iter().map(|join| &join.relation);
        let left_joined = from.joins.iter().all(|join| {
            matches!(
                join.join_operator,
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_)
            )
        });
        match only_inner {
            true => is_always_empty(&from.relation) || joined.into_iter().any(is_always_empty),
            false => left_joined && is_always_empty(&from.relation),
        }
    })
}

fn is_always_empty(factor: &TableFactor) -> bool {
    let TableFactor::Table {
        name, args: None, ..
    } = factor
    else {
        return false;
    };
    let parts: Vec<String> = name
        .0
        .iter()
        .map(|part| part.to_string().to_lowercase())
        .collect();
    let relation = match parts.as_slice() {
        [relation] => relation,
        [schema, relation] if schema == "pg_catalog" => relation,
        _ => return false,
    };
    !TOLD.contains(&relation.as_str()) && is_relation(relation)
}

fn is_relation(name: &str) -> bool {
    RELATIONS
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .any(|relation| relation == name)
}

/// An aggregate without GROUP BY gives a row over nothing, and evaluates its expressions.
fn aggregates(item: &SelectItem) -> bool {
    item.visit(&mut Aggregates { depth: 0 }).is_break()
}

struct Aggregates {
    depth: usize,
}

impl Visitor for Aggregates {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        let name = function.name.to_string().to_lowercase();
        let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
        match self.depth == 0 && AGGREGATES.contains(&name) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Finds a subquery that stands for a value.
struct Subqueries;

impl Visitor for Subqueries {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        let is_value = match expression {
            Expr::Subquery(_) => true,
            Expr::Function(function) => matches!(function.args, FunctionArguments::Subquery(_)),
            _ => false,
        };
        match is_value {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// What tools ask this way is text.
fn null() -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::value(Value::Null)),
        data_type: DataType::Text,
        array: false,
        format: None,
    }
}
