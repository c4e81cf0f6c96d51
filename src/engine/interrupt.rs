//! Work that commands may interrupt: opening, a batch, waiting for a commit.
//!
//! Commands gather while it runs; only those that end or stop the pipeline cut it short, each after
//! its own time. Acting on them is the pipeline's matter.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::shared::Command;

/// How long a batch that runs may go on at shutdown before it is given up.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// The same when the pipeline is dropped: what the batch would commit goes with it.
const DROP_GRACE: Duration = Duration::from_millis(500);

/// The same for a statement that needs the checkpoint: the batch runs again afterwards.
const RECOVERY_GRACE: Duration = Duration::from_secs(5);

/// What became of something that commands may interrupt.
pub(super) enum Interrupted<T> {
    Done(T),
    Abandoned,
}

/// How long a command leaves a running batch to end; `None`: as long as it takes.
fn grace(command: &Command) -> Option<Duration> {
    match command {
        Command::Stop(within, _) => Some(*within),
        Command::Recover(work, _) if !work.only_looks() => Some(RECOVERY_GRACE),
        Command::Shutdown(true, _) => Some(DROP_GRACE),
        Command::Shutdown(false, _) => Some(SHUTDOWN_GRACE),
        _ => None,
    }
}

/// Runs `work` while commands queue up; a STOP or a shutdown among them sets a deadline.
pub(super) async fn interruptible<T>(
    work: impl Future<Output = T>,
    commands: &mut UnboundedReceiver<Command>,
    queue: &mut VecDeque<Command>,
) -> Interrupted<T> {
    tokio::pin!(work);
    let far = Duration::from_secs(365 * 24 * 3600);
    let soonest = queue.iter().filter_map(grace).min();
    let deadline = tokio::time::sleep(soonest.unwrap_or(far));
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Interrupted::Done(done),
            command = commands.recv() => {
                let Some(command) = command else { return Interrupted::Abandoned };
                if matches!(command, Command::Stalled) {
                    return Interrupted::Abandoned;
                }
                if let Some(within) = grace(&command) {
                    deadline.as_mut().reset(tokio::time::Instant::now() + within);
                }
                queue.push_back(command);
            }
            () = &mut deadline => return Interrupted::Abandoned,
        }
    }
}
