//! Aggregate calls: every aggregate, with DISTINCT, FILTER and ORDER BY inside, and WITHIN GROUP.

use super::{Column, Grammar, Kind, all_names};

impl Grammar<'_> {
    /// A call that gives the kind.
    pub(super) fn aggregate_of(&mut self, scope: &[Column], kind: Kind) -> String {
        let call = match kind {
            kind if kind != Kind::Array && self.chance(6) => self.of_sorted(scope, kind),
            Kind::Integer => self.integer_aggregate(scope),
            Kind::Numeric => self.numeric_aggregate(scope),
            Kind::Double => return self.double_aggregate(scope),
            Kind::Text => self.text_aggregate(scope),
            Kind::Boolean => {
                let condition = self.condition(scope, 0);
                format!(
                    "{}({condition})",
                    self.pick(&["bool_and", "bool_or", "every"])
                )
            }
            Kind::Array => return self.array_aggregate(scope),
            Kind::Date | Kind::Timestamp | Kind::Interval => {
                let one = self.scalar(scope, kind, 0);
                format!("{}({one})", self.pick(&["min", "max"]))
            }
        };
        self.filtered_call(scope, call)
    }

    fn of_sorted(&mut self, scope: &[Column], kind: Kind) -> String {
        let one = self.scalar(scope, kind, 0);
        let choice = self.pick(&[
            "mode()",
            "percentile_disc(0.5)",
            "percentile_disc(0)",
            "(percentile_disc(ARRAY[0.3, 1])",
        ]);
        let direction = self.pick(&["", "", " DESC"]);
        let order = format!("WITHIN GROUP (ORDER BY {one}{direction})");
        match choice.strip_prefix('(') {
            Some(choice) => format!("({choice} {order})[1]"),
            None => format!("{choice} {order}"),
        }
    }

    fn filtered_call(&mut self, scope: &[Column], call: String) -> String {
        if call.ends_with(']') {
            return call;
        }
        let cast = call.strip_suffix("::bigint");
        let filter = match self.chance(20) {
            true => format!(" FILTER (WHERE {})", self.condition(scope, 1)),
            false => String::new(),
        };
        match cast {
            Some(call) => format!("({call}{filter})::bigint"),
            None => format!("{call}{filter}"),
        }
    }

    fn integer_aggregate(&mut self, scope: &[Column]) -> String {
        let one = self.scalar(scope, Kind::Integer, 1);
        match self.random.below(12) {
            0 | 1 => "count(*)".to_owned(),
            2 => {
                let kind = self.kind_in(scope);
                format!("count({})", self.scalar(scope, kind, 0))
            }
            3 => {
                let kind = self.kind_in(scope);
                format!("count(DISTINCT {})", self.scalar(scope, kind, 0))
            }
            // PostgreSQL's sum of bigint is numeric.
            4 | 5 => format!("sum({one})::bigint"),
            6 => format!("sum(DISTINCT {one})::bigint"),
            7 => format!("min({one})"),
            8 => format!("max({one})"),
            9 => format!("{}({one})", self.pick(&["bit_and", "bit_or", "bit_xor"])),
            10 => {
                let order = all_names(scope).join(", ");
                let place = self.pick(&["1", "2"]);
                if !order.is_empty() {
                    return format!("(array_agg({one} ORDER BY {order}))[{place}]");
                }
                format!("max({one})")
            }
            _ if !self.standard_only && !scope.is_empty() => {
                self.standard = false;
                let order = all_names(scope).join(", ");
                format!(
                    "{}({one} ORDER BY {order})",
                    self.pick(&["first_value", "last_value"])
                )
            }
            _ => format!("count(DISTINCT ({one}, {one}))"),
        }
    }

    fn numeric_aggregate(&mut self, scope: &[Column]) -> String {
        let one = self.scalar(scope, Kind::Numeric, 0);
        format!("{}({one})", self.pick(&["sum", "min", "max", "sum"]))
    }

    /// Averages and the aggregates of statistics.
    fn double_aggregate(&mut self, scope: &[Column]) -> String {
        let one = self.scalar(scope, Kind::Double, 0);
        let call = match self.random.below(8) {
            0 => format!("sum({one})"),
            1 => format!("avg({one})"),
            2 => format!("avg({})", self.scalar(scope, Kind::Integer, 1)),
            3 | 4 => {
                let two = self.scalar(scope, Kind::Integer, 0);
                format!(
                    "{}({two}::double precision, {one})",
                    self.pick(&[
                        "corr",
                        "covar_pop",
                        "covar_samp",
                        "regr_slope",
                        "regr_intercept",
                        "regr_count",
                        "regr_r2",
                        "regr_avgx",
                        "regr_avgy",
                        "regr_sxx",
                        "regr_syy",
                        "regr_sxy",
                    ])
                )
            }
            5 => {
                let two = self.scalar(scope, Kind::Integer, 0);
                format!(
                    "{}({two})",
                    self.pick(&["variance", "var_pop", "stddev", "stddev_pop", "var_samp"])
                )
            }
            6 => {
                let share = self.pick(&["0.5", "0.25", "1", "0"]);
                let filter = match self.chance(20) {
                    true => format!(" FILTER (WHERE {})", self.condition(scope, 0)),
                    false => String::new(),
                };
                return format!(
                    "(percentile_cont({share}) WITHIN GROUP (ORDER BY {one}){filter})::double precision"
                );
            }
            _ if !self.standard_only => {
                self.standard = false;
                format!("median({one})")
            }
            _ => format!("stddev_samp({one})"),
        };
        let call = self.filtered_call(scope, call);
        format!("({call})::double precision")
    }

    fn text_aggregate(&mut self, scope: &[Column]) -> String {
        let one = self.scalar(scope, Kind::Text, 0);
        let order = all_names(scope).join(", ");
        match self.random.below(5) {
            0 => format!("min({one})"),
            1 => format!("max({one})"),
            2 => format!("string_agg(DISTINCT {one}, '+' ORDER BY {one})"),
            _ if order.is_empty() => format!("max({one})"),
            _ => {
                let direction = self.pick(&["", " DESC", " NULLS FIRST"]);
                format!("string_agg({one}, ',' ORDER BY {order}{direction})")
            }
        }
    }

    fn array_aggregate(&mut self, scope: &[Column]) -> String {
        let one = self.scalar(scope, Kind::Integer, 0);
        match self.random.below(2) {
            0 => format!("array_agg(DISTINCT {one} ORDER BY {one})"),
            _ => format!("array_agg({one} ORDER BY {one} DESC)"),
        }
    }
}
