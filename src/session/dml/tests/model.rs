//! Random transactions against a plain model, over restarts.

use std::collections::BTreeMap;

use super::{Database, texts};
use crate::error::sqlstate;
use crate::log::simulation::Random;
use crate::session::dml::Transaction;

/// The plain model: what `accounts` holds, and how often each row is in `bag`.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    accounts: BTreeMap<i64, (Option<String>, i64)>,
    bag: BTreeMap<(i64, String), u64>,
}

impl Model {
    /// A random statement, and what it does here; `None`: it must fail.
    fn step(&self, random: &mut Random) -> (String, Option<Self>) {
        let mut after = self.clone();
        let id = random.below(12) as i64;
        let other = random.below(12) as i64;
        let amount = random.below(50) as i64;
        let sql = match random.below(9) {
            0 => {
                let ids = [id, other];
                let is_taken = id == other || ids.iter().any(|i| self.accounts.contains_key(i));
                for i in ids {
                    after.accounts.insert(i, (None, amount));
                }
                let sql = format!(
                    "INSERT INTO accounts (id, name, balance) VALUES ({id}, NULL, {amount}), ({other}, NULL, {amount})"
                );
                return (sql, (!is_taken).then_some(after));
            }
            1 => {
                let old = after.accounts.get(&id).map_or(0, |a| a.1);
                let name = after
                    .accounts
                    .get(&id)
                    .map_or(Some("new".to_owned()), |_| Some(format!("u{amount}")));
                after.accounts.insert(id, (name, old + amount));
                format!(
                    "INSERT INTO accounts (id, name, balance) VALUES ({id}, 'new', {amount}) ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + excluded.balance, name = 'u{amount}'"
                )
            }
            2 => {
                for i in [id, other] {
                    after
                        .accounts
                        .entry(i)
                        .or_insert((Some("quiet".to_owned()), 0));
                }
                format!(
                    "INSERT INTO accounts (id, name) VALUES ({id}, 'quiet'), ({other}, 'quiet') ON CONFLICT DO NOTHING"
                )
            }
            3 => {
                let moved: Vec<_> = self.accounts.iter().filter(|(i, _)| **i >= id).collect();
                for (i, _) in &moved {
                    after.accounts.remove(i);
                }
                for (i, account) in moved {
                    after.accounts.insert(i + 1, account.clone());
                }
                format!("UPDATE accounts SET id = id + 1 WHERE id >= {id}")
            }
            4 => {
                after.accounts.retain(|i, _| *i % 3 != id % 3);
                format!("DELETE FROM accounts WHERE id % 3 = {}", id % 3)
            }
            5 => {
                let key = (id % 4, format!("v{}", other % 3));
                *after.bag.entry(key).or_default() += 2;
                format!(
                    "INSERT INTO bag VALUES ({0}, 'v{1}'), ({0}, 'v{1}')",
                    id % 4,
                    other % 3
                )
            }
            6 => {
                let moved: Vec<_> = self.bag.iter().filter(|((k, _), _)| *k == id % 4).collect();
                for (key, _) in &moved {
                    after.bag.remove(*key);
                }
                for ((_, v), count) in moved {
                    *after.bag.entry((other % 4, v.clone())).or_default() += count;
                }
                format!("UPDATE bag SET k = {} WHERE k = {}", other % 4, id % 4)
            }
            7 => {
                after.bag.retain(|(k, v), _| !(*k == id % 4 && v == "v1"));
                format!("DELETE FROM bag WHERE k = {} AND v = 'v1'", id % 4)
            }
            _ => {
                for (i, account) in &mut after.accounts {
                    let total: u64 = self
                        .bag
                        .iter()
                        .filter(|((k, _), _)| k == i)
                        .map(|(_, n)| n)
                        .sum();
                    account.1 += total as i64;
                }
                "UPDATE accounts SET balance = balance + (SELECT count(*) FROM bag WHERE bag.k = accounts.id)".to_owned()
            }
        };
        (sql, Some(after))
    }

    fn lines(&self) -> (Vec<String>, Vec<String>) {
        let accounts = self.accounts.iter().map(|(id, (name, balance))| {
            format!("{id}|{}|{balance}.00", name.as_deref().unwrap_or("∅"))
        });
        let bag = self
            .bag
            .iter()
            .flat_map(|((k, v), count)| vec![format!("{k}|{v}"); *count as usize]);
        (accounts.collect(), bag.collect())
    }
}

async fn check(database: &Database, transaction: &mut Transaction, model: &Model, what: &str) {
    let (accounts, bag) = model.lines();
    let sql = "SELECT id, name, balance FROM accounts ORDER BY id";
    let found = texts(database.run_in(transaction, sql, &[]).await.unwrap());
    assert_eq!(found, accounts, "accounts, {what}");
    let sql = "SELECT k, v FROM bag ORDER BY k, v";
    let found = texts(database.run_in(transaction, sql, &[]).await.unwrap());
    assert_eq!(found, bag, "bag, {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_transactions_match_the_model_over_restarts() {
    for seed in 1..=6 {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut database = Database::open(dir.path());
        let mut committed = Model::default();
        for round in 0..25 {
            let mut transaction = Transaction::begin(&database.store).unwrap();
            let mut model = committed.clone();
            let mut saved = None;
            for _ in 0..random.below(7) {
                if random.one_in(4) {
                    saved = Some((transaction.mark(), model.clone()));
                }
                if random.one_in(5)
                    && let Some((mark, earlier)) = &saved
                {
                    transaction.rollback_to(mark).unwrap();
                    model = earlier.clone();
                }
                let (sql, after) = model.step(&mut random);
                let what = format!("seed {seed}, round {round}: {sql}");
                let result = database.run_in(&mut transaction, &sql, &[]).await;
                match after {
                    Some(after) => {
                        result.unwrap_or_else(|e| panic!("{what}: {e}"));
                        model = after;
                    }
                    None => {
                        let error = result.expect_err(&what);
                        assert_eq!(error.sqlstate(), sqlstate::UNIQUE_VIOLATION, "{what}");
                    }
                }
                check(&database, &mut transaction, &model, &what).await;
            }
            if random.one_in(3) {
                drop(transaction);
            } else {
                transaction.commit().await.unwrap();
                committed = model;
            }
            if random.one_in(6) {
                drop(database);
                if random.one_in(2) {
                    std::fs::remove_dir_all(dir.path().join("log/tables")).ok();
                }
                database = Database::open(dir.path());
            }
            let mut reader = Transaction::begin(&database.store).unwrap();
            check(
                &database,
                &mut reader,
                &committed,
                &format!("seed {seed}, round {round}"),
            )
            .await;
        }
    }
}
