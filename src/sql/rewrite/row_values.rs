//! A function's alias as the value that it gives: `SELECT e FROM jsonb_array_elements(x) AS e`.
//!
//! In PostgreSQL a name that is no column is the row of the relation of that name, and the row of a function that
//! gives single values is the value. Which names are no columns is known when the planner has not found them, so
//! the caller plans first. Deliberately absent: rows of other relations, which are records.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, Statement, TableAlias, TableFactor, TableFunctionArgs, Visit,
    VisitMut, Visitor, VisitorMut,
};

use super::sets::value_column;
use crate::sql::data_types::folded;

/// A function in FROM that gives single values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueAlias {
    /// What the relation is called, folded.
    pub alias: String,
    column: Ident,
}

/// The functions of a statement whose alias is not what their column is called.
pub fn value_aliases(statement: &Statement) -> Vec<ValueAlias> {
    #[derive(Default)]
    struct Finder(Vec<ValueAlias>);
    impl Visitor for Finder {
        type Break = Infallible;
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Infallible> {
            self.0.extend(value_alias(factor));
            ControlFlow::Continue(())
        }
    }
    let mut finder = Finder::default();
    let ControlFlow::Continue(()) = statement.visit(&mut finder);
    finder.0
}

fn value_alias(factor: &TableFactor) -> Option<ValueAlias> {
    let (name, alias) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(TableFunctionArgs { .. }),
            with_ordinality: false,
            ..
        }
        | TableFactor::Function {
            name,
            alias,
            with_ordinality: false,
            ..
        } => (name, alias.as_ref()),
        _ => return None,
    };
    let of_function = value_column(name)?;
    let TableAlias { name, columns, .. } = alias?;
    let column = match columns.as_slice() {
        [] => Ident::new(of_function?),
        [column] => column.name.clone(),
        _ => return None,
    };
    let alias = folded(name);
    (folded(&column) != alias).then_some(ValueAlias { alias, column })
}

/// The statement with the value in the place of the alias.
pub fn with_values(mut statement: Statement, alias: &ValueAlias) -> Statement {
    let ControlFlow::Continue(()) = VisitMut::visit(&mut statement, &mut Naming(alias));
    statement
}

struct Naming<'a>(&'a ValueAlias);

impl Naming<'_> {
    fn is_meant(&self, expression: &Expr) -> bool {
        matches!(expression, Expr::Identifier(name) if folded(name) == self.0.alias)
    }
}

impl VisitorMut for Naming<'_> {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        for item in &mut select.projection {
            // What is shown is called as it was written.
            if let SelectItem::UnnamedExpr(expr @ Expr::Identifier(_)) = item
                && self.is_meant(expr)
            {
                let Expr::Identifier(name) = expr else {
                    continue;
                };
                *item = SelectItem::ExprWithAlias {
                    alias: name.clone(),
                    expr: Expr::Identifier(name.clone()),
                };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Infallible> {
        if self.is_meant(expression)
            && let Expr::Identifier(name) = expression
        {
            *expression = Expr::CompoundIdentifier(vec![name.clone(), self.0.column.clone()]);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::Statement as Parsed;

    fn changed(sql: &str) -> Vec<String> {
        let (statement, _) = crate::sql::parse(sql).unwrap().remove(0);
        let Parsed::Query(query) = statement else {
            panic!("a query");
        };
        let statement = Statement::Query(query);
        let aliases = value_aliases(&statement);
        let with = |alias| with_values(statement.clone(), alias).to_string();
        aliases.iter().map(with).collect()
    }

    #[test]
    fn an_alias_is_the_value_of_its_function() {
        assert_eq!(
            changed("SELECT e, e ->> 'a' AS a FROM jsonb_array_elements('[]') AS e ORDER BY e"),
            [
                "SELECT e.value AS e, e.value ->> 'a' AS a FROM jsonb_array_elements('[]') AS e ORDER BY e.value"
            ]
        );
        assert_eq!(
            changed("SELECT g FROM generate_series(1, 2) AS g (n)"),
            ["SELECT g.n AS g FROM generate_series(1, 2) AS g (n)"]
        );
        assert!(changed("SELECT g FROM generate_series(1, 2) AS g").is_empty());
        assert!(changed("SELECT e FROM json_each('{}') AS e").is_empty());
    }
}
