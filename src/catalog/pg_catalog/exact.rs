//! Which of its two forms `information_schema` has for a statement.
//!
//! Materialized views are listed there for tools that look nowhere else. A statement that reads
//! `pg_class` or `pg_matviews` beside it knows where PostgreSQL keeps them, and would count them twice.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Statement, TableAlias, TableFactor, VisitMut, VisitorMut,
    visit_relations,
};

use super::information::exact_name;

const TELLS_OF_VIEWS: [&str; 3] = ["pg_class", "pg_matviews", "pg_attribute"];
const INFORMATION_SCHEMA: &str = "information_schema";

/// Makes `information_schema` as in PostgreSQL for a statement that reads `pg_catalog` too.
pub fn with_exact_information(statement: &mut Statement) {
    let (mut reads_information, mut reads_classes) = (false, false);
    let visited = visit_relations(statement, |name| {
        let (schema, relation) = parts(name);
        reads_information |= schema.as_deref() == Some(INFORMATION_SCHEMA);
        reads_classes |= TELLS_OF_VIEWS.contains(&relation.as_str())
            && matches!(schema.as_deref(), None | Some("pg_catalog"));
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue());
    if reads_information && reads_classes {
        let changed = statement.visit(&mut Exact);
        debug_assert!(changed.is_continue());
    }
}

/// Schema and name of a relation, folded.
fn parts(name: &ObjectName) -> (Option<String>, String) {
    let folded = |ident: &Ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    let mut parts = name.0.iter().rev().filter_map(ObjectNamePart::as_ident);
    let relation = parts.next().map(folded).unwrap_or_default();
    (parts.next().map(folded), relation)
}

struct Exact;

impl VisitorMut for Exact {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let (schema, view) = parts(name);
        if schema.as_deref() == Some(INFORMATION_SCHEMA)
            && let Some(exact) = exact_name(&view)
            && let Some(last) = name.0.last_mut()
        {
            *last = ObjectNamePart::Identifier(Ident::with_quote('"', exact));
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: Ident::new(view),
                columns: Vec::new(),
                at: None,
            });
        }
        ControlFlow::Continue(())
    }
}
