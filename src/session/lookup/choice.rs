//! Which of several orders of the same rows is read, and what of it.

use datafusion::arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, lit};

use super::conditions::{intervals, mentions_any};
use super::encoding::ColumnEncoding;
use super::intervals::Intervals;
use super::keys::{Keys, keys};
use crate::dataflow::view_storage::{KeyColumn, KeyOrder};
use crate::state::WantedKeys;

/// Orders in which the rows of a relation lie; the relation's own is the first.
pub struct Orders<'a> {
    pub schema: &'a Schema,
    pub orders: Vec<KeyOrder>,
}

/// What is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The number of the order.
    pub order: usize,
    pub wanted: WantedKeys,
    /// The conditions by which that was found.
    pub by: Vec<Expr>,
}

/// A condition whose parameters have some value.
fn with_values_of_types(condition: Expr) -> Expr {
    let valued = |part: Expr| {
        Ok(match &part {
            Expr::Placeholder(Placeholder {
                field: Some(field), ..
            }) => match ScalarValue::new_default(field.data_type()) {
                Ok(value) => Transformed::yes(lit(value)),
                Err(_) => Transformed::no(part),
            },
            Expr::Cast(cast) => match cast.expr.as_ref() {
                Expr::Literal(value, _) => match value.cast_to(cast.field.data_type()) {
                    Ok(value) => Transformed::yes(lit(value)),
                    Err(_) => Transformed::no(part),
                },
                _ => Transformed::no(part),
            },
            _ => Transformed::no(part),
        })
    };
    let mut has_parameter = false;
    // Neither step fails.
    condition
        .apply(|part| {
            has_parameter |= matches!(part, Expr::Placeholder(_));
            Ok(TreeNodeRecursion::Continue)
        })
        .ok();
    match has_parameter {
        true => condition
            .clone()
            .transform_up(valued)
            .map_or(condition, |valued| valued.data),
        false => condition,
    }
}

/// Nothing beside what is wanted is read.
fn is_whole(keys: &Keys) -> bool {
    match &keys.wanted {
        WantedKeys::Keys(_) => true,
        WantedKeys::Ranges(ranges) => ranges.is_empty(),
        WantedKeys::All => false,
    }
}

impl Orders<'_> {
    /// The order that takes up most of the conditions: first one whose keys can be looked up whole,
    /// then the longest row of columns with an equality, then a bounded column after them, then the
    /// order that comes first. Without any, all rows are read in the first order.
    pub fn choose(&self, conditions: &[Expr]) -> Chosen {
        let mut best: Option<(usize, Keys)> = None;
        for (number, order) in self.orders.iter().enumerate() {
            let Some(found) = self.keys_of(order, conditions) else {
                continue;
            };
            let rank = |keys: &Keys| (is_whole(keys), keys.equalities, keys.has_range);
            if best
                .as_ref()
                .is_none_or(|(_, best)| rank(best) < rank(&found))
            {
                best = Some((number, found));
            }
        }
        match best {
            None => Chosen {
                order: 0,
                wanted: WantedKeys::All,
                by: Vec::new(),
            },
            Some((order, keys)) => Chosen {
                order,
                by: self.used(order, &keys, conditions),
                wanted: keys.wanted,
            },
        }
    }

    /// Of each condition, whether it helps to find rows. It stays in the plan in any case.
    pub fn push_down(&self, conditions: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        let answer = |condition: &&Expr| match self.is_useful(condition) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        conditions.iter().map(answer).collect()
    }

    /// A condition with a parameter is as useful as with any value of its type.
    fn is_useful(&self, condition: &Expr) -> bool {
        let condition = with_values_of_types(condition.clone());
        let conditions = std::slice::from_ref(&condition);
        self.orders.iter().any(|order| {
            let columns = self.columns(order, conditions);
            columns.iter().any(Option::is_some)
        })
    }

    fn keys_of(&self, order: &KeyOrder, conditions: &[Expr]) -> Option<Keys> {
        keys(&self.columns(order, conditions), order.is_whole)
    }

    /// Of each key column, the values that all conditions leave.
    fn columns(&self, order: &KeyOrder, conditions: &[Expr]) -> Vec<Option<Intervals>> {
        let of_column = |key: &KeyColumn| {
            let field = self.schema.field(key.column);
            let name = field.name().as_str();
            // Making an encoding costs more than seeing that it is not needed.
            let mut about = conditions
                .iter()
                .filter(|c| mentions_any(c, &[name]))
                .peekable();
            about.peek()?;
            let encoding = ColumnEncoding::of(field.data_type(), key.options())?;
            about
                .filter_map(|condition| intervals(condition, name, &encoding))
                .reduce(|a, b| a.intersection(&b))
        };
        order.columns.iter().map(of_column).collect()
    }

    /// The conditions on the columns that keys begin with.
    fn used(&self, order: usize, keys: &Keys, conditions: &[Expr]) -> Vec<Expr> {
        let columns = &self.orders[order].columns;
        let count = (keys.equalities + usize::from(keys.has_range)).min(columns.len());
        let names: Vec<&str> = columns[..count]
            .iter()
            .map(|key| self.schema.field(key.column).name().as_str())
            .collect();
        conditions
            .iter()
            .filter(|condition| mentions_any(condition, &names))
            .cloned()
            .collect()
    }
}
