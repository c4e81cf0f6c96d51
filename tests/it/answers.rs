//! Answers as multisets of texts, and in what two of them differ.

use std::collections::BTreeMap;

/// Rows with their number of copies.
pub type Multiset = BTreeMap<Vec<String>, usize>;

/// Digits in which two computations of one number must agree. Sums of doubles depend on the order
/// of their terms, and quotients of numerics have more digits in PostgreSQL.
const DIGITS: usize = 9;
/// What is nearer to zero is zero: the variance of equal doubles, say.
const ZERO: f64 = 1e-9;
/// Rows of a difference that are shown.
const SHOWN: usize = 6;

/// The rows as they are compared.
pub fn multiset(rows: Vec<Vec<String>>) -> Multiset {
    let mut counted = Multiset::new();
    for row in rows {
        let row = row.into_iter().map(|value| comparable(&value)).collect();
        *counted.entry(row).or_insert(0) += 1;
    }
    counted
}

/// A number with a fraction as its first digits, without zeros at the end; all else as it is.
fn comparable(value: &str) -> String {
    // Which of the two zeros stands for both hangs on which came first.
    if value == "-0" {
        return "0".to_owned();
    }
    let fraction = value.contains('.') || value.contains('e');
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e');
    if !fraction || !value.chars().all(digits) {
        return value.to_owned();
    }
    match value.parse::<f64>() {
        Ok(number) if number.abs() < ZERO => "0".to_owned(),
        Ok(number) => rounded(number),
        Err(_) => value.to_owned(),
    }
}

fn rounded(number: f64) -> String {
    let text = format!("{number:.*e}", DIGITS - 1);
    let short: f64 = text.parse().expect("just printed");
    format!("{short}")
}

/// What is only in one of two answers; none if they are the same.
pub fn difference(ours: &Multiset, theirs: &Multiset, names: [&str; 2]) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let only = |one: &Multiset, other: &Multiset| -> Vec<String> {
        one.iter()
            .filter_map(|(row, count)| {
                let more = count.saturating_sub(other.get(row).copied().unwrap_or(0));
                (more > 0).then(|| format!("  {more} × ({})", row.join(", ")))
            })
            .collect()
    };
    let mut text = String::new();
    for (rows, name) in [
        (only(ours, theirs), names[0]),
        (only(theirs, ours), names[1]),
    ] {
        text.push_str(&format!("\nonly in {name}: {} rows\n", rows.len()));
        text.push_str(&rows[..rows.len().min(SHOWN)].join("\n"));
    }
    Some(text)
}

#[test]
fn numbers_compare_by_their_first_digits() {
    assert_eq!(
        comparable("0.3333333333333333"),
        comparable("0.33333333333333331483")
    );
    assert_eq!(comparable("2.50"), comparable("2.5"));
    assert_eq!(comparable("3.0000"), comparable("3"));
    assert_eq!(comparable("1e-17"), "0");
    assert_ne!(comparable("1.0001"), comparable("1.0002"));
    assert_eq!(comparable("2020-01-01"), "2020-01-01");
    assert_eq!(comparable("12345678901234567890"), "12345678901234567890");
    assert_eq!(comparable("e"), "e");
}
