//! TLS: certificate and key of the server, the authority of clients' certificates, and their reload.
//!
//! The files are read whole into an [`Identity`] before anything is told of it: what cannot be used
//! is an error that names the file and says why, and at a reload the old identity stays. Sessions keep
//! what they began with. One stack, rustls with ring, serves both the Postgres wire and HTTP; they
//! differ in the protocol that is negotiated. Absent: revocation lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use pgwire::api::auth::sasl::scram::ScramServerAuth;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_certificate::CapturedX509Certificate;

use crate::error::{Error, Result, sqlstate};

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain in PEM, the server's own first.
    pub certificate: PathBuf,
    /// Private key in PEM.
    pub key: PathBuf,
    /// Certificates in PEM of who signs those of clients; `None`: clients show none.
    pub client_ca: Option<PathBuf>,
}

/// What the server shows of itself, at one time.
pub(super) struct Identity {
    /// for the Postgres wire
    pub postgres: Arc<ServerConfig>,
    /// for HTTP
    pub http: Arc<ServerConfig>,
    /// passwords bound to this certificate; `None`: its kind of signature cannot be bound to
    pub binding: Option<ScramServerAuth>,
}

/// The identity in force.
pub(super) struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<Identity>>,
    seen: RwLock<Vec<Option<(SystemTime, u64)>>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish()
    }
}

impl Tls {
    /// Reads the files.
    pub fn open(files: TlsFiles) -> Result<Self> {
        let seen = stamps(&files);
        let identity = load(&files)?;
        Ok(Self {
            files,
            current: RwLock::new(Arc::new(identity)),
            seen: RwLock::new(seen),
        })
    }

    /// For a connection that begins now.
    pub fn current(&self) -> Arc<Identity> {
        self.current.read().clone()
    }

    /// Reads the files anew; with an error the old identity stays.
    pub fn reload(&self) -> Result<()> {
        // Noted first: what changes while it is read is read again.
        *self.seen.write() = stamps(&self.files);
        let identity = load(&self.files)?;
        *self.current.write() = Arc::new(identity);
        Ok(())
    }

    /// A file is another one than was read last.
    pub fn has_changed(&self) -> bool {
        *self.seen.read() != stamps(&self.files)
    }
}

/// Modification time and size of each file.
fn stamps(files: &TlsFiles) -> Vec<Option<(SystemTime, u64)>> {
    let paths = [
        Some(&files.certificate),
        Some(&files.key),
        files.client_ca.as_ref(),
    ];
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    paths.into_iter().flatten().map(stamp).collect()
}

fn bad_file(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(
        sqlstate::CONFIG_FILE_ERROR,
        format!("could not use TLS file {}: {what}", path.display()),
    )
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| bad_file(path, e))
}

fn certificates(path: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>)> {
    let pem = read(path)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|e| bad_file(path, e))?;
    match found.is_empty() {
        true => Err(bad_file(path, "it holds no certificate in PEM")),
        false => Ok((pem, found)),
    }
}

fn load(files: &TlsFiles) -> Result<Identity> {
    let (pem, chain) = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|_| bad_file(&files.key, "it holds no private key in PEM"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::internal(format!("TLS versions: {e}")))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)?.1 {
                roots.add(certificate).map_err(|e| bad_file(path, e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                // A client without a certificate has a password.
                .allow_unauthenticated()
                .build()
                .map_err(|e| bad_file(path, e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|e| match e {
        rustls::Error::InconsistentKeys(_) => bad_file(
            &files.key,
            format!("it is not the key of {}", files.certificate.display()),
        ),
        rustls::Error::InvalidCertificate(e) => {
            bad_file(&files.certificate, format!("invalid certificate: {e:?}"))
        }
        other => bad_file(&files.key, other),
    })?;
    let mut http = config.clone();
    http.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    let mut binding = ScramServerAuth::new();
    let is_bound = binding.configure_certificate(&pem).is_ok();
    if !is_bound {
        tracing::info!(
            certificate = %files.certificate.display(),
            "no channel binding: the certificate's kind of signature has no hash for it"
        );
    }
    Ok(Identity {
        postgres: Arc::new(config),
        http: Arc::new(http),
        binding: is_bound.then_some(binding),
    })
}

/// The common name of a client's certificate, which is the user's name.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = CapturedX509Certificate::from_der(certificate.as_ref().to_vec()).ok()?;
    certificate.subject_common_name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_file_is_named_with_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = TlsFiles {
            certificate: file("server.crt", "nothing"),
            key: file("server.key", "nothing"),
            client_ca: None,
        };
        let told = Tls::open(files.clone()).unwrap_err().primary().to_owned();
        assert!(
            told.ends_with("server.crt: it holds no certificate in PEM"),
            "{told}"
        );
        let missing = TlsFiles {
            certificate: dir.path().join("missing.crt"),
            ..files
        };
        let told = Tls::open(missing).unwrap_err().primary().to_owned();
        assert!(told.contains("missing.crt: No such file"), "{told}");
    }
}
