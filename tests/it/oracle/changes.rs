//! Statements that change the grammar's tables and streams, with NULLs, ties and odd values.

use crate::random::Random;

/// Keys of tables are below this.
const IDS: u64 = 16;

/// One statement, of up to a few rows.
pub fn change(random: &mut Random) -> String {
    let id = random.below(IDS);
    match random.below(14) {
        0..=2 => format!("INSERT INTO s VALUES {}", rows(random, 4, stream_row)),
        3 | 4 => format!("INSERT INTO e VALUES {}", rows(random, 4, event_row)),
        5 | 6 => format!(
            "INSERT INTO a VALUES ({id}, {}) ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = excluded.v, t = excluded.t",
            stream_row(random)
        ),
        7 | 8 => format!(
            "INSERT INTO b VALUES ({id}, {}, {}, {}) ON CONFLICT (id) DO UPDATE SET k = excluded.k, w = excluded.w",
            number(random, 6),
            amount(random),
            text(random)
        ),
        9 | 10 => format!(
            "INSERT INTO o VALUES ({id}, {}) ON CONFLICT (id) DO UPDATE SET d = excluded.d, f = excluded.f, z = excluded.z, l = excluded.l",
            odd_row(random)
        ),
        11 => format!(
            "UPDATE a SET v = v + 1, k = {}, t = {} WHERE id % 4 = {}",
            number(random, 6),
            text(random),
            id % 4
        ),
        12 => format!(
            "UPDATE {} SET k = {} WHERE id < {id}",
            random.pick(&["b", "o"]),
            number(random, 6)
        ),
        _ => format!(
            "DELETE FROM {} WHERE id % 7 = {}",
            random.pick(&["a", "b", "o"]),
            id % 7
        ),
    }
}

/// Many rows of the stream `s` or of the table `a` at once, or what takes many of `a` back, so that
/// batches of thousands of rows come.
pub fn many_rows(random: &mut Random, table: &str) -> String {
    let count = *random.pick(&[700, 4096, 9000]);
    let text = "CASE g % 4 WHEN 0 THEN 'a' WHEN 1 THEN 'ab' WHEN 2 THEN '' END";
    let (keys, values) = (3 + random.below(300), 5 + random.below(900));
    let part = 2 + random.below(4);
    match random.below(5) {
        _ if table == "s" => format!(
            "INSERT INTO s SELECT g % {keys}, g % {values}, {text} FROM generate_series(1, {count}) AS x(g)"
        ),
        0 => format!("DELETE FROM a WHERE id > {IDS} AND id % {part} = 0"),
        1 => format!("UPDATE a SET v = v + 1, k = k % 7 WHERE id % {part} = 1"),
        _ => format!(
            "INSERT INTO a SELECT {IDS} + g, g % {keys}, g % {values}, {text} FROM generate_series(1, {count}) AS x(g) \
             ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = excluded.v"
        ),
    }
}

fn rows(random: &mut Random, most: u64, row: fn(&mut Random) -> String) -> String {
    let rows: Vec<String> = (0..1 + random.below(most))
        .map(|_| format!("({})", row(random)))
        .collect();
    rows.join(", ")
}

fn stream_row(random: &mut Random) -> String {
    format!(
        "{}, {}, {}",
        number(random, 6),
        number(random, 12),
        text(random)
    )
}

fn event_row(random: &mut Random) -> String {
    format!(
        "{}, {}, {}",
        number(random, 4),
        time(random),
        number(random, 10)
    )
}

fn odd_row(random: &mut Random) -> String {
    let day = match random.chance(10) {
        true => "NULL".to_owned(),
        false => format!("date '2024-02-{:02}'", 1 + random.below(28)),
    };
    format!(
        "{}, {}, {}, {day}, {}, {}",
        number(random, 5),
        random.pick(&["NULL", "0", "1.5", "-2.25", "100", "0.1"]),
        random.pick(&["NULL", "true", "false"]),
        time(random),
        random.pick(&["NULL", "'{}'", "'{1,2}'", "'{2,NULL,2}'", "'{7}'"])
    )
}

fn number(random: &mut Random, bound: u64) -> String {
    match random.below(12) {
        0 => "NULL".to_owned(),
        1 => format!("-{}", 1 + random.below(3)),
        _ => random.below(bound).to_string(),
    }
}

fn amount(random: &mut Random) -> String {
    match random.below(10) {
        0 => "NULL".to_owned(),
        1 => format!("-{}.50", random.below(5)),
        _ => format!(
            "{}.{}",
            random.below(12),
            random.pick(&["25", "00", "10", "99"])
        ),
    }
}

fn time(random: &mut Random) -> String {
    match random.below(12) {
        0 => "NULL".to_owned(),
        _ => format!(
            "timestamp '2024-02-01 00:{:02}:{:02}'",
            random.below(8),
            random.below(6) * 10
        ),
    }
}

fn text(random: &mut Random) -> &'static str {
    random.pick::<&str>(&["NULL", "'a'", "'ab'", "'b'", "''", "'A'", "'ä'"])
}
