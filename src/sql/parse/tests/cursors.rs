//! Prepared statements and cursors.

use super::*;

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
    let Statement::DeclareCursor { name, query, hold } =
        one("declare \"SQL_CUR0x1\" cursor with hold for select 1")
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
    for (sql, count) in [
        ("FETCH c", Some(1)),
        ("FETCH NEXT FROM c", Some(1)),
        ("FETCH FORWARD 10 FROM \"c\"", Some(10)),
        ("FETCH 5 IN c", Some(5)),
        ("FETCH ALL FROM c", None),
        ("FETCH FORWARD ALL c", None),
        ("FETCH FORWARD c", Some(1)),
    ] {
        assert_eq!(
            one(sql),
            Statement::Fetch {
                name: "c".into(),
                count
            },
            "{sql}"
        );
    }
    assert_eq!(
        one("FETCH next"),
        Statement::Fetch {
            name: "next".into(),
            count: Some(1)
        }
    );
    assert_eq!(
        one("MOVE 2 FROM c"),
        Statement::Move {
            name: "c".into(),
            count: Some(2)
        }
    );
    assert_eq!(one("CLOSE ALL"), Statement::CloseCursor(None));
}
