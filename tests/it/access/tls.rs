//! TLS with the real psql: verified server, client certificates, channel binding, reload.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::harness::run;

fn openssl(dir: &Path, arguments: &[&str]) {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("openssl is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments:?}: {told}");
}

/// An authority, and a certificate that it signed under `name`.cert.
fn authority(dir: &Path) {
    openssl(
        dir,
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "3650",
            "-subj",
            "/CN=test authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
        ],
    );
}

fn certificate(dir: &Path, file: &str, name: &str, alternative: &str) {
    let (key, request, signed) = (
        format!("{file}.key"),
        format!("{file}.csr"),
        format!("{file}.crt"),
    );
    let subject = format!("/CN={name}");
    openssl(
        dir,
        &[
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", &subject, "-keyout", &key, "-out",
            &request,
        ],
    );
    std::fs::write(
        dir.join("extensions"),
        format!("basicConstraints=CA:FALSE\n{alternative}\n"),
    )
    .unwrap();
    openssl(
        dir,
        &[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "3650",
            "-extfile",
            "extensions",
            "-out",
            &signed,
        ],
    );
    openssl(dir, &["rsa", "-in", &key, "-out", &key]);
}

#[test]
fn psql_verifies_binds_and_shows_certificates() {
    run(async {
        let temp = tempfile::TempDir::new().unwrap();
        let dir = temp.path();
        authority(dir);
        certificate(
            dir,
            "server",
            "localhost",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        );
        certificate(dir, "ada", "ada", "");
        certificate(dir, "stranger", "stranger", "");
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let server = server_with(
            &[
                "--tls-cert",
                &path("server.crt"),
                "--tls-key",
                &path("server.key"),
                "--tls-client-ca",
                &path("ca.crt"),
            ],
            "CREATE USER ada PASSWORD 'a'",
        )
        .await;
        let verified = format!("sslmode=verify-full sslrootcert={}", path("ca.crt"));
        let ask = |user: &str, more: &str, password: &str| {
            psql(
                &url(&server, user, more),
                &[("PGPASSWORD", password), ("HOME", dir.to_str().unwrap())],
                "SELECT current_user, ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid();\n",
            )
        };
        // A password, bound to the channel.
        let (out, err) = ask("ada", &format!("{verified} channel_binding=require"), "a");
        assert!(
            out.contains("ada") && out.contains("| t") && out.contains("TLSv1.3"),
            "{out}{err}{}",
            server.log()
        );
        let (_, err) = ask(
            "ada",
            &format!("{verified} channel_binding=require"),
            "wrong",
        );
        assert!(
            err.contains("password authentication failed for user \"ada\""),
            "{err}"
        );
        // Without TLS it is not bound, and still works.
        let (out, err) = ask("ada", "sslmode=disable", "a");
        assert!(out.contains("| f"), "{out}{err}");
        let (_, err) = ask("ada", "sslmode=disable channel_binding=require", "a");
        assert!(err.contains("channel binding required"), "{err}");
        // The user's certificate is enough; another's is not.
        let with = |name: &str| {
            format!(
                "{verified} sslcert={} sslkey={}",
                path(&format!("{name}.crt")),
                path(&format!("{name}.key"))
            )
        };
        restrict(dir, &["ada.key", "stranger.key"]);
        let (out, err) = ask("ada", &with("ada"), "");
        assert!(out.contains("ada"), "{out}{err}");
        let (_, err) = ask("ada", &with("stranger"), "a");
        assert!(
            err.contains("certificate authentication failed for user \"ada\""),
            "{err}"
        );
        // One that nobody signed gets no further than TLS.
        std::fs::create_dir(dir.join("other")).unwrap();
        authority(&dir.join("other"));
        certificate(&dir.join("other"), "forged", "ada", "");
        restrict(dir, &["other/forged.key"]);
        let forged = format!(
            "{verified} sslcert={} sslkey={}",
            path("other/forged.crt"),
            path("other/forged.key")
        );
        let (out, err) = ask("ada", &forged, "a");
        assert!(out.is_empty() && err.contains("alert"), "{out}{err}");
    });
}

/// libpq takes a private key only if nobody else may read it.
fn restrict(dir: &Path, files: &[&str]) {
    use std::os::unix::fs::PermissionsExt;
    for file in files {
        std::fs::set_permissions(dir.join(file), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn exchanged_certificates_are_taken_over_and_bad_ones_are_not() {
    run(async {
        let temp = tempfile::TempDir::new().unwrap();
        let dir = temp.path();
        authority(dir);
        certificate(
            dir,
            "server",
            "localhost",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        );
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let server = server_with(
            &[
                "--tls-cert",
                &path("server.crt"),
                "--tls-key",
                &path("server.key"),
            ],
            "CREATE USER ada PASSWORD 'a'",
        )
        .await;
        let ask = || {
            let verified = format!(
                "sslmode=verify-full channel_binding=require sslrootcert={}",
                path("ca.crt")
            );
            let (out, err) = psql(
                &url(&server, "ada", &verified),
                &[("PGPASSWORD", "a")],
                "SELECT 'in';\n",
            );
            (out.contains("in"), err)
        };
        assert!(ask().0);
        // A file that is none: the old certificate stays, and the log says which file is bad.
        std::fs::write(dir.join("server.crt"), "nonsense").unwrap();
        wait_for_log(&server, "server.crt: it holds no certificate in PEM").await;
        assert!(ask().0, "{}", ask().1);
        // Another authority and certificate: taken over without a restart.
        authority(dir);
        certificate(
            dir,
            "server",
            "localhost",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        );
        wait_for_log(&server, "TLS files were read anew").await;
        let start = std::time::Instant::now();
        while !ask().0 {
            assert!(start.elapsed() < Duration::from_secs(10), "{}", ask().1);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
}

#[test]
fn files_are_read_anew_when_a_superuser_asks() {
    run(async {
        let temp = tempfile::TempDir::new().unwrap();
        let dir = temp.path();
        authority(dir);
        certificate(
            dir,
            "server",
            "localhost",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        );
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let server = server_with(
            &[
                "--tls-cert",
                &path("server.crt"),
                "--tls-key",
                &path("server.key"),
            ],
            "CREATE USER root SUPERUSER PASSWORD 'r'; CREATE USER ada PASSWORD 'a'",
        )
        .await;
        let ask = |user: &str, password: &str| {
            let url = url(&server, user, "sslmode=require");
            psql(
                &url,
                &[("PGPASSWORD", password)],
                "SELECT pg_reload_conf();\n",
            )
        };
        let (_, refused) = ask("ada", "a");
        assert!(
            refused.contains("permission denied for function pg_reload_conf"),
            "{refused}"
        );
        assert!(!server.log().contains("TLS files were read anew"));
        // Nothing has changed: only who asks makes it look.
        let (answer, error) = ask("root", "r");
        assert!(answer.contains('t'), "{answer} {error}");
        wait_for_log(&server, "TLS files were read anew").await;
        // A session goes on over it.
        assert!(ask("root", "r").0.contains('t'));
    });
}

async fn wait_for_log(server: &Server, text: &str) {
    let start = std::time::Instant::now();
    while !server.log().contains(text) {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "no {text:?} in:\n{}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
