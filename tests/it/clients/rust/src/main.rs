//! tokio-postgres and sqlx: binary parameters and results, types looked up in the catalog, COPY in
//! binary, portals, pipelines, cancels, notifications, migrations. A line per step, as the other
//! clients print them.

mod pool;
mod wire;

use std::fmt::Debug;

/// Prints what a step gives.
pub fn show(name: &str, value: impl Debug) {
    println!("{name}: {value:?}");
}

/// Prints what a step gives, or the SQLSTATE and message of its refusal.
pub fn check<T: Debug>(name: &str, result: Result<T, impl Told>) {
    match result {
        Ok(value) => show(name, value),
        Err(error) => println!("{name}: error {}", error.told()),
    }
}

/// An error by its SQLSTATE and message.
pub trait Told {
    fn told(&self) -> String;
}

impl Told for tokio_postgres::Error {
    fn told(&self) -> String {
        match self.as_db_error() {
            Some(error) => format!("{} {}", error.code().code(), error.message()),
            None => format!("driver {self}"),
        }
    }
}

impl Told for sqlx::Error {
    fn told(&self) -> String {
        match self.as_database_error() {
            Some(error) => format!("{} {}", error.code().unwrap_or_default(), error.message()),
            None => format!("driver {self}"),
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let of = |name: &str| std::env::var(name).expect("set by the test");
    let (host, port, user, database) = (of("PGHOST"), of("PGPORT"), of("PGUSER"), of("PGDATABASE"));
    wire::session(&format!("host={host} port={port} user={user} dbname={database}")).await;
    pool::session(&format!("postgres://{user}@{host}:{port}/{database}")).await;
}
