//! DROP, ALTER and COMMENT.

use super::*;

#[test]
fn drops_alters_comments() {
    assert_eq!(
        one("DROP MATERIALIZED VIEW IF EXISTS a, public.b CASCADE"),
        Statement::Drop {
            kind: ObjectKind::MaterializedView,
            names: vec!["a".into(), "public.b".into()],
            if_exists: true,
            cascade: true
        }
    );
    assert_eq!(
        one("ALTER PIPELINE p SET (trigger = '1 second', maxOffsetsPerTrigger = 5)"),
        Statement::AlterOptions {
            kind: ObjectKind::Pipeline,
            name: "p".into(),
            set: [
                ("trigger".to_owned(), text("1 second").unwrap()),
                ("max_offsets_per_trigger".to_owned(), text("5").unwrap())
            ]
            .into(),
            reset: vec![]
        }
    );
    assert_eq!(
        one("ALTER STREAM s RESET (startingOffsets, kafka.x)"),
        Statement::AlterOptions {
            kind: ObjectKind::Stream,
            name: "s".into(),
            set: Default::default(),
            reset: vec!["starting_offsets".into(), "kafka.x".into()]
        }
    );
    assert_eq!(
        one("alter table \"tidemill\".\"public\".\"t\" rename to \"t__dbt_backup\""),
        Statement::Rename {
            kind: ObjectKind::Table,
            name: "public.t".into(),
            new_name: "t__dbt_backup".into(),
            if_exists: false,
        }
    );
    assert_eq!(
        one("COMMENT ON COLUMN public.t.\"C\" IS $dbt$x$dbt$"),
        Statement::Comment {
            kind: ObjectKind::Table,
            name: "public.t".into(),
            column: Some("C".into()),
            comment: Some("x".into())
        }
    );
    assert_eq!(
        one("COMMENT ON STREAM s IS NULL"),
        Statement::Comment {
            kind: ObjectKind::Stream,
            name: "s".into(),
            column: None,
            comment: None
        }
    );
}

#[test]
fn alterations() {
    let name = || "a".to_owned();
    for (sql, expected) in [
        (
            "DROP a CASCADE",
            AlterAction::DropColumn {
                name: name(),
                if_exists: false,
                cascade: true,
            },
        ),
        (
            "DROP COLUMN IF EXISTS a",
            AlterAction::DropColumn {
                name: name(),
                if_exists: true,
                cascade: false,
            },
        ),
        (
            "RENAME a TO \"B\" FROM 'x'",
            AlterAction::RenameColumn {
                name: name(),
                new_name: "B".into(),
                sent_as: Some("x".into()),
            },
        ),
        (
            "ALTER a SET NOT NULL",
            AlterAction::SetNullable(name(), false),
        ),
        (
            "ALTER COLUMN a DROP NOT NULL",
            AlterAction::SetNullable(name(), true),
        ),
        (
            "ALTER a SET DEFAULT 1 + 2",
            AlterAction::SetDefault(name(), Some("1 + 2".into())),
        ),
        (
            "ALTER a DROP DEFAULT",
            AlterAction::SetDefault(name(), None),
        ),
        (
            "ALTER a TYPE varchar(3) USING b || 'x'",
            AlterAction::SetType(
                name(),
                ColumnType {
                    sql_type: SqlType::Text,
                    text_type: Some(TextType::Varchar(Some(3))),
                    using: Some("b || 'x'".into()),
                },
            ),
        ),
        (
            "ALTER COLUMN a SET DATA TYPE bigint",
            AlterAction::SetType(
                name(),
                ColumnType {
                    sql_type: SqlType::BigInt,
                    text_type: None,
                    using: None,
                },
            ),
        ),
        ("DROP WATERMARK", AlterAction::SetWatermark(None)),
        (
            "ALTER WATERMARK FOR a AS a - 5",
            AlterAction::SetWatermark(Some((
                WatermarkDefinition {
                    column: name(),
                    delay_us: 5,
                },
                DelayUnit::Number,
            ))),
        ),
        (
            "DROP CONSTRAINT a",
            AlterAction::DropConstraint {
                name: name(),
                if_exists: false,
            },
        ),
    ] {
        let statement = one(&format!("ALTER STREAM IF EXISTS s {sql}, DROP b"));
        let Statement::AlterRelation {
            kind: ObjectKind::Stream,
            if_exists: true,
            actions,
            ..
        } = statement
        else {
            panic!("{sql}: {statement:?}");
        };
        assert_eq!(actions.len(), 2, "{sql}");
        assert_eq!(actions[0], expected, "{sql}");
    }
    let Statement::AlterRelation { actions, .. } =
        one("ALTER TABLE t ADD IF NOT EXISTS c varchar(5) NOT NULL DEFAULT 'x'")
    else {
        panic!("an ALTER");
    };
    let AlterAction::AddColumn {
        column,
        if_not_exists: true,
    } = &actions[0]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(column.type_name(), "character varying(5)");
    assert!(!column.nullable);
    assert_eq!(column.default.as_deref(), Some("'x'"));
}
