//! Access control lists: who may do what with an object, and by whose leave.
//!
//! The rules are PostgreSQL's (its `aclchk.c` as documented in chapter 5.7 of the manual): an item
//! is a grantee, a grantor, privileges and which of these may be granted on. The owner has every
//! grant option whatever the list says. All of it is pure.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::OID_PUBLIC;
use crate::error::{Error, Result, sqlstate};

/// A set of privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Privileges(u32);

/// Letter and name of each privilege, in PostgreSQL's order; the last is our own.
const NAMES: [(char, &str, Privileges); 13] = [
    ('a', "INSERT", Privileges::INSERT),
    ('r', "SELECT", Privileges::SELECT),
    ('w', "UPDATE", Privileges::UPDATE),
    ('d', "DELETE", Privileges::DELETE),
    ('D', "TRUNCATE", Privileges::TRUNCATE),
    ('x', "REFERENCES", Privileges::REFERENCES),
    ('t', "TRIGGER", Privileges::TRIGGER),
    ('X', "EXECUTE", Privileges::EXECUTE),
    ('U', "USAGE", Privileges::USAGE),
    ('C', "CREATE", Privileges::CREATE),
    ('T', "TEMPORARY", Privileges::TEMPORARY),
    ('c', "CONNECT", Privileges::CONNECT),
    ('R', "RECOVERY", Privileges::RECOVERY),
];

#[allow(missing_docs)]
impl Privileges {
    pub const NONE: Self = Self(0);
    pub const INSERT: Self = Self(1);
    pub const SELECT: Self = Self(1 << 1);
    pub const UPDATE: Self = Self(1 << 2);
    pub const DELETE: Self = Self(1 << 3);
    pub const TRUNCATE: Self = Self(1 << 4);
    pub const REFERENCES: Self = Self(1 << 5);
    pub const TRIGGER: Self = Self(1 << 6);
    pub const EXECUTE: Self = Self(1 << 7);
    pub const USAGE: Self = Self(1 << 8);
    pub const CREATE: Self = Self(1 << 9);
    pub const TEMPORARY: Self = Self(1 << 10);
    pub const CONNECT: Self = Self(1 << 11);
    pub const RECOVERY: Self = Self(1 << 12);

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// By its name in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = match name.to_ascii_uppercase().as_str() {
            "TEMP" => "TEMPORARY".to_owned(),
            other => other.to_owned(),
        };
        let found = NAMES.iter().find(|(_, known, _)| *known == name);
        found.map(|(_, _, privilege)| *privilege)
    }

    /// The name of a letter in an item.
    pub fn name_of_letter(letter: char) -> Option<&'static str> {
        let found = NAMES.iter().find(|(known, ..)| *known == letter);
        found.map(|(_, name, _)| *name)
    }

    /// The names of those in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let held = NAMES.iter().filter(move |(_, _, p)| self.contains(*p));
        held.map(|(_, name, _)| *name)
    }

    /// One by one, with their names.
    pub fn each(self) -> impl Iterator<Item = (&'static str, Self)> {
        let held = NAMES.iter().filter(move |(_, _, p)| self.contains(*p));
        held.map(|(_, name, privilege)| (*name, *privilege))
    }
}

/// What one role was given by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclItem {
    /// the role that has it; [`OID_PUBLIC`]: everyone
    pub grantee: u32,
    /// the role that gave it
    pub grantor: u32,
    /// what
    pub privileges: Privileges,
    /// what of it may be granted on
    pub grantable: Privileges,
}

/// All that was given of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Acl(pub Vec<AclItem>);

/// What a REVOKE does with privileges that hang on the revoked ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// they are an error
    Restrict,
    /// they go too
    Cascade,
}

/// A GRANT or REVOKE of one grantor for one grantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// the role that has it or shall have it
    pub grantee: u32,
    /// by whom
    pub grantor: u32,
    /// what
    pub privileges: Privileges,
    /// `WITH GRANT OPTION`, or `GRANT OPTION FOR`
    pub grant_option: bool,
}

impl Acl {
    /// Everything that roles for which `acts_for` is true have, PUBLIC's included.
    pub fn held(&self, acts_for: impl Fn(u32) -> bool) -> Privileges {
        self.sum(acts_for, |item| item.privileges, true)
    }

    /// What these roles may grant on.
    pub fn grantable(&self, acts_for: impl Fn(u32) -> bool) -> Privileges {
        // A grant option is never PUBLIC's.
        self.sum(acts_for, |item| item.grantable, false)
    }

