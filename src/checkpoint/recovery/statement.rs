//! The statement that leads on from what made a pipeline stop.
//!
//! It is named only where it can do its work: a state is to be rebuilt where the offset log or the sources
//! give it again, an older copy accepted where it opens. What cannot is left to the statement after it.

use super::rebuild::{Rebuild, plan_rebuild, with_sinks};
use super::survey::Survey;
use crate::checkpoint::decide::Stop;
use crate::sql::names::{quote_identifier, quote_literal};

/// The statement that mends what made a pipeline stop; empty where only another build helps.
pub fn mending_statement(stop: &Stop, survey: &Survey) -> String {
    let name = quote_identifier(&survey.identity.pipeline_name);
    let location = &survey.location;
    let reset = format!("RESET CHECKPOINT OF {name};");
    match stop {
        Stop::Older { .. } => match survey.newest_usable() {
            Some(newest) => format!(
                "RESTORE CHECKPOINT OF {name} FROM {} AT BATCH {newest};",
                quote_literal(location)
            ),
            None => reset,
        },
        Stop::Missing { .. } => reset,
        Stop::Foreign { .. } => {
            let own = quote_literal(&format!("{location}.new"));
            format!("ALTER PIPELINE {name} SET (checkpoint_location = {own});")
        }
        Stop::NewerFormat(_) => String::new(),
        Stop::MetadataMissing
        | Stop::MetadataDamaged(_)
        | Stop::OffsetsDamaged { .. }
        | Stop::CommitsLost { .. } => format!("REPAIR CHECKPOINT OF {name};"),
        Stop::StateLost { .. } if can_rebuild(survey) => format!("REBUILD STATE OF {name};"),
        Stop::StateLost { .. } => format!("RESET CHECKPOINT OF {name} FROM EARLIEST;"),
    }
}

/// Whether the state can be computed again without a sink getting every row anew.
fn can_rebuild(survey: &Survey) -> bool {
    match plan_rebuild(survey) {
        Ok(Rebuild::Replay { .. }) => with_sinks(survey, None).is_ok(),
        Ok(Rebuild::Fill(commit)) => commit.entry.sinks.is_empty(),
        Err(_) => false,
    }
}
