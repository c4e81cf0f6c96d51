//! `*` leaves out columns that only who names them sees: `_rescued_data` of a stream that rescues.
//!
//! ```text
//!   SELECT * FROM s                 SELECT * EXCLUDE (_rescued_data) FROM s
//!   SELECT * FROM s, t              SELECT s.* EXCLUDE (_rescued_data), t.* FROM s, t
//!   SELECT s.*, 1 FROM s            SELECT s.* EXCLUDE (_rescued_data), 1 FROM s
//! ```
//! Before all other rewrites, on what the user wrote: a query within that names the column shows it
//! like any other. Which relations have one, the catalog of the statement says.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, FunctionArg, FunctionArgExpr, Ident, JoinOperator, ObjectName, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, Statement, TableFactor, TableFunctionArgs,
    VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use super::merged_joins::Scope;
use super::scope::StatementScope;
use super::versions;
use crate::catalog::definition::Definition;
use crate::connectors::evolution::{RESCUED_COLUMN, is_hidden};
use crate::sql::data_types::folded;
use crate::sql::rewrite::{table_as_select, using};

/// Takes hidden columns out of the stars of a statement.
pub(super) fn leave_out(state: &SessionState, statement: &mut Statement) {
    let Some(scope) = state.config().get_extension::<StatementScope>() else {
        return;
    };
    let catalog = scope.catalog();
    let has_hidden = |definition: &Definition| match definition {
        Definition::Stream(stream) => stream.columns.iter().any(is_hidden),
        _ => false,
    };
    // Most databases have none, and their statements are not walked.
    if !catalog
        .objects()
        .any(|object| has_hidden(&object.definition))
    {
        return;
    }
    let mut stars = Stars {
        names: &scope,
        with: Scope::default(),
    };
    let walked = VisitMut::visit(statement, &mut stars);
    assert!(walked.is_continue(), "the walk never stops early");
}

struct Stars<'a> {
    names: &'a StatementScope,
    with: Scope,
}

impl VisitorMut for Stars<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        table_as_select(&mut query.body);
        self.with.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.with.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let relations = self.relations_of(select);
        if relations.iter().any(|relation| relation.hides) {
            let items = std::mem::take(&mut select.projection);
            let by_relation = !using::merges(select) && shows_all(select);
            let items = items.into_iter();
            select.projection = items
                .flat_map(|item| without_hidden(item, &relations, by_relation))
                .collect();
        }
        ControlFlow::Continue(())
    }
}

/// A relation of a FROM.
struct Named {
    /// What it is called there; `None`: nothing that could be said.
    name: Option<Ident>,
    /// It has a hidden column.
    hides: bool,
}

impl Stars<'_> {
    fn relations_of(&self, select: &Select) -> Vec<Named> {
        let mut relations = Vec::new();
        for from in &select.from {
            self.add(&from.relation, &mut relations);
            for join in &from.joins {
                self.add(&join.relation, &mut relations);
            }
        }
        relations
    }

    fn add(&self, factor: &TableFactor, relations: &mut Vec<Named>) {
        match factor {
            TableFactor::Table {
                name, alias, args, ..
            } => {
                let called = alias.as_ref().map(|alias| alias.name.clone());
                let own = name.0.last().and_then(|part| part.as_ident()).cloned();
                let hides = match args {
                    None => self.hides(name),
                    Some(arguments) => self.hides_first(arguments),
                };
                relations.push(Named {
                    name: called.or(own),
                    hides,
                });
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => {
                self.add(&table_with_joins.relation, relations);
                for join in &table_with_joins.joins {
                    self.add(&join.relation, relations);
                }
            }
            TableFactor::Derived { alias, .. } => relations.push(Named {
                name: alias.as_ref().map(|alias| alias.name.clone()),
                hides: false,
            }),
            _ => relations.push(Named {
                name: None,
                hides: false,
            }),
        }
    }

    /// A relation of this name is a stream with a hidden column, as far as the statement means it.
    fn hides(&self, name: &ObjectName) -> bool {
        let parts: Option<Vec<String>> = name
            .0
            .iter()
            .map(|part| part.as_ident().map(folded))
            .collect();
        let parts = parts.unwrap_or_default();
        let object = match parts.as_slice() {
            [name] => {
                let mut with = self.with.visible.iter();
                if with.any(|cte| folded(&cte.alias.name) == *name) {
                    return false;
                }
                self.names.meant(name)
            }
            [schema, name] if schema == "public" => self.names.meant_in_public(name),
            _ => None,
        };
        let meant = object.map(|object| versions::meant(&object));
        meant.is_some_and(|object| {
            matches!(object.definition, Definition::Stream(_))
                && object.columns().iter().any(is_hidden)
        })
    }

    /// A window function shows the columns of the relation that it is over.
    fn hides_first(&self, arguments: &TableFunctionArgs) -> bool {
        match arguments.args.first() {
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name)))) => {
                self.hides(&ObjectName::from(vec![name.clone()]))
            }
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(parts)))) => {
                self.hides(&ObjectName::from(parts.clone()))
            }
            _ => false,
        }
    }
}

/// All relations of the FROM show their columns.
fn shows_all(select: &Select) -> bool {
    let mut joins = select.from.iter().flat_map(|from| &from.joins);
    joins.all(|join| {
        !matches!(
            join.join_operator,
            JoinOperator::Semi(_)
                | JoinOperator::LeftSemi(_)
                | JoinOperator::RightSemi(_)
                | JoinOperator::Anti(_)
                | JoinOperator::LeftAnti(_)
                | JoinOperator::RightAnti(_)
        )
    })
}

fn without_hidden(item: SelectItem, relations: &[Named], by_relation: bool) -> Vec<SelectItem> {
    match item {
        SelectItem::Wildcard(options) => {
            let is_plain = options == WildcardAdditionalOptions::default();
            let names: Option<Vec<&Ident>> = relations.iter().map(|r| r.name.as_ref()).collect();
            let (true, true, Some(names)) = (by_relation && is_plain, relations.len() > 1, names)
            else {
                return vec![SelectItem::Wildcard(excluding(options))];
            };
            let all = names.into_iter().zip(relations);
            all.map(|(name, relation)| {
                let name = ObjectName::from(vec![name.clone()]);
                let options = match relation.hides {
                    true => excluding(options.clone()),
                    false => options.clone(),
                };
                let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
                SelectItem::QualifiedWildcard(kind, options)
            })
            .collect()
        }
        SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(name),
            options,
        ) => {
            let called = name.0.last().and_then(|part| part.as_ident()).map(folded);
            let hides = relations
                .iter()
                .any(|relation| relation.hides && relation.name.as_ref().map(folded) == called);
            let options = if hides { excluding(options) } else { options };
            let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
            vec![SelectItem::QualifiedWildcard(kind, options)]
        }
        other => vec![other],
    }
}

/// The options of a star that leaves out the hidden column beside what it leaves out already.
fn excluding(mut options: WildcardAdditionalOptions) -> WildcardAdditionalOptions {
    let hidden = ObjectName::from(vec![Ident::with_quote('"', RESCUED_COLUMN)]);
    let is_hidden = |name: &ObjectName| {
        let name = name.0.last().and_then(|part| part.as_ident()).map(folded);
        name.as_deref() == Some(RESCUED_COLUMN)
    };
    let mut excluded = match options.opt_exclude.take() {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
    };
    if !excluded.iter().any(is_hidden) {
        excluded.push(hidden);
    }
    options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
    options
}
