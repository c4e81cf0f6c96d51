//! Tests of persistence, conflicts, dependencies and the coupled commit.

use std::fs;
use std::sync::Arc;

use super::changes::{CatalogChange, CatalogTransaction};
use super::definition::*;
use super::*;
use crate::clock::ManualClock;
use crate::error::ErrorKind;

fn stream(oid: u32, name: &str) -> Arc<CatalogObject> {
    Arc::new(samples::stream(oid, name, &["a", "b"]))
}

fn view(oid: u32, name: &str, reads: &[&str]) -> Arc<CatalogObject> {
    let definition = Definition::View(ViewDefinition {
        query: "SELECT 1".to_owned(),
        columns: vec![samples::column("a")],
        depends_on: reads.iter().map(|r| (*r).to_owned()).collect(),
        versions: Default::default(),
        functions: Vec::new(),
    });
    Arc::new(samples::object(oid, name, definition))
}

fn open(dir: &std::path::Path) -> Result<Arc<Catalog>> {
    Catalog::open(&dir.join("catalog"), ManualClock::at(1))
}

fn creating(catalog: &Catalog, objects: &[Arc<CatalogObject>]) -> CatalogTransaction {
    let mut transaction = catalog.begin();
    for object in objects {
        transaction
            .stage(CatalogChange::Create(object.clone()))
            .unwrap();
    }
    transaction
}

#[tokio::test]
async fn definitions_survive_a_restart_and_oids_are_never_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    let first = catalog.allocate_oid();
    let lost = catalog.allocate_oid();
    assert_eq!((first, lost), (16384, 16385));
    catalog
        .commit(creating(&catalog, &[stream(first, "s")]))
        .await
        .unwrap();
    let reopened = open(dir.path()).unwrap();
    assert_eq!(*reopened.snapshot(), *catalog.snapshot());
    assert_eq!(reopened.snapshot().object("s").unwrap().columns().len(), 2);
    assert_eq!(reopened.allocate_oid(), 16386);
}

#[tokio::test]
async fn a_transaction_applies_as_one_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    let slow = creating(&catalog, &[stream(16384, "x"), stream(16385, "y")]);
    catalog
        .commit(creating(&catalog, &[stream(16386, "y")]))
        .await
        .unwrap();
    let error = catalog.commit(slow).await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::DUPLICATE_TABLE);
    assert!(catalog.snapshot().object("x").is_none());
    assert!(open(dir.path()).unwrap().snapshot().object("x").is_none());
}

#[tokio::test]
async fn a_view_over_a_relation_dropped_meanwhile_does_not_commit() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    catalog
        .commit(creating(&catalog, &[stream(16384, "s")]))
        .await
        .unwrap();
    let slow = creating(&catalog, &[view(16385, "v", &["s"])]);
    let mut drop = catalog.begin();
    drop.stage(CatalogChange::Drop {
        name: "s".to_owned(),
        oid: 16384,
    })
    .unwrap();
    catalog.commit(drop).await.unwrap();
    let error = catalog.commit(slow).await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::DEPENDENT_OBJECTS);
}

#[tokio::test]
async fn a_namesake_is_not_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    catalog
        .commit(creating(&catalog, &[stream(16384, "s")]))
        .await
        .unwrap();
    let drop_of = |oid| {
        let mut t = catalog.begin();
        t.stage(CatalogChange::Drop {
            name: "s".to_owned(),
            oid,
        })
        .map(|()| t)
    };
    let first = drop_of(16384).unwrap();
    let second = drop_of(16384).unwrap();
    catalog.commit(first).await.unwrap();
    catalog
        .commit(creating(&catalog, &[stream(16390, "s")]))
        .await
        .unwrap();
    let error = catalog.commit(second).await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::SERIALIZATION_FAILURE);
    assert_eq!(catalog.snapshot().object("s").unwrap().oid, 16390);
}

#[test]
fn dependents_come_leaves_first() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    let objects = [
        stream(1, "s"),
        stream(2, "other"),
        view(3, "v1", &["s"]),
        view(9, "v2", &["v1", "other"]),
        view(4, "v3", &["v2", "s"]),
        view(5, "apart", &["other"]),
    ];
    let snapshot = creating(&catalog, &objects).snapshot();
    let names = |list: Vec<Arc<CatalogObject>>| -> Vec<String> {
        list.iter().map(|o| o.name.clone()).collect()
    };
    assert_eq!(
        names(snapshot.dependents_in_drop_order("s")),
        ["v3", "v2", "v1"]
    );
    assert_eq!(
        names(snapshot.in_dependency_order()),
        ["s", "other", "v1", "apart", "v2", "v3"]
    );
}

