//! Texts and SQLSTATEs of the libraries' errors.
use std::sync::Arc;

use super::*;

fn plan(text: &str) -> Error {
    DataFusionError::Plan(text.into()).into()
}

#[test]
fn ours_comes_back_unchanged() {
    let ours = Error::new(sqlstate::UNIQUE_VIOLATION, "duplicate key").hint("Use ON CONFLICT.");
    let wrapped = DataFusionError::Context(
        "outer".into(),
        Box::new(DataFusionError::Shared(Arc::new(ours.clone().into()))),
    );
    let back = Error::from(wrapped);
    assert_eq!(
        (back.sqlstate(), back.hint_text()),
        (ours.sqlstate(), ours.hint_text())
    );
    let through_arrow = DataFusionError::ArrowError(Box::new(ours.clone().into()), None);
    assert_eq!(Error::from(through_arrow).primary(), "duplicate key");
    let through_io = io::Error::other(ours);
    assert_eq!(
        Error::from(through_io).sqlstate(),
        sqlstate::UNIQUE_VIOLATION
    );
}

#[test]
fn planner_texts() {
    for (text, state, primary) in [
        (
            "table 'tidemill.public.x' not found",
            "42P01",
            "relation \"x\" does not exist",
        ),
        (
            "table 'tidemill.pg_catalog.y' not found",
            "42P01",
            "relation \"pg_catalog.y\" does not exist",
        ),
        (
            "Invalid function 'fooo'.\nDid you mean 'foo'?",
            "42883",
            "function fooo does not exist",
        ),
        (
            "Failed to coerce arguments to satisfy a call to 'f' function: No function matches the given name and argument types 'f(Int64, Utf8)'. You might",
            "42883",
            "function f(bigint, text) does not exist",
        ),
        (
            "Cannot coerce arithmetic expression Int64 + List(Utf8) to valid types",
            "42883",
            "operator does not exist: bigint + text[]",
        ),
    ] {
        let e = plan(text);
        assert_eq!((e.sqlstate(), e.primary()), (state, primary));
    }
    assert_eq!(
        plan("Invalid function 'fooo'.\nDid you mean 'foo'?").hint_text(),
        Some("Perhaps you meant the function foo.")
    );
}

#[test]
fn values() {
    for (error, state, primary) in [
        (ArrowError::DivideByZero, "22012", "division by zero"),
        (
            ArrowError::CastError("Cannot cast string 'abc' to value of Int32 type".into()),
            "22P02",
            "invalid input syntax for type integer: \"abc\"",
        ),
        (
            ArrowError::CastError("Can't cast value 3000000000 to type Int32".into()),
            "22003",
            "integer out of range",
        ),
        (
            ArrowError::ParseError(
                "Error parsing timestamp from 'soon': error parsing date".into(),
            ),
            "22007",
            "invalid input syntax for type timestamp: \"soon\"",
        ),
        (
            ArrowError::ArithmeticOverflow("Overflow happened on: 1 + 2".into()),
            "22003",
            "value out of range",
        ),
        (
            ArrowError::CastError(
                "Casting from Timestamp(Microsecond, None) to Int32 not supported".into(),
            ),
            "42846",
            "cannot cast type timestamp without time zone to integer",
        ),
    ] {
        let e = Error::from(error);
        assert_eq!((e.sqlstate(), e.primary()), (state, primary));
    }
}

#[test]
fn kinds_of_io() {
    let full: Error = io::Error::from(io::ErrorKind::StorageFull).into();
    assert_eq!(
        (full.sqlstate(), full.kind()),
        ("53100", ErrorKind::Transient)
    );
    let missing: Error = io::Error::from(io::ErrorKind::NotFound).into();
    assert_eq!(missing.sqlstate(), "58P01");
}

#[test]
fn no_library_words() {
    let e = Error::from(DataFusionError::Execution(
        "Arrow error: Compute error: Something with Int64 and Decimal128(5, 2) failed.".into(),
    ));
    assert_eq!(e.primary(), "something with bigint and numeric(5,2) failed");
}
