//! What a change of rows needs of its target, read off its text.
//!
//! The target itself is read without a check, since every change reads whole rows of it; so what the
//! statement's own words read of it is found here, by PostgreSQL's rule: a column needs SELECT where
//! it stands in an expression, in RETURNING or as the target of ON CONFLICT. A name in a subquery is
//! taken for the target's if it could be; and where the statement names the relation again as one to
//! read, all of it is read.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, Expr, Visit};

use super::rewrite::{assignments, update_others};
use super::session::Change;
use super::target::{
    CatalogLookup, Target, Verb, folded, last_name, named_relation, plain_name, relation_name,
};
use crate::catalog::access::acl::Privileges;
use crate::catalog::definition::CatalogObject;
use crate::error::{Error, Result};

/// A privilege of the whole relation, or of each of these columns if there are any.
#[derive(Debug)]
pub(super) struct Need {
    pub object: Arc<CatalogObject>,
    pub privilege: Privileges,
    pub columns: Vec<usize>,
}

/// What a change needs; the first is of its target.
pub(super) fn needs(catalog: CatalogLookup<'_>, change: &Change<'_>) -> Result<Vec<Need>> {
    match change {
        Change::Insert(insert) => of_insert(catalog, insert),
        Change::Update(ast::Statement::Update(update)) => of_update(catalog, update),
        Change::Update(_) => Err(Error::internal("an UPDATE is an UPDATE statement")),
        Change::Delete(delete) => of_delete(catalog, delete),
        Change::Truncate(names) => names
            .iter()
            .map(|name| {
                let target = Target::find(catalog, name, None, Verb::Truncate)?;
                Ok(need(&target, Privileges::TRUNCATE, Vec::new()))
            })
            .collect(),
    }
}

fn need(target: &Target, privilege: Privileges, columns: Vec<usize>) -> Need {
    Need {
        object: Arc::clone(&target.object),
        privilege,
        columns,
    }
}

fn of_insert(catalog: CatalogLookup<'_>, insert: &ast::Insert) -> Result<Vec<Need>> {
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("INSERT takes the name of a relation"));
    };
    let alias = insert.table_alias.as_ref().map(|a| folded(&a.alias));
    let name = relation_name(name)?;
    let target = Target::find(catalog, &name, alias.as_deref(), Verb::Insert)?;
    let names = insert.columns.iter().map(plain_name);
    let listed = target.listed(&names.collect::<Result<Vec<_>>>()?)?;
    let mut needs = vec![need(&target, Privileges::INSERT, listed)];
    let mut read = Read::new(&target);
    if let Some(ast::OnInsert::OnConflict(conflict)) = &insert.on {
        if let Some(ast::ConflictTarget::Columns(columns)) = &conflict.conflict_target {
            columns
                .iter()
                .for_each(|column| read.column(&folded(column)));
        }
        if let ast::OnConflictAction::DoUpdate(update) = &conflict.action {
            let assigned = assignments(&target, &update.assignments)?;
            let columns = assigned.iter().map(|a| a.column).collect();
            needs.push(need(&target, Privileges::UPDATE, columns));
            read.expressions(update);
        }
    }
    read.returning(insert.returning.as_deref());
    if let Some(source) = &insert.source {
        read.relations(source.as_ref());
    }
    needs.extend(read.need());
    Ok(needs)
}

fn of_update(catalog: CatalogLookup<'_>, update: &ast::Update) -> Result<Vec<Need>> {
    let (name, alias) = named_relation(&update.table.relation)?;
    let target = Target::find(catalog, &name, alias.as_deref(), Verb::Update)?;
    let assigned = assignments(&target, &update.assignments)?;
    let columns = assigned.iter().map(|a| a.column).collect();
    let mut read = Read::new(&target);
    for assigned in &assigned {
        read.expressions(&assigned.expr);
        read.relations(&assigned.expr);
    }
    if let Some(selection) = &update.selection {
        read.expressions(selection);
        read.relations(selection);
    }
    read.joins(&update.table.joins);
    for other in update_others(update) {
        read.expressions(other);
        read.relations(other);
    }
    read.returning(update.returning.as_deref());
    let mut needs = vec![need(&target, Privileges::UPDATE, columns)];
    needs.extend(read.need());
    Ok(needs)
}

