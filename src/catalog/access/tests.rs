//! Who may do what, of a small world of roles.

use std::sync::Arc;

use super::acl::{Acl, AclItem, Change, Privileges};
use super::role::{BOOTSTRAP_OID, MONITOR_OID, Membership, READ_ALL_DATA_OID, Role};
use super::*;

const ADA: u32 = 20_001;
const TEAM: u32 = 20_002;
const CLOSED: u32 = 20_003;
const TABLE: ObjectKey = ObjectKey::Relation(30_000);

fn world() -> Access {
    let mut access = Access::default();
    for (oid, name) in [(ADA, "ada"), (TEAM, "team"), (CLOSED, "closed")] {
        let role = Arc::new(Role::new(oid, name));
        access.apply(&AccessChange::CreateRole(role)).unwrap();
    }
    for (role, member) in [(TEAM, ADA), (CLOSED, TEAM)] {
        let membership = Membership {
            role,
            member,
            grantor: BOOTSTRAP_OID,
            admin: false,
        };
        access
            .apply(&AccessChange::PutMembership(membership))
            .unwrap();
    }
    access
}

fn granted(access: &mut Access, key: &ObjectKey, grantee: u32, privileges: Privileges) {
    let mut acl = access.effective_acl(key);
    let owner = access.owner(key);
    let change = Change {
        grantee,
        grantor: owner,
        privileges,
        grant_option: false,
    };
    acl.grant(change, owner).unwrap();
    let before = access.acl(key).cloned();
    let set = AccessChange::SetAcl {
        key: key.clone(),
        before,
        acl: Some(acl),
    };
    access.apply(&set).unwrap();
}

#[test]
fn privileges_come_by_roles_as_far_as_they_inherit() {
    let mut access = world();
    granted(&mut access, &TABLE, CLOSED, Privileges::SELECT);
    let select = |access: &Access| access.allows(&access.subject(ADA), &TABLE, Privileges::SELECT);
    assert!(select(&access));
    let before = access.role("team").unwrap().clone();
    let mut role = Role::clone(&before);
    role.attributes.inherit = false;
    let role = Arc::new(role);
    access
        .apply(&AccessChange::PutRole { before, role })
        .unwrap();
    assert!(!select(&access));
    assert!(access.is_member(ADA, CLOSED));
    assert!(!access.is_member(CLOSED, ADA));
}

#[test]
fn owners_and_everyone_have_the_defaults_until_they_are_changed() {
    let mut access = world();
    let ada = access.subject(ADA);
    assert_eq!(access.holds(&ada, &TABLE), Privileges::NONE);
    access.apply(&AccessChange::SetOwner(TABLE, TEAM)).unwrap();
    assert_eq!(access.holds(&ada, &TABLE), TABLE.privileges());
    assert!(access.owns(&ada, &TABLE));
    // An owner who took it from himself has it no more, but may give it back.
    let nothing = AccessChange::SetAcl {
        key: TABLE,
        before: None,
        acl: Some(Acl::default()),
    };
    access.apply(&nothing).unwrap();
    assert_eq!(access.holds(&ada, &TABLE), Privileges::NONE);
    assert_eq!(access.grantable(&ada, &TABLE), TABLE.privileges());
    assert_eq!(access.holds(&ada, &ObjectKey::Schema), Privileges::USAGE);
    assert!(access.allows(&ada, &ObjectKey::Database, Privileges::CONNECT));
    assert!(!access.allows(&ada, &ObjectKey::Database, Privileges::CREATE));
}

#[test]
fn predefined_roles_have_what_postgres_gives_them() {
    let access = world();
    let reader = access.subject(READ_ALL_DATA_OID);
    assert_eq!(access.holds(&reader, &TABLE), Privileges::SELECT);
    assert!(access.subject(MONITOR_OID).reads_statistics());
    assert!(!access.subject(ADA).reads_statistics());
}

#[test]
fn a_list_that_changed_meanwhile_is_not_overwritten() {
    let mut access = world();
    let change = |acl: Acl| AccessChange::SetAcl {
        key: TABLE,
        before: None,
        acl: Some(acl),
    };
    let one = Acl(vec![AclItem {
        grantee: ADA,
        grantor: BOOTSTRAP_OID,
        privileges: Privileges::SELECT,
        grantable: Privileges::NONE,
    }]);
    access.apply(&change(one.clone())).unwrap();
    let error = access.apply(&change(one)).unwrap_err();
    assert_eq!(error.sqlstate(), "40001");
}

#[test]
fn a_role_that_something_names_cannot_vanish() {
    let mut access = world();
    granted(&mut access, &TABLE, ADA, Privileges::SELECT);
    let ada = access.role("ada").unwrap().clone();
    access.apply(&AccessChange::DropRole(ada)).unwrap();
    assert_eq!(access.check_roles().unwrap_err().sqlstate(), "40001");
}

#[test]
fn what_is_written_is_read_again_and_an_empty_file_has_the_predefined_roles() {
    let mut access = world();
    granted(&mut access, &TABLE, ADA, Privileges::SELECT);
    let text = serde_json::to_string(&access).unwrap();
    let read: Access = serde_json::from_str(&text).unwrap();
    assert_eq!(read, access);
    assert!(Access::default().role("pg_monitor").is_some());
}

#[test]
fn new_relations_begin_with_the_default_privileges_of_their_owner() {
    let mut access = world();
    assert_eq!(access.acl_of_new_relation(TEAM, 1), None);
    let select = AclItem {
        grantee: ADA,
        grantor: TEAM,
        privileges: Privileges::SELECT,
        grantable: Privileges::NONE,
    };
    let set = AccessChange::SetDefault {
        before: None,
        after: Some(DefaultAcl {
            role: TEAM,
            in_schema: true,
            acl: Acl(vec![select]),
        }),
    };
    access.apply(&set).unwrap();
    let acl = access.acl_of_new_relation(TEAM, 1).unwrap();
    assert_eq!(
        acl.texts(|oid| access.role_name(oid)),
        ["team=arwdDxt/team", "ada=r/team"]
    );
    assert_eq!(access.acl_of_new_relation(ADA, 1), None);
}
