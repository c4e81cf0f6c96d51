//! Prepared statements and cursors.

use super::*;
use crate::sql::statement::Direction;

#[test]
fn prepared_statements_and_cursors() {
    let Statement::Prepare { name, statement } = one("PREPARE p (int, text[]) AS SELECT $1, $2")
    else {
        panic!()
    };
    assert_eq!(name, "p");
    assert!(matches!(*statement, Statement::Query(_)));
    let Statement::Execute { name, arguments } = one("EXECUTE \"P\"(1, 'a' || 'b')") else {
        panic!()
    };
    assert_eq!((name.as_str(), arguments.len()), ("P", 2));
    assert_eq!(one("DEALLOCATE ALL"), Statement::Deallocate(None));
    assert_eq!(
        one("DEALLOCATE PREPARE \"_PLAN0x1\""),
        Statement::Deallocate(Some("_PLAN0x1".into()))
    );
    let Statement::DeclareCursor {
        name,
        query,
        hold,
        scroll: false,
    } = one("declare \"SQL_CUR0x1\" cursor with hold for select 1")
    else {
        panic!()
    };
    assert_eq!((name.as_str(), hold), ("SQL_CUR0x1", true));
    assert!(matches!(*query, Statement::Query(_)));
    let Statement::DeclareCursor { query, .. } =
        one("DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR SUBSCRIBE TO v")
    else {
        panic!()
    };
    assert!(matches!(*query, Statement::Subscribe(_)));
    assert!(matches!(
        one("DECLARE c INSENSITIVE SCROLL CURSOR FOR SELECT 1"),
        Statement::DeclareCursor { scroll: true, .. }
    ));
    for (sql, direction) in [
        ("FETCH c", Direction::Forward(Some(1))),
        ("FETCH NEXT FROM c", Direction::Forward(Some(1))),
        ("FETCH FORWARD 10 FROM \"c\"", Direction::Forward(Some(10))),
        ("FETCH 5 IN c", Direction::Forward(Some(5))),
        ("FETCH -5 IN c", Direction::Backward(Some(5))),
        ("FETCH ALL FROM c", Direction::Forward(None)),
        ("FETCH FORWARD ALL c", Direction::Forward(None)),
        ("FETCH FORWARD c", Direction::Forward(Some(1))),
        ("FETCH BACKWARD FROM c", Direction::Backward(Some(1))),
        ("FETCH BACKWARD -2 FROM c", Direction::Forward(Some(2))),
        ("FETCH BACKWARD ALL FROM c", Direction::Backward(None)),
        ("FETCH PRIOR c", Direction::Backward(Some(1))),
        ("FETCH FIRST c", Direction::Absolute(1)),
        ("FETCH LAST IN c", Direction::Absolute(-1)),
        ("FETCH ABSOLUTE -3 FROM c", Direction::Absolute(-3)),
        ("FETCH RELATIVE 0 FROM c", Direction::Relative(0)),
    ] {
        let name = "c".into();
        assert_eq!(one(sql), Statement::Fetch { name, direction }, "{sql}");
    }
    for name in ["next", "last", "backward"] {
        let fetched = Statement::Fetch {
            name: name.into(),
            direction: Direction::Forward(Some(1)),
        };
        assert_eq!(one(&format!("FETCH {name}")), fetched);
    }
    assert_eq!(
        one("MOVE 2 FROM c"),
        Statement::Move {
            name: "c".into(),
            direction: Direction::Forward(Some(2))
        }
    );
    assert_eq!(one("CLOSE ALL"), Statement::CloseCursor(None));
}
