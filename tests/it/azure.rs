//! Checkpoints on Azure's blob store, as its emulator plays it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::s3::{
    is_fenced_retained_and_resumed, is_mended_reset_and_restored, restores_an_emptied_local_state,
};
use crate::tools::{Process, free_port, is_there, tools_dir, wait_for_port};

/// The account that every emulator has, and its key, which is in Azure's documentation.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const BASE: &str = "az://tidemill";

/// Makes a container: a signed request without a body.
const MAKE_CONTAINER: &str = r#"
import base64, email.utils, hashlib, hmac, sys, urllib.request
endpoint, account, key = sys.argv[1:]
date = email.utils.formatdate(usegmt=True)
headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
text = "PUT" + "\n" * 12 + f"{headers}\n/{account}/{account}/tidemill\nrestype:container"
signed = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
request = urllib.request.Request(f"{endpoint}/tidemill?restype=container", method="PUT")
request.add_header("x-ms-date", date)
request.add_header("x-ms-version", "2021-08-06")
request.add_header("Authorization", f"SharedKey {account}:{base64.b64encode(signed).decode()}")
urllib.request.urlopen(request)
"#;

/// A running emulator with a container `tidemill`; it ends when dropped.
struct Emulator {
    endpoint: String,
    _process: Process,
    _folder: TempDir,
}

impl Emulator {
    /// `None`: it cannot be had here.
    fn start() -> Option<Self> {
        let program = tools_dir().join("azurite/node_modules/.bin/azurite-blob");
        if !is_there(&program, "the Azure emulator (azurite)") {
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let mut command = Command::new(program);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        command.args([
            "--silent",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--location",
        ]);
        let process = Process::spawn(command.arg(folder.path()));
        wait_for_port(port, Duration::from_secs(60));
        let endpoint = format!("http://127.0.0.1:{port}/{ACCOUNT}");
        let made = Command::new("python3")
            .args(["-c", MAKE_CONTAINER, &endpoint, ACCOUNT, KEY])
            .status()
            .expect("python3 runs");
        assert!(made.success(), "the container is made");
        Some(Self {
            endpoint,
            _process: process,
            _folder: folder,
        })
    }

    fn environment(&self) -> [(&str, &str); 4] {
        [
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
            ("AZURE_STORAGE_ENDPOINT", &self.endpoint),
            ("AZURE_ALLOW_HTTP", "true"),
        ]
    }

    fn options(&self) -> BTreeMap<String, String> {
        let settings = self.environment();
        let settings = settings.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        settings.into()
    }
}

#[test]
fn a_checkpoint_on_azure_restores_an_emptied_local_state() {
    if let Some(store) = Emulator::start() {
        restores_an_emptied_local_state(BASE, &store.environment());
    }
}

#[test]
fn a_checkpoint_on_azure_is_mended_reset_and_restored() {
    if let Some(store) = Emulator::start() {
        is_mended_reset_and_restored(BASE, &store.environment(), &store.options());
    }
}

#[test]
fn a_checkpoint_on_azure_is_fenced_retained_and_resumed() {
    if let Some(store) = Emulator::start() {
        is_fenced_retained_and_resumed(BASE, store.options());
    }
}
