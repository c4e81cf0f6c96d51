//! Rows of the eight TPC-H tables from a seed, as statements that any SQL database takes.
//!
//! Not the benchmark's own generator: the value sets are cut down to those that the queries ask
//! for, and some beside them, so that few rows are enough to reach every condition.

use crate::random::Random;

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
/// Nations with the numbers of their regions.
const NATIONS: [(&str, usize); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];
/// The nations that most suppliers and customers are of.
const BUSY_NATIONS: [usize; 6] = [2, 3, 6, 7, 8, 20];
const COLORS: [&str; 6] = ["forest", "green", "azure", "linen", "puff", "salmon"];
const TYPES: [[&str; 3]; 3] = [
    ["ECONOMY", "PROMO", "MEDIUM"],
    ["ANODIZED", "POLISHED", "BRUSHED"],
    ["STEEL", "BRASS", "TIN"],
];
const BRANDS: [&str; 4] = ["Brand#12", "Brand#23", "Brand#34", "Brand#45"];
const CONTAINERS: [&str; 6] = [
    "SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE", "LG PKG",
];
const SIZES: [u64; 6] = [3, 9, 14, 23, 36, 50];
const SEGMENTS: [&str; 3] = ["BUILDING", "AUTOMOBILE", "MACHINERY"];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const MODES: [&str; 7] = ["AIR", "AIR REG", "MAIL", "SHIP", "RAIL", "TRUCK", "FOB"];
const INSTRUCTIONS: [&str; 3] = ["DELIVER IN PERSON", "COLLECT COD", "NONE"];
/// Orders are of the seven years from 1992 on.
const ORDER_DAYS: u64 = 2405;
/// What is received after this day of 1995 is open.
const TODAY: &str = "1995-06-17";
const LINES_MAX: u64 = 7;
const ROWS_PER_STATEMENT: usize = 200;

/// Numbers of rows at a scale; scale 1 is about a thousandth of the benchmark's own scale 1.
pub struct Generator {
    random: Random,
    customers: u64,
    parts: u64,
    suppliers: u64,
    next_order: u64,
    first_order: u64,
}

impl Generator {
    pub fn new(seed: u64, scale: u64) -> Self {
        Self {
            random: Random::new(seed),
            customers: 90 * scale,
            parts: 120 * scale,
            suppliers: 30 * scale,
            next_order: 1,
            first_order: 1,
        }
    }

    /// What is there before the first order, but for the last part of the customers.
    pub fn base(&mut self) -> Vec<String> {
        let regions = (0..REGIONS.len()).map(|i| format!("({i}, '{}', NULL)", REGIONS[i]));
        let mut statements = inserts("region", regions);
        let nations = NATIONS.iter().enumerate();
        let nations = nations.map(|(i, (name, region))| format!("({i}, '{name}', {region}, NULL)"));
        statements.extend(inserts("nation", nations));
        let suppliers: Vec<String> = (1..=self.suppliers).map(|key| self.supplier(key)).collect();
        statements.extend(inserts("supplier", suppliers));
        let parts: Vec<String> = (1..=self.parts).map(|key| self.part(key)).collect();
        statements.extend(inserts("part", parts));
        statements.extend(self.offers());
        statements.extend(self.customers(1, self.customers * 2 / 3));
        statements
    }

    /// The customers that come while orders are there already.
    pub fn late_customers(&mut self) -> Vec<String> {
        self.customers(self.customers * 2 / 3 + 1, self.customers)
    }

