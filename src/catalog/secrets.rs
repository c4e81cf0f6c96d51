//! Secrets at rest: ChaCha20-Poly1305 under a key that lies in a file of its own.
//!
//! The key file (`catalog/secret.key`, mode 0600) keeps a copied or shown `catalog.json` from
//! giving secrets away; who can read the whole data directory can read them, as with any server
//! that must start without a person. The secret's name is authenticated with it, so that a sealed
//! value moved under another name does not open.

use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::path::Path;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::access::password::SALT_BYTES;
use super::file::write_whole;
use super::snapshot::SecretRecord;
use crate::error::{Error, Result, sqlstate};

const KEY_FILE: &str = "secret.key";
const KEY_BYTES: usize = 32;

/// Seals and opens secrets.
pub(super) struct SecretCipher {
    key: LessSafeKey,
    mock: ring::hmac::Key,
    random: SystemRandom,
}

impl SecretCipher {
    /// Reads the key, or makes one; with secrets in the catalog a missing key is damage.
    pub fn open(dir: &Path, is_key_needed: bool) -> Result<Self> {
        let random = SystemRandom::new();
        let path = dir.join(KEY_FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == IoErrorKind::NotFound && !is_key_needed => {
                let mut bytes = vec![0; KEY_BYTES];
                random.fill(&mut bytes).map_err(|_| no_randomness())?;
                write_whole(dir, KEY_FILE, &bytes, 0o600)?;
                bytes
            }
            Err(error) if error.kind() == IoErrorKind::NotFound => {
                return Err(Error::damaged(format!(
                    "{} is missing, and the catalog holds secrets that only it opens",
                    path.display()
                ))
                .hint("Put back the file from a backup of the data directory."));
            }
            Err(error) => return Err(error.into()),
        };
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| {
            Error::damaged(format!("{} is not a key of 32 bytes", path.display()))
                .hint("Put back the file from a backup of the data directory.")
        })?;
        Ok(Self {
            key: LessSafeKey::new(key),
            mock: ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &bytes),
            random,
        })
    }

    /// What only this database can compute of a name, and always the same.
    pub fn mock_salt(&self, user: &str) -> [u8; SALT_BYTES] {
        let text = format!("salt of a user who does not exist: {user}");
        let tag = ring::hmac::sign(&self.mock, text.as_bytes());
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&tag.as_ref()[..SALT_BYTES]);
        salt
    }

    /// Encrypts a value under a fresh nonce.
    pub fn seal(&self, name: &str, value: &str) -> Result<SecretRecord> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| no_randomness())?;
        let mut bytes = value.as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut bytes,
            )
            .map_err(|_| Error::internal("a secret could not be encrypted"))?;
        let sealed = nonce
            .iter()
            .chain(&bytes)
            .map(|b| format!("{b:02x}"))
            .collect();
        Ok(SecretRecord {
            changed_at_us: 0,
            sealed,
        })
    }

    /// Decrypts a value.
    pub fn open_record(&self, name: &str, record: &SecretRecord) -> Result<String> {
        let damaged = || {
            Error::damaged(format!("secret \"{name}\" cannot be opened with this key"))
                .hint(format!("Set it again with ALTER SECRET {name} AS '…'."))
        };
        let mut bytes = from_hex(&record.sealed).ok_or_else(damaged)?;
        if bytes.len() < NONCE_LEN {
            return Err(damaged());
        }
        let mut sealed = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| damaged())?;
        let plain = self
            .key
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut sealed)
            .map_err(|_| damaged())?;
        String::from_utf8(plain.to_vec()).map_err(|_| damaged())
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok())
        .collect()
}

fn no_randomness() -> Error {
    Error::transient(
        sqlstate::SYSTEM_ERROR,
        "could not get random bytes from the operating system",
    )
}
