//! Where the checkpoints of a run lie, and damage made on what lies there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidemill::checkpoint::CheckpointLocation;
use tidemill::checkpoint::blob::BlobStore;

use crate::harness::Server;
use crate::s3::{environment, store_options};

use super::shapes;

/// A disk, or an S3 store at an address.
#[derive(Clone)]
pub(super) enum Place {
    Disk,
    Store(String),
}

impl Place {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Store(_) => "S3",
        }
    }

    /// A server that reaches it.
    pub(super) fn server(&self, arguments: &[&str]) -> Server {
        match self {
            Self::Disk => Server::start_with(arguments, &[]),
            Self::Store(endpoint) => Server::start_with(arguments, &environment(endpoint)),
        }
    }

    /// Options of a view whose checkpoint lies there; `prefix` is of one run.
    pub(super) fn options(&self, prefix: uuid::Uuid, name: &str) -> String {
        match self {
            Self::Disk => String::new(),
            Self::Store(_) => {
                format!(", checkpoint_location = 's3://tidemill/{prefix}/{name}'")
            }
        }
    }

    /// Stops a server, damages the checkpoint of each shape and starts it again.
    pub(super) async fn damage(&self, server: &mut Server, damage: fn(&Path)) {
        self.while_down(server, damage, |_| {}).await;
    }

    /// As [`Self::damage`], with something else done while the server is down.
    pub(super) async fn while_down(
        &self,
        server: &mut Server,
        damage: fn(&Path),
        also: impl FnOnce(&Path),
    ) {
        let mut at = BTreeMap::new();
        for name in shapes::names() {
            let sql =
                format!("SELECT location FROM streaming_checkpoints WHERE pipeline = '{name}'");
            at.insert(name, server.value(&sql).await);
        }
        server.terminate();
        for (name, location) in at {
            match self {
                Self::Disk => damage(Path::new(&location)),
                Self::Store(endpoint) => {
                    damage_store(server, endpoint, name, &location, damage).await;
                }
            }
        }
        also(server.dir());
        server.restart();
    }
}

/// The files are fetched, damaged on the disk and put back.
async fn damage_store(
    server: &Server,
    endpoint: &str,
    name: &str,
    location: &str,
    damage: fn(&Path),
) {
    let store = CheckpointLocation::store(location, &store_options(endpoint)).expect("a store");
    let folder = server.dir().join("fetched");
    std::fs::remove_dir_all(&folder).ok();
    copy_folder(
        &server.data_dir().join("checkpoints/twin"),
        &folder.join("twin"),
    );
    let here = folder.join(name);
    let before = fetch(&store, &here).await;
    damage(&here);
    let after = files(&here);
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    store
        .delete(&gone.cloned().collect::<Vec<_>>())
        .await
        .expect("deleted");
    let changed = after
        .into_iter()
        .filter(|(path, bytes)| before.get(path) != Some(bytes));
    let changed = changed.map(|(path, bytes)| (path, bytes.into())).collect();
    store.put_all(changed).await.expect("put back");
}

async fn fetch(store: &Arc<dyn BlobStore>, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut fetched = BTreeMap::new();
    for info in store.list("").await.expect("a listing") {
        let blob = store
            .get(&info.path)
            .await
            .expect("read")
            .expect("it is listed");
        let path = folder.join(&info.path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, &blob.bytes).expect("written");
        fetched.insert(info.path, blob.bytes.to_vec());
    }
    fetched
}

/// All files below a folder.
pub(super) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).expect("below it").to_string_lossy();
                found.insert(name.into_owned(), std::fs::read(&path).expect("a file"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

fn copy_folder(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let path = to.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("written");
    }
}
