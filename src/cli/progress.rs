//! Bringing every view to the end of what is there, with a bar on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::print;
use crate::Database;
use crate::error::{Error, Result};

const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Refreshes every materialized view; views of one pipeline advance together, so the second one
/// of a pipeline finds nothing left to do.
pub(super) async fn refresh_all(database: &Database) -> Result<()> {
    let views: Vec<String> = database
        .engine_status()
        .queries
        .into_iter()
        .map(|query| query.stream_name)
        .collect();
    if views.is_empty() {
        return Ok(());
    }
    let bar = bar();
    let work = async {
        for view in &views {
            let quoted = view.replace('"', "\"\"");
            database
                .execute(&format!("REFRESH MATERIALIZED VIEW \"{quoted}\""))
                .await?;
        }
        Ok::<_, Error>(())
    };
    tokio::pin!(work);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            () = tokio::time::sleep(REDRAW_EVERY) => show(&bar, database),
        }
    };
    bar.finish_and_clear();
    result
}

fn bar() -> ProgressBar {
    if !print::is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(100);
    let style = ProgressStyle::with_template("{bar:40} {pos:>3}% {msg} {elapsed}")
        .expect("the template is a constant that parses");
    bar.set_style(style);
    bar
}

fn show(bar: &ProgressBar, database: &Database) {
    let status = database.engine_status();
    let done: u64 = status.sources.iter().map(|s| s.num_input_rows).sum();
    let left: u64 = status.sources.iter().filter_map(|s| s.backlog_rows).sum();
    let percent = (done * 100).checked_div(done + left).unwrap_or(0);
    bar.set_position(percent);
    bar.set_message(format!("{done} rows"));
}