    fn sum(
        &self,
        acts_for: impl Fn(u32) -> bool,
        part: impl Fn(&AclItem) -> Privileges,
        with_public: bool,
    ) -> Privileges {
        let counts =
            |item: &&AclItem| item.grantee == OID_PUBLIC && with_public || acts_for(item.grantee);
        let items = self.0.iter().filter(counts);
        items.fold(Privileges::NONE, |sum, item| sum.union(part(item)))
    }

    /// A role is the grantee or grantor of something.
    pub fn mentions(&self, role: u32) -> bool {
        self.0
            .iter()
            .any(|item| item.grantee == role || item.grantor == role)
    }

    /// Gives.
    pub fn grant(&mut self, change: Change, owner: u32) -> Result<()> {
        if change.grant_option {
            if change.grantee == OID_PUBLIC {
                return Err(Error::new(
                    sqlstate::INVALID_GRANT_OPERATION,
                    "grant options can only be granted to roles",
                ));
            }
            self.check_circle(change, owner)?;
        }
        let given = match change.grant_option {
            true => change.privileges,
            false => Privileges::NONE,
        };
        let item = self.item(change.grantee, change.grantor);
        item.privileges = item.privileges.union(change.privileges);
        item.grantable = item.grantable.union(given);
        Ok(())
    }

    /// Takes back, with what hangs on it if `dependents` says so.
    pub fn revoke(&mut self, change: Change, owner: u32, dependents: Dependents) -> Result<()> {
        let before = self.clone();
        let item = self.item(change.grantee, change.grantor);
        let lost = item.grantable.intersection(change.privileges);
        item.grantable = item.grantable.without(change.privileges);
        if !change.grant_option {
            item.privileges = item.privileges.without(change.privileges);
        }
        self.0.retain(|item| !item.privileges.is_empty());
        let settled = self.settle_dependents(change.grantee, lost, owner, dependents);
        if settled.is_err() {
            *self = before;
        }
        settled
    }

    /// Who lost grant options may have granted by them.
    fn settle_dependents(
        &mut self,
        grantee: u32,
        lost: Privileges,
        owner: u32,
        dependents: Dependents,
    ) -> Result<()> {
        if lost.is_empty() || grantee == owner {
            return Ok(());
        }
        // Another grantor may have given the same options.
        let lost = lost.without(self.grantable(|role| role == grantee));
        while let Some(hanging) = self
            .0
            .iter()
            .find(|item| item.grantor == grantee && !item.privileges.intersection(lost).is_empty())
            .copied()
        {
            if dependents == Dependents::Restrict {
                return Err(
                    Error::new(sqlstate::DEPENDENT_OBJECTS, "dependent privileges exist")
                        .hint("Use CASCADE to revoke them too."),
                );
            }
            let change = Change {
                grantee: hanging.grantee,
                grantor: grantee,
                privileges: lost,
                grant_option: false,
            };
            self.revoke(change, owner, dependents)?;
        }
        Ok(())
    }

    /// Grant options must not come back to whom they came from.
    fn check_circle(&self, change: Change, owner: u32) -> Result<()> {
        if change.grantor == owner {
            return Ok(());
        }
        let mut without = self.clone();
        // All that the grantee granted on is taken away: the grantor must still have the options.
        while let Some(item) = without
            .0
            .iter()
            .find(|i| i.grantee == change.grantee && !i.grantable.is_empty())
            .copied()
        {
            let gone = Change {
                grantee: item.grantee,
                grantor: item.grantor,
                privileges: item.grantable,
                grant_option: true,
            };
            without.revoke(gone, owner, Dependents::Cascade)?;
        }
        let left = without.grantable(|role| role == change.grantor);
        match left.contains(change.privileges) {
            true => Ok(()),
            false => Err(Error::new(
                sqlstate::INVALID_GRANT_OPERATION,
                "grant options cannot be granted back to your own grantor",
            )),
        }
    }

    fn item(&mut self, grantee: u32, grantor: u32) -> &mut AclItem {
        let is_it = |item: &AclItem| item.grantee == grantee && item.grantor == grantor;
        let at = match self.0.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.0.push(AclItem {
                    grantee,
                    grantor,
                    privileges: Privileges::NONE,
                    grantable: Privileges::NONE,
                });
                self.0.len() - 1
            }
        };
        &mut self.0[at]
    }

    /// Another owner: what the old one had and gave is the new one's.
    pub fn change_owner(&mut self, old: u32, new: u32) {
        let mut merged = Self::default();
        for item in &self.0 {
            let renamed = |role: u32| if role == old { new } else { role };
            let into = merged.item(renamed(item.grantee), renamed(item.grantor));
            into.privileges = into.privileges.union(item.privileges);
            into.grantable = into.grantable.union(item.grantable);
        }
        *self = merged;
    }

    /// All that a role was given, and all that it gave, goes.
    pub fn forget(&mut self, role: u32) {
        self.0
            .retain(|item| item.grantee != role && item.grantor != role);
    }

    /// As PostgreSQL writes its items: `ada=r*w/bob`.
    pub fn texts(&self, name: impl Fn(u32) -> String) -> Vec<String> {
        self.0.iter().map(|item| item.text(&name)).collect()
    }
}