    /// The next orders with their lines.
    pub fn orders(&mut self, count: u64) -> Vec<String> {
        let (mut orders, mut lines) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let key = self.next_order;
            self.next_order += 1;
            self.order(key, &mut orders, &mut lines);
        }
        let mut statements = inserts("orders", orders);
        statements.extend(inserts("lineitem", lines));
        statements
    }

    /// The oldest orders go, with their lines.
    pub fn delete_orders(&mut self, count: u64) -> Vec<String> {
        let first = self.first_order;
        self.first_order = (first + count).min(self.next_order);
        let last = self.first_order - 1;
        vec![
            format!("DELETE FROM lineitem WHERE l_orderkey BETWEEN {first} AND {last}"),
            format!("DELETE FROM orders WHERE o_orderkey BETWEEN {first} AND {last}"),
        ]
    }

    /// Rows of every table but the fixed ones change in what the queries look at.
    pub fn updates(&mut self) -> Vec<String> {
        let nation = *self.random.pick(&BUSY_NATIONS);
        let size = *self.random.pick(&SIZES);
        let brand = *self.random.pick(&BRANDS);
        let segment = *self.random.pick(&SEGMENTS);
        let (of_seven, of_five) = (self.random.below(7), self.random.below(5));
        vec![
            format!("UPDATE supplier SET s_nationkey = {nation} WHERE s_suppkey % 7 = {of_seven}"),
            format!(
                "UPDATE part SET p_size = {size}, p_brand = '{brand}' WHERE p_partkey % 7 = {of_seven}"
            ),
            format!(
                "UPDATE partsupp SET ps_supplycost = ps_supplycost - 100, ps_availqty = ps_availqty + 10 WHERE ps_partkey % 5 = {of_five}"
            ),
            format!(
                "UPDATE customer SET c_mktsegment = '{segment}', c_acctbal = -c_acctbal WHERE c_custkey % 5 = {of_five}"
            ),
            format!(
                "UPDATE orders SET o_orderpriority = '1-URGENT', o_custkey = o_custkey + 1 WHERE o_orderkey % 7 = {of_seven} AND o_custkey % 3 = 1"
            ),
            format!(
                "UPDATE lineitem SET l_quantity = l_quantity + 3, l_receiptdate = l_receiptdate + 5 WHERE l_orderkey % 5 = {of_five}"
            ),
            format!(
                "DELETE FROM partsupp WHERE ps_partkey % 11 = {of_seven} AND ps_suppkey % 2 = 0"
            ),
            format!("DELETE FROM customer WHERE c_custkey % 11 = {of_five}"),
        ]
    }

    fn nation(&mut self) -> usize {
        if self.random.chance(75) {
            *self.random.pick(&BUSY_NATIONS)
        } else {
            self.random.below(NATIONS.len() as u64) as usize
        }
    }

    /// An amount with two digits, of up to `bound` hundredths.
    fn amount(&mut self, bound: u64) -> String {
        let hundredths = self.random.below(bound);
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    }

    fn supplier(&mut self, key: u64) -> String {
        let nation = self.nation();
        let balance = self.amount(900_000);
        let comment = if self.random.chance(15) {
            "Customer slyly Complaints"
        } else {
            "blithely even deposits"
        };
        format!(
            "({key}, 'Supplier#{key:09}', 'street {key}', {nation}, '{}-{key:03}', {balance}, '{comment}')",
            nation + 10
        )
    }

    fn part(&mut self, key: u64) -> String {
        let random = &mut self.random;
        let name = format!("{} {}", random.pick(&COLORS), random.pick(&COLORS));
        let kind: Vec<&str> = TYPES.iter().map(|words| *random.pick(words)).collect();
        format!(
            "({key}, '{name}', 'Manufacturer#{}', '{}', '{}', {}, '{}', {}.{:02})",
            1 + random.below(5),
            random.pick(&BRANDS),
            kind.join(" "),
            random.pick(&SIZES),
            random.pick(&CONTAINERS),
            900 + key % 1000,
            key % 100
        )
    }

    /// Four suppliers of every part.
    fn offers(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        for part in 1..=self.parts {
            for place in 0..4 {
                let quantity = 1 + self.random.below(200);
                let cost = self.amount(100_000);
                let supplier = self.supplier_of(part, place);
                rows.push(format!("({part}, {supplier}, {quantity}, {cost})"));
            }
        }
        inserts("partsupp", rows)
    }

    fn supplier_of(&self, part: u64, place: u64) -> u64 {
        (part + place * (self.suppliers / 4)) % self.suppliers + 1
    }

    fn customers(&mut self, first: u64, last: u64) -> Vec<String> {
        let mut rows = Vec::new();
        for key in first..=last {
            let nation = self.nation();
            let balance = self.amount(1_000_000);
            let segment = *self.random.pick(&SEGMENTS);
            rows.push(format!(
                "({key}, 'Customer#{key:09}', 'lane {key}', {nation}, '{}-{key:03}', {balance}, '{segment}', 'final packages')",
                nation + 10
            ));
        }
        inserts("customer", rows)
    }

    fn order(&mut self, key: u64, orders: &mut Vec<String>, lines: &mut Vec<String>) {
        let day = self.random.below(ORDER_DAYS);
        let mut open = 0;
        let count = 1 + self.random.below(LINES_MAX);
        let mut total = 0;
        for number in 1..=count {
            let (line, price, is_open) = self.line(key, number, day);
            lines.push(line);
            total += price;
            open += u64::from(is_open);
        }
        let status = match open {
            0 => "F",
            n if n == count => "O",
            _ => "P",
        };
        // A third of the customers never orders.
        let customer = self.random.below(self.customers / 3) * 3 + 1 + self.random.below(2);
        let comment = if self.random.chance(20) {
            "some special odd requests"
        } else {
            "carefully final theodolites"
        };
        orders.push(format!(
            "({key}, {customer}, '{status}', {total}.00, {}, '{}', 0, '{comment}')",
            date(day),
            self.random.pick(&PRIORITIES)
        ));
    }

    /// A line, its price without cents and whether it is still open.
    fn line(&mut self, order: u64, number: u64, day: u64) -> (String, u64, bool) {
        let part = 1 + self.random.below(self.parts);
        let place = self.random.below(4);
        let supplier = self.supplier_of(part, place);
        let random = &mut self.random;
        let quantity = 1 + random.below(50);
        let price = quantity * (900 + part % 1000);
        let shipped = day + 1 + random.below(121);
        let received = shipped + 1 + random.below(30);
        let is_open = date(shipped) > format!("date '{TODAY}'");
        let returned = match date(received) > format!("date '{TODAY}'") {
            true => "N",
            false => *random.pick(&["R", "A"]),
        };
        let line = format!(
            "({order}, {part}, {supplier}, {number}, {quantity}, {price}.{:02}, 0.{:02}, 0.0{}, '{returned}', '{}', {}, {}, {}, '{}', '{}')",
            part % 100,
            random.below(11),
            random.below(9),
            if is_open { "O" } else { "F" },
            date(shipped),
            date(day + 30 + random.below(61)),
            date(received),
            random.pick(&INSTRUCTIONS),
            random.pick(&MODES)
        );
        (line, price, is_open)
    }
}

/// A day from 1992 on, as a literal.
fn date(day: u64) -> String {
    let first = chrono::NaiveDate::from_ymd_opt(1992, 1, 1).expect("a date");
    format!("date '{}'", first + chrono::Days::new(day))
}

/// Statements of a bounded number of rows.
fn inserts(table: &str, rows: impl IntoIterator<Item = String>) -> Vec<String> {
    let rows: Vec<String> = rows.into_iter().collect();
    rows.chunks(ROWS_PER_STATEMENT)
        .map(|rows| format!("INSERT INTO {table} VALUES {}", rows.join(", ")))
        .collect()
}
