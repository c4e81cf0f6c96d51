//! Keys from conditions, against the conditions themselves on every row.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, col, in_list, lit};
use datafusion::prelude::SessionContext;

use super::choice::{Chosen, Orders};
use crate::dataflow::view_storage::{KeyColumn, KeyOrder};
use crate::state::WantedKeys;

const COLUMNS: [&str; 5] = ["n", "t", "d", "b", "f"];

fn schema() -> Schema {
    let types = [
        DataType::Int32,
        DataType::Utf8,
        DataType::Decimal128(10, 2),
        DataType::Boolean,
        DataType::Float64,
    ];
    let fields = COLUMNS.iter().zip(types);
    Schema::new(
        fields
            .map(|(name, t)| Field::new(*name, t, true))
            .collect::<Vec<_>>(),
    )
}

/// Rows with every combination of some values, NULL among them.
fn rows() -> RecordBatch {
    let numbers = [None, Some(-7), Some(0), Some(5), Some(6), Some(i32::MAX)];
    let texts = [
        None,
        Some(""),
        Some("ab"),
        Some("abc"),
        Some("abd"),
        Some("b"),
    ];
    let decimals = [None, Some(-150), Some(0), Some(550), Some(600)];
    let truths = [None, Some(false), Some(true)];
    let floats = [
        None,
        Some(f64::NEG_INFINITY),
        Some(-0.0),
        Some(0.0),
        Some(1.5),
    ];
    let mut columns: Vec<Vec<ScalarValue>> = vec![Vec::new(); 5];
    for n in numbers {
        for t in texts {
            for d in decimals {
                for b in truths {
                    for f in floats {
                        columns[0].push(n.into());
                        columns[1].push(ScalarValue::Utf8(t.map(str::to_owned)));
                        columns[2].push(ScalarValue::Decimal128(d, 10, 2));
                        columns[3].push(b.into());
                        columns[4].push(f.into());
                    }
                }
            }
        }
    }
    let arrays: Vec<ArrayRef> = columns
        .into_iter()
        .map(|values| ScalarValue::iter_to_array(values).unwrap())
        .collect();
    RecordBatch::try_new(Arc::new(schema()), arrays).unwrap()
}

fn key(columns: &[(usize, bool, bool)]) -> KeyOrder {
    KeyOrder {
        columns: columns
            .iter()
            .map(|&(column, descending, nulls_first)| KeyColumn {
                column,
                descending,
                nulls_first,
            })
            .collect(),
        is_whole: columns.len() == COLUMNS.len(),
    }
}

fn encoded(rows: &RecordBatch, order: &KeyOrder) -> Vec<Vec<u8>> {
    let columns = order.columns.iter();
    let fields = columns.clone().map(|key| {
        let data_type = rows.column(key.column).data_type().clone();
        SortField::new_with_options(data_type, key.options())
    });
    let converter = RowConverter::new(fields.collect()).unwrap();
    let arrays: Vec<ArrayRef> = columns.map(|k| rows.column(k.column).clone()).collect();
    let rows = converter.convert_columns(&arrays).unwrap();
    rows.iter().map(|row| row.data().to_vec()).collect()
}

fn is_wanted(wanted: &WantedKeys, key: &[u8]) -> bool {
    match wanted {
        WantedKeys::All => true,
        WantedKeys::Keys(keys) => keys.iter().any(|k| k == key),
        WantedKeys::Ranges(ranges) => ranges.iter().any(|range| {
            range.lower.as_slice() <= key && range.upper.as_deref().is_none_or(|u| key < u)
        }),
    }
}

fn assert_ascending(wanted: &WantedKeys) {
    match wanted {
        WantedKeys::All => {}
        WantedKeys::Keys(keys) => assert!(keys.windows(2).all(|w| w[0] < w[1])),
        WantedKeys::Ranges(ranges) => assert!(ranges.windows(2).all(|w| {
            w[0].upper
                .as_ref()
                .is_some_and(|upper| *upper <= w[1].lower)
        })),
    }
}

fn choose(orders: &[KeyOrder], conditions: &[Expr]) -> Chosen {
    let schema = schema();
    let orders = Orders {
        schema: &schema,
        orders: orders.to_vec(),
    };
    orders.choose(conditions)
}

/// Which rows a condition keeps.
fn kept(rows: &RecordBatch, condition: &Expr) -> Vec<bool> {
    let schema = DFSchema::try_from(schema()).unwrap();
    let state = SessionContext::new().state();
    let coerced = state.create_logical_expr_for_test(condition, &schema);
    let values = coerced.evaluate(rows).unwrap().into_array(rows.num_rows());
    let values = values.unwrap();
    let values = values.as_boolean();
    values.iter().map(|value| value == Some(true)).collect()
}

trait Coerced {
    fn create_logical_expr_for_test(
        &self,
        condition: &Expr,
        schema: &DFSchema,
    ) -> Arc<dyn datafusion::physical_expr::PhysicalExpr>;
}