#[tokio::test]
async fn a_coupled_commit_follows_the_log_after_a_crash() {
    for (is_in_log, expected) in [(true, 2), (false, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let catalog = open(dir.path()).unwrap();
        catalog
            .commit(creating(&catalog, &[stream(16384, "before")]))
            .await
            .unwrap();
        let crashing = catalog.clone();
        let transaction = creating(&catalog, &[stream(16385, "with_rows")]);
        // The log never answers: the process dies between the two writes.
        let commit = tokio::spawn(async move {
            crashing
                .commit_with_log(transaction, "m42", std::future::pending())
                .await
        });
        let path = dir.path().join("catalog/catalog.json");
        while !fs::read_to_string(&path)
            .unwrap()
            .contains("\"marker\":\"m42\"")
        {
            tokio::task::yield_now().await;
        }
        let after = open(dir.path()).unwrap();
        assert_eq!(after.snapshot().objects().count(), 1);
        after
            .resolve_pending(|marker| {
                assert_eq!(marker, "m42");
                is_in_log
            })
            .unwrap();
        assert_eq!(after.snapshot().objects().count(), expected);
        let settled = open(dir.path()).unwrap();
        settled
            .resolve_pending(|_| panic!("nothing is pending any more"))
            .unwrap();
        assert_eq!(settled.snapshot().objects().count(), expected);
        commit.abort();
    }
}

#[tokio::test]
async fn a_log_that_fails_takes_the_definitions_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    let transaction = creating(&catalog, &[stream(16384, "s")]);
    let error = catalog
        .commit_with_log(transaction, "m1", async {
            Err(Error::transient(sqlstate::DISK_FULL, "could not write"))
        })
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::DISK_FULL);
    assert_eq!(catalog.snapshot().objects().count(), 0);
    let reopened = open(dir.path()).unwrap();
    reopened
        .resolve_pending(|_| panic!("nothing is pending"))
        .unwrap();
    assert_eq!(reopened.snapshot().objects().count(), 0);
}

#[tokio::test]
async fn every_damaged_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    catalog
        .commit(creating(&catalog, &[stream(16384, "s")]))
        .await
        .unwrap();
    let path = dir.path().join("catalog/catalog.json");
    let whole = fs::read(&path).unwrap();
    for index in 0..whole.len() - 1 {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x04;
        fs::write(&path, &bytes).unwrap();
        let error = open(dir.path()).err();
        assert_eq!(
            error.map(|e| e.kind()),
            Some(ErrorKind::Damaged),
            "byte {index} flipped"
        );
    }
    for length in [0, 1, whole.len() / 2] {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(open(dir.path()).unwrap_err().kind(), ErrorKind::Damaged);
    }
}

#[test]
fn a_missing_file_beside_data_is_never_an_empty_catalog() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("checkpoints/p")).unwrap();
    assert_eq!(open(dir.path()).unwrap_err().kind(), ErrorKind::Damaged);
    assert!(!dir.path().join("catalog/catalog.json").exists());
}

#[tokio::test]
async fn secrets_are_sealed_and_bound_to_their_name() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    let mut transaction = catalog.begin();
    for name in ["one", "two"] {
        let record = catalog.seal_secret(name, "hunter2").unwrap();
        transaction
            .stage(CatalogChange::CreateSecret(name.to_owned(), record))
            .unwrap();
    }
    catalog.commit(transaction).await.unwrap();
    let text = fs::read_to_string(dir.path().join("catalog/catalog.json")).unwrap();
    assert!(!text.contains("hunter2"));
    assert!(!format!("{:?}", catalog.snapshot()).contains("sealed"));
    let mode = fs::metadata(dir.path().join("catalog/secret.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let reopened = open(dir.path()).unwrap();
    assert_eq!(reopened.reveal_secret("two").unwrap(), "hunter2");
    let snapshot = reopened.snapshot();
    let other = snapshot.secret("one").unwrap();
    assert!(reopened.cipher.open_record("two", other).is_err());

    fs::remove_file(dir.path().join("catalog/secret.key")).unwrap();
    assert_eq!(open(dir.path()).unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn savepoints_take_back_what_came_after() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path()).unwrap();
    let mut transaction = creating(&catalog, &[stream(1, "s")]);
    let mark = transaction.savepoint();
    transaction
        .stage(CatalogChange::Create(view(2, "v", &["s"])))
        .unwrap();
    transaction
        .stage(CatalogChange::Drop {
            name: "v".to_owned(),
            oid: 2,
        })
        .unwrap();
    transaction.rollback_to(&mark);
    assert!(transaction.snapshot().object("v").is_none());
    assert_eq!(transaction.changes().len(), 1);
}
