//! `WITH` before statements that change rows.
//!
//! sqlparser hangs them below a query; here they become statements of their own. Before INSERT the
//! `WITH` moves into its source; in UPDATE and DELETE a reference to one of its queries becomes
//! that query in parentheses, since these statements have no place for a `WITH`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};

use crate::error::{Error, Result};
use crate::sql::data_types::folded;
use crate::sql::rewrite::{set_relation, template};
use crate::sql::statement::Statement;

/// The statement that a query is, if it changes rows; its `WITH` goes along.
pub(crate) fn change_of(query: &mut ast::Query, position: usize) -> Result<Option<Statement>> {
    let with = query.with.take();
    match query.body.as_mut() {
        ast::SetExpr::Insert(ast::Statement::Insert(insert)) => {
            let mut insert = insert.clone();
            match (insert.source.as_mut(), with) {
                (Some(source), with) => put_with(source, with),
                (None, None) => {}
                (None, Some(_)) => return Err(no_place_for_with(position)),
            }
            Ok(Some(Statement::Insert(Box::new(insert))))
        }
        ast::SetExpr::Update(ast::Statement::Update(update)) => {
            let mut update = update.clone();
            if let Some(with) = with {
                let target = update.table.relation.clone();
                inline(&mut update, &with, position)?;
                update.table.relation = target;
            }
            let update = ast::Statement::Update(update);
            Ok(Some(Statement::Update(Box::new(update))))
        }
        ast::SetExpr::Delete(ast::Statement::Delete(delete)) => {
            let mut delete = delete.clone();
            if let Some(with) = with {
                let target = delete.from.clone();
                inline(&mut delete, &with, position)?;
                delete.from = target;
            }
            Ok(Some(Statement::Delete(Box::new(delete))))
        }
        ast::SetExpr::Insert(_)
        | ast::SetExpr::Update(_)
        | ast::SetExpr::Delete(_)
        | ast::SetExpr::Merge(_) => {
            Err(Error::unsupported("MERGE is not supported").position(position))
        }
        _ => {
            query.with = with;
            Ok(None)
        }
    }
}

fn no_place_for_with(position: usize) -> Error {
    Error::unsupported("WITH before INSERT … DEFAULT VALUES is not supported").position(position)
}

/// `WITH … INSERT INTO t SELECT …` is `INSERT INTO t WITH … SELECT …`.
fn put_with(source: &mut ast::Query, with: Option<ast::With>) {
    let Some(mut with) = with else { return };
    if let Some(own) = source.with.take() {
        with.recursive |= own.recursive;
        with.cte_tables.extend(own.cte_tables);
    }
    source.with = Some(with);
}

fn inline(statement: &mut impl VisitMut, with: &ast::With, position: usize) -> Result<()> {
    if with.cte_tables.iter().any(|cte| changes_rows(&cte.query)) {
        return Err(Error::unsupported(
            "WITH queries that change rows are not supported before UPDATE and DELETE",
        )
        .hint("Run them as statements of one transaction, or before SELECT or INSERT.")
        .position(position));
    }
    let walked = statement.visit(&mut Inline(with));
    assert!(walked.is_continue(), "the walk never stops early");
    Ok(())
}

/// A query that is an INSERT, UPDATE or DELETE with RETURNING.
pub(crate) fn changes_rows(query: &ast::Query) -> bool {
    matches!(
        query.body.as_ref(),
        ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_)
    )
}

struct Inline<'a>(&'a ast::With);

impl VisitorMut for Inline<'_> {
    type Break = ();

    // After what is inside: the query that is put in names its own `WITH` again.
    fn post_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<()> {
        let ast::TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let [part] = name.0.as_slice() else {
            return ControlFlow::Continue(());
        };
        let Some(ident) = part.as_ident() else {
            return ControlFlow::Continue(());
        };
        let is_meant = |cte: &&ast::Cte| folded(&cte.alias.name) == folded(ident);
        if self.0.cte_tables.iter().find(is_meant).is_none() {
            return ControlFlow::Continue(());
        }
        let alias = alias.clone().unwrap_or(ast::TableAlias {
            explicit: true,
            name: ident.clone(),
            columns: Vec::new(),
            at: None,
        });
        *factor = ast::TableFactor::Derived {
            lateral: false,
            subquery: Box::new(all_of(self.0, factor.clone())),
            alias: Some(alias),
            sample: None,
        };
        ControlFlow::Continue(())
    }
}

/// `WITH … SELECT * FROM factor`
fn all_of(with: &ast::With, mut factor: ast::TableFactor) -> ast::Query {
    if let ast::TableFactor::Table { alias, .. } = &mut factor {
        *alias = None;
    }
    let mut query = template("SELECT * FROM input");
    set_relation(&mut query, factor);
    query.with = Some(with.clone());
    query
}