impl Coerced for datafusion::execution::SessionState {
    fn create_logical_expr_for_test(
        &self,
        condition: &Expr,
        schema: &DFSchema,
    ) -> Arc<dyn datafusion::physical_expr::PhysicalExpr> {
        self.create_physical_expr(condition.clone(), schema)
            .unwrap()
    }
}

fn decimal(hundredths: i128) -> Expr {
    lit(ScalarValue::Decimal128(Some(hundredths), 10, 2))
}

fn wide_decimal(thousandths: i128) -> Expr {
    lit(ScalarValue::Decimal128(Some(thousandths), 20, 3))
}

fn wide(column: &str) -> Expr {
    datafusion::logical_expr::cast(col(column), DataType::Decimal128(20, 3))
}

fn conditions() -> Vec<Expr> {
    vec![
        col("n").eq(lit(5)),
        lit(5).gt(col("n")),
        col("n").gt_eq(lit(i32::MAX)),
        col("n").gt(lit(i32::MAX)),
        col("n").lt(lit(0)),
        col("n").between(lit(-1), lit(5)),
        col("n").not_between(lit(-1), lit(5)),
        col("n").not_eq(lit(5)),
        col("n").is_null(),
        col("n").is_not_null(),
        in_list(col("n"), vec![lit(6), lit(-7), lit(6), lit(99)], false),
        in_list(col("n"), vec![lit(6), lit(ScalarValue::Int32(None))], false),
        in_list(col("n"), vec![lit(6)], true),
        col("n")
            .eq(lit(5))
            .or(col("n").eq(lit(-7)).or(col("n").is_null())),
        col("n").eq(lit(5)).or(col("t").eq(lit("ab"))),
        col("n").eq(lit(5)).and(col("t").lt(lit("abc"))),
        col("n").gt(lit(3)).and(col("n").lt(lit(2))),
        col("n").gt(lit(ScalarValue::Int32(None))),
        wide("n").eq(wide_decimal(5_500)),
        wide("n").gt(wide_decimal(5_500)),
        wide("n").lt(wide_decimal(5_500)),
        wide("n").lt_eq(wide_decimal(5_000)),
        wide("n").eq(wide_decimal(5_000)),
        wide("n").eq(lit(ScalarValue::Decimal128(Some(10i128.pow(18)), 20, 3))),
        col("t").eq(lit("")),
        col("t").gt(lit("ab")),
        col("t").lt_eq(lit("abc")),
        col("t").like(lit("ab%")),
        col("t").like(lit("ab_")),
        col("t").like(lit("%b")),
        col("t").not_like(lit("ab%")),
        col("d").eq(decimal(550)),
        wide("d").gt(wide_decimal(5_499)),
        wide("d").eq(wide_decimal(5_499)),
        wide("d").lt_eq(wide_decimal(5_501)),
        col("b"),
        datafusion::logical_expr::not(col("b")),
        col("b").is_true(),
        col("b").is_false(),
        col("b").is_not_true(),
        col("b").eq(lit(false)),
        col("f").eq(lit(0.0)),
        col("f").gt(lit(0.0)),
        col("f").gt(lit(-0.0)),
        col("f").lt(lit(0.0)),
        col("f").lt_eq(lit(-0.0)),
        col("f").gt(lit(f64::NAN)),
    ]
}

fn orders() -> Vec<KeyOrder> {
    vec![
        key(&[(0, false, true), (1, false, true), (2, false, true)]),
        key(&[(1, true, true), (0, true, false)]),
        key(&[(2, false, false), (3, true, false)]),
        key(&[(3, false, false), (4, true, true), (0, false, false)]),
        key(&[
            (4, false, true),
            (3, false, true),
            (2, true, true),
            (1, false, false),
            (0, true, false),
        ]),
    ]
}

#[test]
fn no_row_that_is_kept_is_left_out() {
    let rows = rows();
    let all = conditions();
    for order in orders() {
        let keys = encoded(&rows, &order);
        for (number, first) in all.iter().enumerate() {
            // Alone, and beside another one.
            for second in [None, Some(&all[(number * 7 + 3) % all.len()])] {
                let given: Vec<Expr> = [Some(first), second]
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect();
                let chosen = choose(std::slice::from_ref(&order), &given);
                assert_ascending(&chosen.wanted);
                let mut is_kept = kept(&rows, first);
                if let Some(second) = second {
                    let also = kept(&rows, second);
                    is_kept.iter_mut().zip(also).for_each(|(a, b)| *a &= b);
                }
                for (row, key) in keys.iter().enumerate() {
                    assert!(
                        !is_kept[row] || is_wanted(&chosen.wanted, key),
                        "{given:?} by {order:?} leaves out row {row}"
                    );
                }
            }
        }
    }
}

/// Rows that are read, of all.
fn read(order: &KeyOrder, conditions: &[Expr]) -> (usize, usize) {
    let rows = rows();
    let chosen = choose(std::slice::from_ref(order), conditions);
    let keys = encoded(&rows, order);
    let wanted = keys.iter().filter(|key| is_wanted(&chosen.wanted, key));
    (wanted.count(), keys.len())
}

