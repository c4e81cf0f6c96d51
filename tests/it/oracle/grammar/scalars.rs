//! Expressions of each kind over the columns in scope.

use super::{Column, Grammar, Kind};

impl Grammar<'_> {
    /// An expression of the kind.
    pub(super) fn scalar(&mut self, scope: &[Column], kind: Kind, depth: u32) -> String {
        if self.chance(3) && depth > 0 {
            return self.scalar_subquery(scope, kind, depth);
        }
        if depth > 0 && self.chance(12) {
            return self.choice(scope, kind, depth - 1);
        }
        if depth == 0 || self.chance(45) {
            return self.leaf(scope, kind);
        }
        let depth = depth - 1;
        match kind {
            Kind::Integer => self.integer(scope, depth),
            Kind::Numeric => self.numeric(scope, depth),
            Kind::Double => self.double(scope, depth),
            Kind::Text => self.text(scope, depth),
            Kind::Boolean => format!("({})", self.condition(scope, depth)),
            Kind::Date => self.date(scope, depth),
            Kind::Timestamp => self.timestamp(scope, depth),
            Kind::Interval => self.interval(scope, depth),
            Kind::Array => self.array(scope, depth),
        }
    }

    fn leaf(&mut self, scope: &[Column], kind: Kind) -> String {
        if self.chance(85)
            && let Some(name) = self.column(scope, kind)
        {
            return name;
        }
        if self.chance(25) {
            let outer = self.outer.clone();
            if let Some(name) = self.column(&outer, kind) {
                return name;
            }
        }
        self.literal(kind)
    }

    pub(super) fn literal(&mut self, kind: Kind) -> String {
        let n = self.random.below(9);
        match kind {
            Kind::Integer => format!("{n}::bigint"),
            Kind::Numeric => format!("{n}.25::numeric(10,2)"),
            Kind::Double => format!("{n}.5::double precision"),
            Kind::Text => format!("{}::text", self.pick(&["'a'", "'ab'", "''", "'b'"])),
            Kind::Boolean => self.pick(&["true", "false", "NULL::boolean"]).to_owned(),
            Kind::Date => format!("date '2024-02-{:02}'", 1 + n),
            Kind::Timestamp => format!("timestamp '2024-02-01 00:0{n}:30'"),
            Kind::Interval => format!("interval '{n} hours'"),
            Kind::Array => format!("ARRAY[{n}, NULL]::bigint[]"),
        }
    }

    /// Forms that any kind has: CASE, COALESCE, NULLIF.
    fn choice(&mut self, scope: &[Column], kind: Kind, depth: u32) -> String {
        let (one, other) = (
            self.scalar(scope, kind, depth),
            self.scalar(scope, kind, depth),
        );
        match self.random.below(4) {
            0 => format!("coalesce({one}, {other})"),
            1 => format!("nullif({one}, {other})"),
            2 => format!(
                "CASE WHEN {} THEN {one} ELSE {other} END",
                self.condition(scope, depth)
            ),
            _ => format!(
                "CASE {} WHEN 1 THEN {one} WHEN 2 THEN {other} END",
                self.scalar(scope, Kind::Integer, 0)
            ),
        }
    }

    /// Nothing is added up, so that no two texts mean one length.
    fn interval(&mut self, scope: &[Column], depth: u32) -> String {
        match self.random.below(3) {
            0 => format!(
                "{}({}, {})",
                self.pick(&["greatest", "least"]),
                self.scalar(scope, Kind::Interval, depth),
                self.scalar(scope, Kind::Interval, depth)
            ),
            _ => format!(
                "({} - {})",
                self.scalar(scope, Kind::Timestamp, depth),
                self.scalar(scope, Kind::Timestamp, depth)
            ),
        }
    }

    fn integer(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Integer, depth);
        match self.random.below(14) {
            0 | 1 => format!("({one} + {})", self.scalar(scope, Kind::Integer, depth)),
            2 => format!("({one} - {})", self.scalar(scope, Kind::Integer, depth)),
            3 => format!("({one} * {})", 1 + self.random.below(4)),
            4 => format!("({one} % {})", 2 + self.random.below(4)),
            5 => format!("({one} / {})", 2 + self.random.below(4)),
            6 => format!("abs(-{one})"),
            7 => format!("length({})::bigint", self.scalar(scope, Kind::Text, depth)),
            8 => format!(
                "{}({one}, {})",
                self.pick(&["greatest", "least"]),
                self.scalar(scope, Kind::Integer, depth)
            ),
            9 => format!(
                "({} - {})::bigint",
                self.scalar(scope, Kind::Date, depth),
                self.scalar(scope, Kind::Date, depth)
            ),
            10 => format!(
                "extract({} FROM {})::bigint",
                self.pick(&[
                    "hour", "minute", "second", "epoch", "dow", "week", "quarter"
                ]),
                self.scalar(scope, Kind::Timestamp, depth)
            ),
            11 => format!(
                "num_nulls({one}, {}, {})::bigint",
                self.scalar(scope, Kind::Text, depth),
                self.scalar(scope, Kind::Date, depth)
            ),
            12 => format!(
                "position({} IN {})::bigint",
                self.pick(&["'a'", "'b'", "''"]),
                self.scalar(scope, Kind::Text, depth)
            ),
            _ => format!(
                "extract(day FROM {})::bigint",
                self.scalar(scope, Kind::Date, depth)
            ),
        }
    }

    fn numeric(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Numeric, depth);
        match self.random.below(10) {
            0 => format!("({one} + {})", self.scalar(scope, Kind::Numeric, depth)),
            6 => format!("({one} % {})", 2 + self.random.below(3)),
            7 => format!("{}({one})", self.pick(&["trunc", "ceil", "floor", "sign"])),
            8 => format!("({one} * {})", self.scalar(scope, Kind::Integer, depth)),
            9 => format!(
                "{}({one}, {})",
                self.pick(&["greatest", "least"]),
                self.scalar(scope, Kind::Numeric, depth)
            ),
            1 => format!("({one} - {})", self.scalar(scope, Kind::Integer, depth)),
            2 => format!("({one} * 2)"),
            3 => format!("round({one}, 1)"),
            4 => format!(
                "{}::numeric(10,2)",
                self.scalar(scope, Kind::Integer, depth)
            ),
            _ => format!("abs({one})"),
        }
    }

    fn double(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Double, depth);
        match self.random.below(5) {
            0 => format!("({one} + {})", self.scalar(scope, Kind::Double, depth)),
            1 => format!("({one} * 0.5)"),
            2 => format!("floor({one})"),
            3 => format!(
                "{}::double precision",
                self.scalar(scope, Kind::Integer, depth)
            ),
            _ => format!("(-{one})"),
        }
    }

    fn text(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Text, depth);
        match self.random.below(14) {
            0 => format!("upper({one})"),
            9 => format!(
                "to_char({}, {})",
                self.scalar(scope, Kind::Timestamp, depth),
                self.pick(&["'HH24:MI:SS'", "'FMDay DD Mon'", "'Q IYYY-IW'"])
            ),
            10 => format!("{}({one})", self.pick(&["initcap", "trim", "md5", "ltrim"])),
            11 => format!("translate({one}, 'ab', 'x')"),
            12 => format!(
                "split_part({one} || '-x', '-', {})",
                1 + self.random.below(3)
            ),
            13 => format!("repeat({one}, {})", self.random.below(3)),
            1 => format!("({one} || {})", self.scalar(scope, Kind::Text, depth)),
            2 => format!("left({one}, 1)"),
            3 => format!("replace({one}, 'a', 'xy')"),
            4 => format!("{}::text", self.scalar(scope, Kind::Integer, depth)),
            5 => format!(
                "concat({one}, '-', {})",
                self.scalar(scope, Kind::Text, depth)
            ),
            6 => format!("substring({one} FROM 2)"),
            7 => format!("lpad({one}, 3, '*')"),
            _ => format!("reverse({one})"),
        }
    }

    fn date(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Date, depth);
        match self.random.below(4) {
            0 => format!("({one} + {})", 1 + self.random.below(40)),
            3 => format!("(date_trunc('week', {one}) - interval '1 month')::date"),
            1 => format!("date_trunc('month', {one})::date"),
            _ => format!("{}::date", self.scalar(scope, Kind::Timestamp, depth)),
        }
    }

    fn timestamp(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Timestamp, depth);
        match self.random.below(5) {
            0 => format!("({one} + interval '90 seconds')"),
            3 => format!("({one} - {})", self.scalar(scope, Kind::Interval, depth)),
            4 => format!("({} + time '10:30')", self.scalar(scope, Kind::Date, depth)),
            1 => format!("date_trunc('minute', {one})"),
            _ => format!("{}::timestamp", self.scalar(scope, Kind::Date, depth)),
        }
    }

    fn array(&mut self, scope: &[Column], depth: u32) -> String {
        let one = self.scalar(scope, Kind::Array, 0);
        match self.random.below(2) {
            0 => format!(
                "array_append({one}, {})",
                self.scalar(scope, Kind::Integer, depth)
            ),
            _ => format!(
                "ARRAY[{}, {}]",
                self.scalar(scope, Kind::Integer, depth),
                self.scalar(scope, Kind::Integer, depth)
            ),
        }
    }
}
