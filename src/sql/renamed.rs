//! A stored query with the names that its relations have now, as PostgreSQL shows views.
//!
//! What is stored is what was written, and stays so. A renamed relation is found in the text by its place, and so
//! are the columns that name it in front of them. Where the query has another thing of the old or of the new name (an
//! alias, a name of WITH), the relation gets its old name as an alias instead, so that all columns mean what they did.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableAlias, TableFactor, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::{Location, Span};

use super::names::quote_identifier;
use super::statement::Statement;

/// Functions in FROM whose first argument is a relation.
const OVER_RELATIONS: &[&str] = &["tumble", "hop", "session"];

/// The text of a query with present names; `renamed`: those that are written, and what they mean.
pub fn with_present_names(query: &str, renamed: &BTreeMap<String, String>) -> String {
    if renamed.is_empty() {
        return query.to_owned();
    }
    let Ok(parsed) = super::parse(query) else {
        return query.to_owned();
    };
    let mut places = Places::default();
    for (statement, _) in &parsed {
        if let Statement::Query(query) = statement {
            // Nothing ends the walk early.
            let _: ControlFlow<()> = query.visit(&mut places);
        }
    }
    let mut changes: Vec<(usize, usize, String)> = Vec::new();
    for (written, name) in renamed {
        let is_ambiguous = places.declared.contains(written) || places.declared.contains(name);
        let new = quote_identifier(name);
        for relation in places.relations.iter().filter(|r| r.is(written)) {
            if places.with.contains(written) {
                continue;
            }
            let text = match is_ambiguous && !relation.has_alias {
                true => format!("{new} AS {}", quote_identifier(written)),
                false => new.clone(),
            };
            changes.extend(replaced(query, relation.span, text));
        }
        let qualifiers = places.qualifiers.iter().filter(|q| q.is(written));
        for qualifier in qualifiers.filter(|_| !is_ambiguous) {
            changes.extend(replaced(query, qualifier.span, new.clone()));
        }
    }
    changes.sort_unstable();
    changes.dedup();
    let mut text = query.to_owned();
    for (start, end, new) in changes.into_iter().rev() {
        text.replace_range(start..end, &new);
    }
    text
}

/// A name in the text.
#[derive(Debug)]
struct Named {
    name: String,
    span: Span,
    has_alias: bool,
}

impl Named {
    fn new(ident: &Ident, has_alias: bool) -> Self {
        Self {
            name: folded(ident),
            span: ident.span,
            has_alias,
        }
    }

    fn is(&self, name: &str) -> bool {
        self.name == name
    }
}

fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Where names are.
#[derive(Debug, Default)]
struct Places {
    relations: Vec<Named>,
    /// What stands before a dot and a column.
    qualifiers: Vec<Named>,
    /// Aliases and names of WITH.
    declared: BTreeSet<String>,
    with: BTreeSet<String>,
}

impl Places {
    fn relation(&mut self, parts: &[&Ident], alias: Option<&TableAlias>) {
        let is_ours = match parts {
            [_] => true,
            [schema, _] => folded(schema) == "public",
            _ => false,
        };
        if let Some(last) = parts.last().filter(|_| is_ours) {
            self.relations.push(Named::new(last, alias.is_some()));
        }
        self.declare(alias);
    }

    fn declare(&mut self, alias: Option<&TableAlias>) {
        self.declared.extend(alias.map(|alias| folded(&alias.name)));
    }

    /// `t.c`, `public.t.c`: of all parts but the column.
    fn qualifier(&mut self, parts: &[&Ident]) {
        if let Some(last) = parts.last() {
            self.qualifiers.push(Named::new(last, false));
        }
    }

    fn first_argument(&mut self, function: &ObjectName, arguments: &[FunctionArg]) {
        let idents = idents_of(function);
        let is_known = idents
            .last()
            .is_some_and(|name| OVER_RELATIONS.contains(&folded(name).as_str()));
        let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) =
            arguments.first().filter(|_| is_known)
        else {
            return;
        };
        match first {
            Expr::Identifier(ident) => self.relation(&[ident], None),
            Expr::CompoundIdentifier(parts) => {
                self.relation(&parts.iter().collect::<Vec<_>>(), None);
            }
            _ => {}
        }
    }
}

