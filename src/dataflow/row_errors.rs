//! Rows on which an expression cannot be computed: division by zero, a failed cast, an overflow.
//!
//! ```text
//!   change ──► all expressions, vectorised ──► no error: done
//!                        │ error of a value
//!                        ▼
//!              halves, down to single rows ──► values, and the rows that fail
//!                                                        │ on_row_error
//!                        null: the value is NULL; skip, fail: the row is left out
//! ```
//!
//! What an expression gives on a row depends on that row alone, so a row that is deleted later
//! fails again and takes back exactly what it brought. Under `fail` the failing rows of a batch
//! are summed up first: one that is inserted and deleted in the same batch, as an UPDATE that
//! mends it does, is no error. A deleted row that fails without ever having been inserted was
//! left out under `skip` before, and stays out.
//!
//! The result of an aggregate that cannot be computed, such as a sum that does not fit, belongs to
//! a group; the aggregate meets it by the same policy, and the group's row takes the place of the
//! failing one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use datafusion::arrow::compute::{concat, filter};
use datafusion::arrow::datatypes::Schema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use super::change::ChangeBatch;
use super::expression::{evaluate, evaluate_all};
use super::operator::OperatorStatistics;
use crate::error::{Error, Result};
use crate::values::types::WireType;
use crate::values::{Format, OutputSettings, RowEncoder};

/// Columns and characters of a value that a message shows of a failing row.
const COLUMNS_SHOWN: usize = 8;
const CHARACTERS_SHOWN: usize = 60;

/// Distinct failing rows that are summed up under `fail`; with more the batch fails at once.
const ROWS_SUMMED_MAX: usize = 100_000;

/// What becomes of a row on which an expression cannot be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRowError {
    /// The batch fails, and the error names the row.
    #[default]
    Fail,
    /// The row is left out, and counted.
    Skip,
    /// The expression gives NULL, and the row is counted.
    Null,
}

impl OnRowError {
    /// The policy of an option's value; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "fail" => Some(Self::Fail),
            "skip" => Some(Self::Skip),
            "null" => Some(Self::Null),
            _ => None,
        }
    }

    /// The option's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Skip => "skip",
            Self::Null => "null",
        }
    }
}

/// The rows of a batch that fail, by index, each with its first error and the columns that the
/// failing expression reads.
#[derive(Debug, Default)]
pub struct FailedRows {
    rows: BTreeMap<usize, (Error, Vec<usize>)>,
}

impl FailedRows {
    /// No row fails.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows fail.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes over the failures of `other` for the rows that `counts` says yes to.
    pub fn add_where(&mut self, other: Self, counts: impl Fn(usize) -> bool) {
        for (row, failure) in other.rows {
            if counts(row) {
                self.rows.entry(row).or_insert(failure);
            }
        }
    }

    /// The first failing row and its error.
    pub fn first(&self) -> Option<(usize, &Error)> {
        let (row, (error, _)) = self.rows.first_key_value()?;
        Some((*row, error))
    }

    /// True for the rows that do not fail.
    pub fn good_rows(&self, count: usize) -> BooleanArray {
        (0..count)
            .map(|row| Some(!self.rows.contains_key(&row)))
            .collect()
    }
}

/// The values of an expression, NULL where it fails; the failing rows go to `failed`. Errors that
/// are not a row's come back as they are.
pub fn evaluate_each(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    failed: &mut FailedRows,
) -> Result<ArrayRef> {
    let mut parts = Vec::new();
    evaluate_part(expression, rows, 0, rows.num_rows(), &mut parts, failed)?;
    match parts.len() {
        0 => Ok(new_null_array(&expression.data_type(&rows.schema())?, 0)),
        1 => Ok(parts.swap_remove(0)),
        _ => {
            let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
            Ok(concat(&parts)?)
        }
    }
}

fn evaluate_part(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    start: usize,
    count: usize,
    parts: &mut Vec<ArrayRef>,
    failed: &mut FailedRows,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    match evaluate(expression, &rows.slice(start, count)) {
        Ok(values) => parts.push(values),
        Err(error) if !error.is_of_value() => return Err(error),
        Err(error) if count == 1 => {
            let read = columns_of(expression);
            failed.rows.entry(start).or_insert((error, read));
            parts.push(new_null_array(&expression.data_type(&rows.schema())?, 1));
        }
        Err(_) => {
            let half = count / 2;
            evaluate_part(expression, rows, start, half, parts, failed)?;
            evaluate_part(expression, rows, start + half, count - half, parts, failed)?;
        }
    }
    Ok(())
}

/// A failing row, its copies in this batch, and what is said of it.
#[derive(Debug)]
struct Summed {
    weight: i64,
    error: Error,
    place: String,
}

/// An operator's failing rows of one batch.
#[derive(Debug, Default)]
pub struct RowErrors {
    policy: OnRowError,
    summed: HashMap<Vec<Option<String>>, Summed>,
    rows: u64,
    first: Option<Error>,
    /// Of the last finished batch.
    counted: (u64, Option<Error>),
}

