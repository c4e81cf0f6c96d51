//! Names of relations as values (`sql/rewrite/whole_rows.rs`): which columns their rows have is known
//! here, where the relations are. Nothing is looked at unless a select uses such a name.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{Select, Statement, VisitMut, VisitorMut};
use futures::future::BoxFuture;

use super::merged_joins::found;
use crate::error::Result;
use crate::sql::rewrite::whole_rows::{Rows, names_relation, put_rows, rows_of};

/// Puts rows in the place of relations' names.
///
/// Relations are planned on the way to the statement's plan, and the stack is to hold one at a time.
pub(super) fn with_rows<'a>(
    state: &'a SessionState,
    statement: &'a mut Statement,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(put_all(state, statement))
}

async fn put_all(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let mut passed = 0;
    while let Some(found) = found(statement, passed, names_relation) {
        let leaves = Box::pin(found.leaves(state)).await?;
        let rows = leaves.map(|leaves| rows_of(found.select(), &leaves));
        let mut putter = Putter {
            place: passed,
            rows: rows.unwrap_or_default(),
            is_done: false,
        };
        let walked = VisitMut::visit(statement, &mut putter);
        assert!(walked.is_continue(), "the walk never stops early");
        // A select whose names have all become rows is not found again.
        passed += usize::from(!putter.is_done);
    }
    Ok(())
}

/// Puts them in the select that was found.
struct Putter {
    place: usize,
    rows: Rows,
    is_done: bool,
}

impl VisitorMut for Putter {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !names_relation(select) {
            return ControlFlow::Continue(());
        }
        if self.place > 0 {
            self.place -= 1;
            return ControlFlow::Continue(());
        }
        put_rows(select, &self.rows);
        self.is_done = !names_relation(select);
        // No other is the one that was found.
        self.place = usize::MAX;
        ControlFlow::Continue(())
    }
}
