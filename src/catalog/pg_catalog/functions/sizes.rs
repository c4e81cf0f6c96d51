//! Sizes of relations and of the database.

use super::super::model::Catalog;
use super::super::relation::Datum;
use super::{Definition, int};
use crate::error::Result;

pub(super) const FUNCTIONS: &[Definition] = &[
    Definition::new("pg_size_pretty", &["int8"], "text", |_, a| {
        Ok(pretty(int(a, 0)).into())
    }),
    Definition::new("pg_table_size", &["oid"], "int8", relation_size),
    Definition::new(
        "pg_relation_size",
        &["oid", "oid text"],
        "int8",
        relation_size,
    ),
    Definition::new("pg_total_relation_size", &["oid"], "int8", relation_size),
    // A key's index is part of its table's size.
    Definition::new("pg_indexes_size", &["oid"], "int8", |_, _| Ok(0i64.into())),
    Definition::new("pg_database_size", &["text"], "int8", database_size),
    Definition::new("pg_tablespace_size", &["text"], "int8", database_size),
];

fn relation_size(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let Some(r) = catalog.relation(int(arguments, 0)) else {
        return Ok(Datum::Null);
    };
    Ok(size(catalog, r.oid).into())
}

fn size(catalog: &Catalog, oid: i64) -> i64 {
    u32::try_from(oid)
        .ok()
        .and_then(|oid| catalog.model.size_bytes(oid))
        .and_then(|bytes| i64::try_from(bytes).ok())
        .unwrap_or(0)
}

fn database_size(catalog: &Catalog, _: &[Datum]) -> Result<Datum> {
    let relations = catalog.user_relations();
    let bytes: i64 = relations.iter().map(|r| size(catalog, r.oid)).sum();
    Ok(bytes.into())
}

/// `10 kB`: in the largest unit that leaves fewer than 10240 of it, halves rounded up.
fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let mut amount = i128::from(bytes);
    let mut unit = 0;
    if amount.abs() < 10 * 1024 {
        return format!("{amount} bytes");
    }
    // One bit more than the unit, so that the last step can round.
    amount /= 512;
    unit += 1;
    while amount.abs() >= 20 * 1024 - 1 && unit < UNITS.len() - 1 {
        amount /= 1024;
        unit += 1;
    }
    let rounded = (amount + amount.signum()) / 2;
    format!("{rounded} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn sizes_read_as_in_postgres() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (10_751, "10 kB"),
            (10_752, "11 kB"),
            (10 * 1024 * 1024 - 512, "10 MB"),
            (10 * 1024 * 1024 - 513, "10239 kB"),
            (123_456_789, "118 MB"),
            (1 << 40, "1024 GB"),
        ] {
            assert_eq!(pretty(bytes), text, "{bytes}");
        }
    }
}
