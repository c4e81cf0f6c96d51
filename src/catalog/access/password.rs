//! Passwords, which are never kept: what is kept is a SCRAM-SHA-256 verifier in PostgreSQL's form,
//! `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`, so that verifiers made by psql's
//! `\password` or taken from a PostgreSQL are good here. The arithmetic is pgwire's and ring's.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::{ScramSecret, gen_salted_password};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, sqlstate};

const PREFIX: &str = "SCRAM-SHA-256$";
/// PostgreSQL's number.
pub const ITERATIONS: usize = 4_096;
/// More would let whoever may set a password keep the server busy at each log-in.
const ITERATIONS_MAX: usize = 1_000_000;
/// Bytes of salt.
pub const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const PASSWORD_BYTES_MAX: usize = 1_024;

/// What a password is checked against, as text. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Verifier(String);

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

impl Verifier {
    /// From what stands after `PASSWORD`: a password, or a verifier that a client made.
    pub fn of_password(given: &str) -> Result<Self> {
        if parts(given).is_some() {
            return Ok(Self(given.to_owned()));
        }
        let is_md5 = given.len() == 35
            && given.starts_with("md5")
            && given[3..].bytes().all(|b| b.is_ascii_hexdigit());
        if is_md5 {
            return Err(Error::unsupported("MD5 password hashes are not supported")
                .hint("Give the password itself, or a SCRAM-SHA-256 verifier."));
        }
        if given.len() > PASSWORD_BYTES_MAX {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "password too long",
            ));
        }
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).map_err(|_| {
            Error::transient(
                sqlstate::SYSTEM_ERROR,
                "could not get random bytes from the operating system",
            )
        })?;
        Ok(Self::with_salt(given, &salt))
    }

    fn with_salt(password: &str, salt: &[u8]) -> Self {
        let (stored_key, server_key) = keys(password, salt, ITERATIONS);
        Self(format!(
            "{PREFIX}{ITERATIONS}:{}${}:{}",
            STANDARD.encode(salt),
            STANDARD.encode(stored_key),
            STANDARD.encode(server_key)
        ))
    }

    /// Its text, for `pg_authid`, which superusers read.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// For an exchange with a client.
    pub fn secret(&self) -> Option<ScramSecret> {
        let Parts {
            iterations,
            salt,
            stored_key,
            server_key,
        } = parts(&self.0)?;
        Some(ScramSecret::Verifier {
            salt,
            iterations,
            stored_key,
            server_key,
        })
    }

    /// Whether it is this password's; takes some milliseconds of a processor, as it must.
    pub fn is_of(&self, password: &str) -> bool {
        parts(&self.0).is_some_and(|kept| {
            let (stored_key, _) = keys(password, &kept.salt, kept.iterations);
            stored_key == kept.stored_key
        })
    }
}

/// A secret that no password has, for a user who does not exist: the exchange looks like any other.
pub fn mock_secret(salt: [u8; SALT_BYTES]) -> ScramSecret {
    ScramSecret::Verifier {
        salt: salt.to_vec(),
        iterations: ITERATIONS,
        // No proof hashes to this.
        stored_key: vec![0; KEY_BYTES],
        server_key: vec![0; KEY_BYTES],
    }
}

fn keys(password: &str, salt: &[u8], iterations: usize) -> (Vec<u8>, Vec<u8>) {
    let salted = gen_salted_password(password, salt, iterations);
    match ScramSecret::verifier_from_salted_password(salt.to_vec(), salted, iterations) {
        ScramSecret::Verifier {
            stored_key,
            server_key,
            ..
        } => (stored_key, server_key),
        ScramSecret::SaltedPassword { .. } => (Vec::new(), Vec::new()),
    }
}

struct Parts {
    iterations: usize,
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

fn parts(text: &str) -> Option<Parts> {
    let (first, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
    let (iterations, salt) = first.split_once(':')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let iterations: usize = iterations.parse().ok()?;
    let key = |text: &str| {
        let key = STANDARD.decode(text).ok()?;
        (key.len() == KEY_BYTES).then_some(key)
    };
    let salt = STANDARD.decode(salt).ok()?;
    let is_sound = (1..=ITERATIONS_MAX).contains(&iterations) && !salt.is_empty();
    is_sound.then_some(())?;
    Some(Parts {
        iterations,
        salt,
        stored_key: key(stored_key)?,
        server_key: key(server_key)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_knows_its_password_alone() {
        let verifier = Verifier::of_password("péncil").unwrap();
        assert!(verifier.is_of("péncil"));
        assert!(!verifier.is_of("pencil"));
        assert!(!verifier.is_of(""));
        assert!(!format!("{verifier:?}").contains("SCRAM"));
        // Given again, as \password gives it, it is kept as it is.
        let again = Verifier::of_password(verifier.as_text()).unwrap();
        assert_eq!(again, verifier);
    }

    #[test]
    fn a_verifier_is_written_as_postgres_writes_it() {
        let salt = b"0123456789abcdef";
        let verifier = Verifier::with_salt("pencil", salt);
        assert!(
            verifier
                .as_text()
                .starts_with("SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$")
        );
        assert!(verifier.secret().is_some());
    }

    #[test]
    fn what_only_looks_like_a_verifier_is_a_password() {
        for text in ["SCRAM-SHA-256$4096:x$y:z", "SCRAM-SHA-256$0:AAAA$AAAA:AAAA"] {
            assert!(Verifier::of_password(text).unwrap().is_of(text), "{text}");
        }
        let md5 = format!("md5{}", "0a".repeat(16));
        assert_eq!(Verifier::of_password(&md5).unwrap_err().sqlstate(), "0A000");
    }
}