impl RowErrors {
    /// What the next rows that fail meet.
    pub fn set_policy(&mut self, policy: OnRowError) {
        self.policy = policy;
    }

    /// What rows that fail meet.
    pub fn policy(&self) -> OnRowError {
        self.policy
    }

    /// The values of `expressions` over a change, and the change without the rows that are left
    /// out.
    pub fn evaluate(
        &mut self,
        expressions: &[Arc<dyn PhysicalExpr>],
        change: ChangeBatch,
    ) -> Result<(ChangeBatch, Vec<ArrayRef>)> {
        match evaluate_all(expressions, change.rows()) {
            Err(error) if error.is_of_value() => {}
            other => return Ok((change, other?)),
        }
        let mut failed = FailedRows::default();
        let columns = expressions
            .iter()
            .map(|expression| evaluate_each(expression, change.rows(), &mut failed))
            .collect::<Result<Vec<_>>>()?;
        if failed.is_empty() {
            return Ok((change, columns));
        }
        self.note(&change, &failed)?;
        if self.policy == OnRowError::Null {
            return Ok((change, columns));
        }
        let good = failed.good_rows(change.num_rows());
        let columns = columns
            .iter()
            .map(|column| Ok(filter(column, &good)?))
            .collect::<Result<Vec<_>>>()?;
        Ok((change.filter(&good)?, columns))
    }

    /// The values of a condition over a change, NULL where it fails: such a row does not pass.
    pub fn evaluate_condition(
        &mut self,
        condition: &Arc<dyn PhysicalExpr>,
        change: &ChangeBatch,
    ) -> Result<ArrayRef> {
        match evaluate(condition, change.rows()) {
            Err(error) if error.is_of_value() => {}
            other => return other,
        }
        let mut failed = FailedRows::default();
        let values = evaluate_each(condition, change.rows(), &mut failed)?;
        self.note(change, &failed)?;
        Ok(values)
    }

    /// Counts the failing rows of a change; under `fail` it sums them up.
    pub fn note(&mut self, change: &ChangeBatch, failed: &FailedRows) -> Result<()> {
        if failed.is_empty() {
            return Ok(());
        }
        if self.policy == OnRowError::Fail {
            return self.sum_up(change, failed);
        }
        for (&row, (error, _)) in &failed.rows {
            let weight = change.weight(row);
            if weight > 0 {
                self.rows += weight as u64;
                self.first.get_or_insert_with(|| error.clone());
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, change: &ChangeBatch, failed: &FailedRows) -> Result<()> {
        let settings = OutputSettings::default();
        let texts = texts_of(change.rows(), &settings)?;
        let schema = change.schema();
        for (&row, (error, read)) in &failed.rows {
            let summed = match self.summed.entry(cells(&texts, row)?) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let place = place(&schema, entry.key(), read);
                    let error = error.clone();
                    entry.insert(Summed {
                        weight: 0,
                        error,
                        place,
                    })
                }
            };
            summed.weight += change.weight(row);
        }
        if self.summed.len() > ROWS_SUMMED_MAX {
            return self.fail();
        }
        Ok(())
    }

    /// None of a batch, with the same policy: for a part that is worked on by itself.
    pub fn apart(&self) -> Self {
        Self {
            policy: self.policy,
            ..Self::default()
        }
    }

    /// Takes over the failing rows of a part.
    pub fn absorb(&mut self, part: Self) -> Result<()> {
        self.count(part.rows, part.first);
        for (row, summed) in part.summed {
            match self.summed.entry(row) {
                Entry::Occupied(entry) => entry.into_mut().weight += summed.weight,
                Entry::Vacant(entry) => {
                    entry.insert(summed);
                }
            }
        }
        match self.summed.len() > ROWS_SUMMED_MAX {
            true => self.fail(),
            false => Ok(()),
        }
    }

    /// Counts results of groups that cannot be computed and that the policy lets pass.
    pub fn count(&mut self, groups: u64, error: Option<Error>) {
        self.rows += groups;
        self.first = self.first.take().or(error);
    }

    /// The batch's last row is in. Fails under `fail` when a row that fails is there to stay.
    pub fn settle(&mut self) -> Result<()> {
        self.fail()?;
        self.summed.clear();
        self.counted = (std::mem::take(&mut self.rows), self.first.take());
        Ok(())
    }

    fn fail(&self) -> Result<()> {
        let stays = self.summed.values().filter(|row| row.weight > 0);
        match stays.min_by(|a, b| a.place.cmp(&b.place)) {
            Some(row) => Err(row.error.clone().at(&row.place)),
            None => Ok(()),
        }
    }

    /// Adds what the last batch counted to an operator's numbers.
    pub fn add_statistics(&self, statistics: &mut OperatorStatistics) {
        statistics.error_rows += self.counted.0;
        if statistics.first_row_error.is_none() {
            statistics.first_row_error.clone_from(&self.counted.1);
        }
    }

    /// The batch is given up.
    pub fn reset(&mut self) {
        *self = self.apart();
    }
}