impl AclItem {
    fn text(&self, name: impl Fn(u32) -> String) -> String {
        let mut text = match self.grantee {
            OID_PUBLIC => String::new(),
            role => quoted(&name(role)),
        };
        text.push('=');
        for (letter, _, privilege) in NAMES {
            if self.privileges.contains(privilege) {
                text.push(letter);
                if self.grantable.contains(privilege) {
                    text.push('*');
                }
            }
        }
        // Writing to a String cannot fail.
        write!(text, "/{}", quoted(&name(self.grantor))).ok();
        text
    }
}

/// A role's name in an item: quoted unless it is made of letters, digits and underscores.
fn quoted(name: &str) -> String {
    match name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1;
    const ADA: u32 = 2;
    const BOB: u32 = 3;

    fn change(grantor: u32, grantee: u32, privileges: Privileges, grant_option: bool) -> Change {
        Change {
            grantee,
            grantor,
            privileges,
            grant_option,
        }
    }

    fn texts(acl: &Acl) -> Vec<String> {
        acl.texts(|role| ["", "owner", "ada", "bob b"][role as usize].to_owned())
    }

    #[test]
    fn items_are_written_as_postgres_writes_them() {
        let mut acl = Acl::default();
        let both = Privileges::SELECT.union(Privileges::INSERT);
        acl.grant(change(OWNER, ADA, both, false), OWNER).unwrap();
        acl.grant(change(OWNER, ADA, Privileges::SELECT, true), OWNER)
            .unwrap();
        acl.grant(change(ADA, BOB, Privileges::SELECT, false), OWNER)
            .unwrap();
        acl.grant(change(OWNER, OID_PUBLIC, Privileges::UPDATE, false), OWNER)
            .unwrap();
        assert_eq!(
            texts(&acl),
            ["ada=ar*/owner", "\"bob b\"=r/ada", "=w/owner"]
        );
        assert_eq!(
            acl.held(|role| role == BOB),
            Privileges::SELECT.union(Privileges::UPDATE)
        );
    }

    #[test]
    fn what_hangs_on_a_grant_option_is_told_or_goes_too() {
        let mut acl = Acl::default();
        acl.grant(change(OWNER, ADA, Privileges::SELECT, true), OWNER)
            .unwrap();
        acl.grant(change(ADA, BOB, Privileges::SELECT, false), OWNER)
            .unwrap();
        let before = acl.clone();
        let back = change(OWNER, ADA, Privileges::SELECT, false);
        let refused = acl.revoke(back, OWNER, Dependents::Restrict).unwrap_err();
        assert_eq!(refused.sqlstate(), "2BP01");
        assert_eq!(acl, before);
        let option = change(OWNER, ADA, Privileges::SELECT, true);
        acl.revoke(option, OWNER, Dependents::Cascade).unwrap();
        assert_eq!(texts(&acl), ["ada=r/owner"]);
    }

    #[test]
    fn grant_options_go_neither_in_circles_nor_to_everyone() {
        let mut acl = Acl::default();
        acl.grant(change(OWNER, ADA, Privileges::SELECT, true), OWNER)
            .unwrap();
        acl.grant(change(ADA, BOB, Privileges::SELECT, true), OWNER)
            .unwrap();
        for bad in [
            change(BOB, ADA, Privileges::SELECT, true),
            change(OWNER, OID_PUBLIC, Privileges::SELECT, true),
        ] {
            assert_eq!(acl.grant(bad, OWNER).unwrap_err().sqlstate(), "0LP01");
        }
    }

    #[test]
    fn a_new_owner_takes_over_what_the_old_one_had_and_gave() {
        let mut acl = Acl::default();
        acl.grant(change(OWNER, OWNER, Privileges::SELECT, false), OWNER)
            .unwrap();
        acl.grant(change(OWNER, ADA, Privileges::INSERT, false), OWNER)
            .unwrap();
        acl.change_owner(OWNER, ADA);
        assert_eq!(texts(&acl), ["ada=ar/ada"]);
        acl.forget(ADA);
        assert_eq!(acl, Acl::default());
    }
}
