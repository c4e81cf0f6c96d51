//! `ON CONFLICT`: what happens to a row whose key is already there.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, VisitMut, VisitorMut};

use super::plan::{Planning, item};
use super::rewrite::{Assigned, assignments};
use super::target::{Target, folded, plain_name};
use crate::error::{Error, Result, sqlstate};

/// What to do with a row whose key is taken.
#[derive(Debug)]
pub(super) enum ConflictRule {
    /// an error
    Fail,
    /// `DO NOTHING`
    Nothing,
    /// `DO UPDATE`
    Update(Box<ConflictUpdate>),
}

/// `DO UPDATE SET … WHERE …`.
#[derive(Debug)]
pub(super) struct ConflictUpdate {
    assigned: Vec<Assigned>,
    selection: Option<Expr>,
}

impl ConflictRule {
    /// The rule that a statement states.
    pub fn of(target: &Target, on: Option<&ast::OnInsert>) -> Result<Self> {
        let conflict = match on {
            None => return Ok(Self::Fail),
            Some(ast::OnInsert::OnConflict(conflict)) => conflict,
            Some(_) => {
                return Err(
                    Error::unsupported("ON DUPLICATE KEY UPDATE is not supported")
                        .hint("Say ON CONFLICT (key) DO UPDATE SET …."),
                );
            }
        };
        let has_target = conflict.conflict_target.is_some();
        if let Some(named) = &conflict.conflict_target {
            check_target(target, named)?;
        }
        match &conflict.action {
            ast::OnConflictAction::DoNothing => Ok(Self::Nothing),
            ast::OnConflictAction::DoUpdate(_) if !has_target => Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .hint("For example, ON CONFLICT (column_name).")),
            ast::OnConflictAction::DoUpdate(update) => Ok(Self::Update(Box::new(ConflictUpdate {
                assigned: assignments(target, &update.assignments)?,
                selection: update.selection.clone(),
            }))),
        }
    }
}

/// The target must be the primary key.
fn check_target(target: &Target, named: &ast::ConflictTarget) -> Result<()> {
    let key: Vec<&str> = match &target.layout {
        Some(layout) if !layout.is_bag() => layout
            .key_columns()
            .iter()
            .map(|&c| target.columns()[c].name.as_str())
            .collect(),
        _ => Vec::new(),
    };
    match named {
        ast::ConflictTarget::Columns(names) => {
            let mut listed: Vec<String> = names.iter().map(folded).collect();
            for name in &listed {
                target.column(name)?;
            }
            listed.sort_unstable();
            listed.dedup();
            let mut wanted = key;
            wanted.sort_unstable();
            if listed != wanted {
                return Err(Error::new(
                    sqlstate::INVALID_COLUMN_REFERENCE,
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                ));
            }
        }
        ast::ConflictTarget::OnConstraint(name) => {
            let name = plain_name(name)?;
            let own = format!("{}_pkey", target.object.name);
            if key.is_empty() || name != own {
                return Err(Error::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!(
                        "constraint \"{name}\" for table \"{}\" does not exist",
                        target.object.name
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// The rows that `DO UPDATE` makes of existing ones and the proposed ones beside them; `None`
/// where its WHERE does not hold.
pub(super) async fn apply_updates(
    planning: &Planning<'_>,
    target: &Target,
    update: &ConflictUpdate,
    existing: &RecordBatch,
    excluded: &RecordBatch,
) -> Result<Vec<Option<RecordBatch>>> {
    let pairs = pairs(existing, excluded)?;
    let mut items = vec![item(
        match &update.selection {
            Some(condition) => with_excluded(condition),
            None => Expr::value(ast::Value::Boolean(true)),
        },
        "holds",
    )];
    for (i, assigned) in update.assigned.iter().enumerate() {
        if let Some(expr) = assigned.expression() {
            items.push(item(with_excluded(expr), &format!("new {i}")));
        }
    }
    let (schema, batches) = planning
        .select_over(&target.alias, (pairs.schema(), vec![pairs]), items)
        .await?;
    let results = concat_batches(&schema, &batches)?;
    let holds = boolean(results.column(0))?;
    let fields = schema.fields();
    let mut columns: Vec<ArrayRef> = existing.columns().to_vec();
    let mut at = 1;
    for assigned in &update.assigned {
        let computed = assigned.expression().map(|_| {
            at += 1;
            (results.column(at - 1), &fields[at - 1])
        });
        let values = assigned
            .values(planning, target, computed, existing.num_rows())
            .await?;
        columns[assigned.column] = values;
    }
    (0..existing.num_rows())
        .map(|row| {
            if !holds.is_valid(row) || !holds.value(row) {
                return Ok(None);
            }
            let one = columns.iter().map(|c| c.slice(row, 1)).collect();
            target.rows(one, 1).map(Some)
        })
        .collect()
}

fn boolean(values: &ArrayRef) -> Result<BooleanArray> {
    match values.as_boolean_opt() {
        Some(values) => Ok(values.clone()),
        None => Err(Error::new(
            sqlstate::DATATYPE_MISMATCH,
            "argument of WHERE must be type boolean",
        )),
    }
}

/// Existing rows under their own names, proposed ones as `excluded.name`.
fn pairs(existing: &RecordBatch, excluded: &RecordBatch) -> Result<RecordBatch> {
    let schema = existing.schema();
    let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
    for field in schema.fields() {
        let name = excluded_name(field.name());
        fields.push(Arc::new(
            field.as_ref().clone().with_name(name).with_nullable(true),
        ));
    }
    let mut columns = existing.columns().to_vec();
    columns.extend(excluded.columns().iter().cloned());
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

fn excluded_name(column: &str) -> String {
    format!("excluded.{column}")
}

/// `excluded.x` becomes the column of that name in [`pairs`].
fn with_excluded(expr: &Expr) -> Expr {
    struct Rewriter;
    impl VisitorMut for Rewriter {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> std::ops::ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let [relation, column] = parts.as_slice()
                && folded(relation) == "excluded"
            {
                let name = excluded_name(&folded(column));
                *expr = Expr::Identifier(Ident::with_quote('"', name));
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut rewritten = expr.clone();
    let walked = rewritten.visit(&mut Rewriter);
    assert!(walked.is_continue(), "the rewriter never stops early");
    rewritten
}