/// Where a row is, in words: `in row (id, b) = (2, 0)`.
pub fn place_of(
    rows: &RecordBatch,
    row: usize,
    expression: &Arc<dyn PhysicalExpr>,
) -> Result<String> {
    let (one, settings) = (rows.slice(row, 1), OutputSettings::default());
    let cells = cells(&texts_of(&one, &settings)?, 0)?;
    Ok(place(&rows.schema(), &cells, &columns_of(expression)))
}

fn columns_of(expression: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    collect_columns(expression)
        .iter()
        .map(|column| column.index())
        .collect()
}

/// Writes the values of a batch as texts.
fn texts_of<'a>(rows: &RecordBatch, settings: &'a OutputSettings) -> Result<RowEncoder<'a>> {
    let types = WireType::of_schema(&rows.schema())?;
    RowEncoder::new(rows, &types, &[Format::Text], settings)
}

/// The texts of a row; `None`: NULL.
fn cells(texts: &RowEncoder, row: usize) -> Result<Vec<Option<String>>> {
    let mut text = BytesMut::new();
    (0..texts.width())
        .map(|column| {
            text.clear();
            let is_value = texts.text(row, column, &mut text)?;
            Ok(is_value.then(|| String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}

/// All columns of a row if they are few, else those that the failing expression reads.
fn place(schema: &Schema, cells: &[Option<String>], read: &[usize]) -> String {
    let mut shown: Vec<usize> = if cells.len() <= COLUMNS_SHOWN || read.is_empty() {
        (0..cells.len()).collect()
    } else {
        read.to_vec()
    };
    shown.sort_unstable();
    shown.truncate(COLUMNS_SHOWN);
    let names: Vec<&str> = shown
        .iter()
        .map(|&column| schema.field(column).name().as_str())
        .collect();
    let values: Vec<String> = shown
        .iter()
        .map(|&column| match &cells[column] {
            None => "null".to_owned(),
            Some(text) => shortened(text),
        })
        .collect();
    format!("in row ({}) = ({})", names.join(", "), values.join(", "))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray, Int64Array};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col};

    use super::*;

    fn change(a: &[i64], b: &[i64], weights: &[i64]) -> ChangeBatch {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
        ]));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(a.to_vec())),
            Arc::new(Int64Array::from(b.to_vec())),
        ];
        let rows = RecordBatch::try_new(schema, columns).unwrap();
        ChangeBatch::weighted(rows, Int64Array::from(weights.to_vec()))
    }

    fn quotient(change: &ChangeBatch) -> Vec<Arc<dyn PhysicalExpr>> {
        let schema = change.schema();
        let (a, b) = (col("a", &schema).unwrap(), col("b", &schema).unwrap());
        vec![binary(a, Operator::Divide, b, &schema).unwrap()]
    }

    fn of(policy: OnRowError) -> RowErrors {
        let mut errors = RowErrors::default();
        errors.set_policy(policy);
        errors
    }

    fn counted(errors: &RowErrors) -> u64 {
        let mut statistics = OperatorStatistics::default();
        errors.add_statistics(&mut statistics);
        statistics.error_rows
    }

    #[test]
    fn skip_leaves_the_row_out_and_null_keeps_it_without_the_value() {
        let input = change(&[8, 7, 6, 5], &[2, 0, 3, 0], &[1, 2, 1, -1]);
        let mut errors = of(OnRowError::Skip);
        let (kept, columns) = errors.evaluate(&quotient(&input), input.clone()).unwrap();
        errors.settle().unwrap();
        assert_eq!(kept.num_rows(), 2);
        assert_eq!(columns[0].as_primitive::<Int64Type>().values(), &[4, 2]);
        // Two copies came; the row that goes was counted when it came.
        assert_eq!(counted(&errors), 2);

        let mut errors = of(OnRowError::Null);
        let (kept, columns) = errors.evaluate(&quotient(&input), input).unwrap();
        errors.settle().unwrap();
        assert_eq!(kept.num_rows(), 4);
        assert_eq!((columns[0].null_count(), columns[0].is_null(1)), (2, true));
        assert_eq!(counted(&errors), 2);
    }

    #[test]
    fn fail_names_the_row_unless_it_is_taken_back_in_the_batch() {
        let mut errors = of(OnRowError::Fail);
        let input = change(&[8, 7], &[2, 0], &[1, 1]);
        errors.evaluate(&quotient(&input), input.clone()).unwrap();
        let error = errors.settle().unwrap_err();
        assert_eq!(error.sqlstate(), "22012");
        assert_eq!(error.primary(), "division by zero in row (a, b) = (7, 0)");

        errors.reset();
        errors.evaluate(&quotient(&input), input).unwrap();
        let mended = change(&[7, 7], &[0, 1], &[-1, 1]);
        let (kept, _) = errors.evaluate(&quotient(&mended), mended).unwrap();
        errors.settle().unwrap();
        assert_eq!((kept.num_rows(), counted(&errors)), (1, 0));
    }

    #[test]
    fn a_row_that_was_left_out_before_goes_without_an_error() {
        let mut errors = of(OnRowError::Fail);
        let input = change(&[7], &[0], &[-1]);
        errors.evaluate(&quotient(&input), input).unwrap();
        errors.settle().unwrap();
    }
}