#[test]
fn conditions_on_leading_columns_read_no_more_than_they_keep() {
    let by_number = key(&[(0, false, true), (1, false, true)]);
    let down = key(&[(0, true, false), (1, true, true)]);
    let rows = rows();
    let useless = [
        col("n").not_between(lit(-1), lit(5)),
        col("n").not_eq(lit(5)),
        in_list(col("n"), vec![lit(6)], true),
        col("n").eq(lit(5)).or(col("t").eq(lit("ab"))),
    ];
    for order in [by_number, down] {
        let of_numbers = |c: &&Expr| {
            c.column_refs()
                .iter()
                .all(|c| c.name == "n" || c.name == "t")
        };
        for condition in conditions().iter().filter(of_numbers) {
            let names = condition.column_refs();
            if useless.contains(condition) || !names.iter().any(|c| c.name == "n") {
                continue;
            }
            let kept = kept(&rows, condition).iter().filter(|k| **k).count();
            let (read, _) = read(&order, std::slice::from_ref(condition));
            let text = condition.to_string();
            // What no value of the column can be compared with is not understood.
            if text.contains("1000000000000000") {
                continue;
            }
            // A bound that had to be rounded may let its neighbour in.
            let is_rounded = text.contains("5.500");
            assert!(
                read == kept || (is_rounded && read >= kept),
                "{condition}: {read}, not {kept}"
            );
        }
    }
}

#[test]
fn the_order_with_the_longest_row_of_equalities_is_chosen() {
    let orders = [
        key(&[(0, false, true)]),
        key(&[(1, false, true), (0, false, true)]),
        key(&[(1, false, true), (2, false, true)]),
        key(&[(3, false, true)]),
    ];
    let order = |conditions: &[Expr]| choose(&orders, conditions).order;
    assert_eq!(order(&[]), 0);
    assert_eq!(order(&[col("f").eq(lit(1.5))]), 0);
    assert_eq!(order(&[col("n").eq(lit(5))]), 0);
    assert_eq!(order(&[col("t").eq(lit("a"))]), 1);
    assert_eq!(order(&[col("t").eq(lit("a")), col("d").gt(decimal(1))]), 2);
    assert_eq!(order(&[col("t").eq(lit("a")), col("n").eq(lit(5))]), 1);
    assert_eq!(order(&[col("n").gt(lit(5)), col("b")]), 3);
    assert_eq!(order(&[col("n").gt(lit(5)), col("t").gt(lit("a"))]), 0);
    // Contradictions read nothing, by whatever order shows them.
    let nothing = choose(&orders, &[col("d").eq(decimal(1)), col("d").eq(decimal(2))]);
    assert_eq!(nothing.wanted, WantedKeys::Ranges([].into()));
}

#[test]
fn whole_keys_are_looked_up_and_many_values_become_one_range() {
    let whole = KeyOrder::ascending([0, 1], true);
    let list = |n: i32| in_list(col("n"), (0..n).map(lit).collect(), false);
    let both = |n| [list(n), col("t").eq(lit("a"))];
    match choose(std::slice::from_ref(&whole), &both(3)).wanted {
        WantedKeys::Keys(keys) => assert_eq!(keys.len(), 3),
        other => panic!("{other:?}"),
    }
    for (count, ranges) in [(3, 3), (super::keys::RANGES_MAX as i32 + 1, 1)] {
        match choose(std::slice::from_ref(&whole), &[list(count)]).wanted {
            WantedKeys::Ranges(found) => assert_eq!(found.len(), ranges),
            other => panic!("{other:?}"),
        }
    }
    // Of a key whose end is not known a look-up would miss rows.
    let part = KeyOrder::ascending([0, 1], false);
    let wanted = choose(&[part], &both(3)).wanted;
    assert!(matches!(wanted, WantedKeys::Ranges(ranges) if ranges.len() == 3));
}

#[test]
fn times_are_found_by_dates_and_times() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let schema = Schema::new(vec![
        Field::new("at", time.clone(), true),
        Field::new("day", DataType::Date32, true),
    ]);
    let at = |us: i64| lit(ScalarValue::TimestampMicrosecond(Some(us), None));
    let day = datafusion::logical_expr::cast(col("day"), time);
    let noon = 10 * 86_400_000_000 + 43_200_000_000;
    let by = |column: usize, condition: Expr| {
        let orders = Orders {
            schema: &schema,
            orders: vec![KeyOrder::ascending([column], true)],
        };
        orders.choose(&[condition]).wanted
    };
    assert!(matches!(by(0, col("at").eq(at(noon))), WantedKeys::Keys(keys) if keys.len() == 1));
    assert!(
        matches!(by(0, col("at").between(at(0), at(noon))), WantedKeys::Ranges(r) if r.len() == 1)
    );
    // No day begins at noon; days after noon of the tenth are read from the tenth on.
    assert_eq!(
        by(1, day.clone().eq(at(noon))),
        WantedKeys::Ranges([].into())
    );
    let after = by(1, day.gt(at(noon)));
    let tenth = by(1, col("day").gt_eq(lit(ScalarValue::Date32(Some(10)))));
    assert_eq!(after, tenth);
}