fn of_delete(catalog: CatalogLookup<'_>, delete: &ast::Delete) -> Result<Vec<Need>> {
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
        &delete.from;
    let Some(from) = from.first() else {
        return Ok(Vec::new());
    };
    let (name, alias) = named_relation(&from.relation)?;
    let target = Target::find(catalog, &name, alias.as_deref(), Verb::Delete)?;
    let mut read = Read::new(&target);
    read.joins(&from.joins);
    if let Some(selection) = &delete.selection {
        read.expressions(selection);
        read.relations(selection);
    }
    for other in delete.using.iter().flatten() {
        read.expressions(other);
        read.relations(other);
    }
    read.returning(delete.returning.as_deref());
    let mut needs = vec![need(&target, Privileges::DELETE, Vec::new())];
    needs.extend(read.need());
    Ok(needs)
}

/// The columns of the target that expressions read.
struct Read<'a> {
    target: &'a Target,
    columns: BTreeSet<usize>,
    is_whole: bool,
}

impl<'a> Read<'a> {
    fn new(target: &'a Target) -> Self {
        Self {
            target,
            columns: BTreeSet::new(),
            is_whole: false,
        }
    }

    fn column(&mut self, name: &str) {
        let mut columns = self.target.columns().iter();
        self.columns.extend(columns.position(|c| c.name == name));
    }

    fn names_target(&self, name: &str) -> bool {
        name == self.target.alias || name == self.target.object.name
    }

    fn expressions(&mut self, part: &impl Visit) {
        let visited = ast::visit_expressions(part, |expr| {
            match expr {
                Expr::Identifier(name) => {
                    let name = folded(name);
                    self.is_whole |= self.names_target(&name);
                    self.column(&name);
                }
                Expr::CompoundIdentifier(parts) => {
                    let names: Vec<String> = parts.iter().map(folded).collect();
                    if let [.., relation, column] = names.as_slice()
                        && self.names_target(relation)
                    {
                        self.column(column);
                    }
                }
                Expr::QualifiedWildcard(name, _) => {
                    self.is_whole |= last_name(name).is_some_and(|n| self.names_target(&n));
                }
                _ => {}
            }
            ControlFlow::<()>::Continue(())
        });
        debug_assert!(visited.is_continue());
    }

    fn joins(&mut self, joins: &[ast::Join]) {
        for join in joins {
            self.expressions(join);
            self.relations(join);
        }
    }

    /// The target is read as a relation of its own.
    fn relations(&mut self, part: &impl Visit) {
        let mut found = false;
        let visited = ast::visit_relations(part, |name| {
            let is_target = last_name(name).is_some_and(|n| n == self.target.object.name);
            found |= is_target;
            ControlFlow::<()>::Continue(())
        });
        debug_assert!(visited.is_continue());
        self.is_whole |= found;
    }

    fn returning(&mut self, items: Option<&[ast::SelectItem]>) {
        for item in items.into_iter().flatten() {
            match item {
                ast::SelectItem::Wildcard(_) | ast::SelectItem::QualifiedWildcard(..) => {
                    self.is_whole = true;
                }
                other => {
                    self.expressions(other);
                    self.relations(other);
                }
            }
        }
    }

    fn need(self) -> Option<Need> {
        let columns: Vec<usize> = match self.is_whole {
            true => (0..self.target.columns().len()).collect(),
            false => self.columns.into_iter().collect(),
        };
        (!columns.is_empty()).then(|| need(self.target, Privileges::SELECT, columns))
    }
}
