//! Roles, grants, owners.

use super::*;
use crate::sql::access::{
    AccessStatement, GivenPassword, Grant, GrantObjects, GrantedPrivilege, Owned, RoleName,
    RoleOptions, RoleSetting,
};

fn access(sql: &str) -> AccessStatement {
    match one(sql) {
        Statement::Access(statement) => *statement,
        other => panic!("{sql}: {other:?}"),
    }
}

fn named(name: &str) -> RoleName {
    RoleName::Named(name.to_owned())
}

#[test]
fn users_are_roles_that_may_log_in() {
    let user = AccessStatement::CreateRole {
        name: "ada".into(),
        options: RoleOptions {
            login: Some(true),
            superuser: Some(false),
            password: Some(Some(GivenPassword("x".into()))),
            connection_limit: Some(3),
            valid_until_us: Some(Some(1_704_067_200_000_000)),
            in_roles: vec![named("team"), named("Odd")],
            ..RoleOptions::default()
        },
    };
    let sql = "CREATE USER ada WITH PASSWORD 'x' NOSUPERUSER CONNECTION LIMIT 3 VALID UNTIL '2024-01-01 00:00:00+00' IN ROLE team, \"Odd\"";
    assert_eq!(access(sql), user);
    let AccessStatement::CreateRole { options, .. } = access("create role r") else {
        panic!("a role");
    };
    assert_eq!(options.login, Some(false));
    let AccessStatement::AlterRole { role, options } =
        access("ALTER USER CURRENT_USER PASSWORD NULL VALID UNTIL 'infinity' CONNECTION LIMIT -1")
    else {
        panic!("an alteration");
    };
    assert_eq!(role, RoleName::Current);
    assert_eq!(options.password, Some(None));
    assert_eq!(options.valid_until_us, Some(None));
    assert_eq!(options.connection_limit, Some(-1));
    for (sql, setting) in [
        (
            "SET a.b TO 'x'",
            RoleSetting::Set("a.b".into(), Some("x".into())),
        ),
        (
            "SET work_mem = DEFAULT",
            RoleSetting::Set("work_mem".into(), None),
        ),
        (
            "IN DATABASE tidemill SET x.y FROM CURRENT",
            RoleSetting::FromCurrent("x.y".into()),
        ),
        ("RESET ALL", RoleSetting::ResetAll),
        ("RESET timezone", RoleSetting::Reset("timezone".into())),
    ] {
        let role = named("ada");
        let expected = AccessStatement::AlterRoleSetting { role, setting };
        assert_eq!(access(&format!("ALTER ROLE ada {sql}")), expected, "{sql}");
    }
}

#[test]
fn grants_say_what_of_what_to_whom() {
    let privilege = |name: Option<&str>, columns: &[&str]| GrantedPrivilege {
        name: name.map(str::to_owned),
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
    };
    let grant = Grant {
        is_revoke: false,
        privileges: vec![
            privilege(Some("select"), &["a", "b"]),
            privilege(Some("insert"), &[]),
        ],
        objects: GrantObjects::Relations(vec!["t".into(), "u".into()]),
        grantees: vec![RoleName::Public, named("ada")],
        grant_option: true,
        granted_by: Some(RoleName::Current),
        cascade: false,
    };
    let sql = "GRANT SELECT (a, b), INSERT ON TABLE t, public.u TO PUBLIC, GROUP ada WITH GRANT OPTION GRANTED BY CURRENT_USER";
    assert_eq!(access(sql), AccessStatement::Grant(grant.clone()));
    let revoke = Grant {
        is_revoke: true,
        privileges: vec![privilege(None, &[])],
        objects: GrantObjects::AllRelations(None),
        grantees: vec![named("ada")],
        granted_by: None,
        cascade: true,
        ..grant
    };
    let sql =
        "REVOKE GRANT OPTION FOR ALL PRIVILEGES ON ALL TABLES IN SCHEMA public FROM ada CASCADE";
    assert_eq!(access(sql), AccessStatement::Grant(revoke));
    let AccessStatement::Grant(grant) = access("GRANT RECOVERY ON PIPELINE p TO ada") else {
        panic!("a grant");
    };
    assert_eq!(grant.objects, GrantObjects::Pipelines(vec!["p".into()]));
    let AccessStatement::GrantRole(grant) = access("GRANT a, \"B\" TO c WITH ADMIN OPTION") else {
        panic!("a grant of roles");
    };
    assert_eq!(grant.roles, [named("a"), named("B")]);
    assert!(grant.admin);
    let owner = AccessStatement::AlterOwner {
        object: Owned::Object(ObjectKind::MaterializedView, "m".into()),
        owner: RoleName::Session,
    };
    assert_eq!(
        access("ALTER MATERIALIZED VIEW m OWNER TO SESSION_USER"),
        owner
    );
}

#[test]
fn what_makes_no_sense_is_told_with_its_place() {
    for (sql, code) in [
        ("CREATE USER pg_x", "42939"),
        ("CREATE ROLE none", "42939"),
        ("CREATE USER a LOGIN NOLOGIN", "42601"),
        ("CREATE USER a PASSWORD x", "42601"),
        ("CREATE USER a CONNECTION LIMIT -2", "22023"),
        ("CREATE USER a VALID UNTIL 'soon'", "22007"),
        ("GRANT SELECT t TO a", "42601"),
        ("GRANT SELECT (a) TO b", "42601"),
        ("GRANT EXECUTE ON FUNCTION f TO a", "0A000"),
        ("GRANT SELECT ON ALL TABLES IN SCHEMA other TO a", "3F000"),
        ("ALTER ROLE ALL SET x.y = 1", "0A000"),
        ("ALTER ROLE a IN DATABASE other SET x.y = 1", "3D000"),
        (
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO a",
            "0A000",
        ),
    ] {
        let error = crate::sql::parse(sql).unwrap_err();
        assert_eq!(error.sqlstate(), code, "{sql}");
        assert!(error.position_value().is_some(), "{sql}");
    }
}