fn idents_of(name: &ObjectName) -> Vec<&Ident> {
    name.0.iter().filter_map(|part| part.as_ident()).collect()
}

impl Visitor for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.declare(Some(&cte.alias));
            self.with.insert(folded(&cte.alias.name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
            {
                self.qualifier(&idents_of(name));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table {
                name, alias, args, ..
            } => match args {
                None => self.relation(&idents_of(name), alias.as_ref()),
                Some(args) => {
                    self.first_argument(name, &args.args);
                    self.declare(alias.as_ref());
                }
            },
            TableFactor::Function {
                name, args, alias, ..
            } => {
                self.first_argument(name, args);
                self.declare(alias.as_ref());
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => self.declare(alias.as_ref()),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(parts) => {
                let parts: Vec<&Ident> = parts.iter().collect();
                self.qualifier(&parts[..parts.len().saturating_sub(1)]);
            }
            Expr::QualifiedWildcard(name, _) => self.qualifier(&idents_of(name)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// A change of the text, by bytes; `None` for a name that is not in it.
fn replaced(text: &str, span: Span, new: String) -> Option<(usize, usize, String)> {
    let (start, end) = (offset(text, span.start)?, offset(text, span.end)?);
    (start < end).then_some((start, end, new))
}

/// Lines and columns count characters, from 1.
fn offset(text: &str, at: Location) -> Option<usize> {
    let line = usize::try_from(at.line.checked_sub(1)?).ok()?;
    let start = match line {
        0 => 0,
        line => text.match_indices('\n').nth(line - 1)?.0 + 1,
    };
    let column = usize::try_from(at.column.checked_sub(1)?).ok()?;
    let rest = &text[start..];
    let mut ends = rest
        .char_indices()
        .map(|(index, _)| index)
        .chain([rest.len()]);
    ends.nth(column).map(|index| start + index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let renamed = [("old", "new"), ("Other", "New one")];
        let renamed = renamed.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(with_present_names(query, &renamed.into()), expected);
    }

    #[test]
    fn relations_and_what_names_them_get_the_new_name() {
        check(
            "SELECT old.a, Old.*, é.b\n FROM public.old JOIN \"Other\" AS é ON é.a = old.a -- old\n WHERE old.a IN (SELECT a FROM old)",
            "SELECT new.a, new.*, é.b\n FROM public.new JOIN \"New one\" AS é ON é.a = new.a -- old\n WHERE new.a IN (SELECT a FROM new)",
        );
        check(
            "SELECT count(*) FROM TUMBLE(old, at, INTERVAL '1 second') GROUP BY window_start",
            "SELECT count(*) FROM TUMBLE(new, at, INTERVAL '1 second') GROUP BY window_start",
        );
    }

    #[test]
    fn what_has_the_name_otherwise_stays() {
        check(
            "SELECT a AS old, 'old' FROM t",
            "SELECT a AS old, 'old' FROM t",
        );
        check("SELECT old FROM old", "SELECT old FROM new");
        check(
            "WITH old AS (SELECT 1 AS a) SELECT old.a FROM old",
            "WITH old AS (SELECT 1 AS a) SELECT old.a FROM old",
        );
        check("SELECT old FROM other.old", "SELECT old FROM other.old");
    }

    #[test]
    fn an_alias_keeps_columns_apart() {
        check(
            "SELECT old.a, new.b FROM old, t AS new",
            "SELECT old.a, new.b FROM new AS old, t AS new",
        );
        check(
            "SELECT old.a FROM t AS old WHERE a IN (SELECT a FROM old)",
            "SELECT old.a FROM t AS old WHERE a IN (SELECT a FROM new AS old)",
        );
        check("SELECT o.a FROM old AS o", "SELECT o.a FROM new AS o");
    }
}
