//! `CREATE` and `DROP RECOVERY SCHEDULE`.

use super::super::rowset::done;
use super::super::{Session, StatementResult};
use crate::catalog::changes::{CatalogChange, duplicate_schedule};
use crate::catalog::schedule::ScheduleDefinition;
use crate::engine::drilling::Fault;
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::CreateRecoverySchedule;

impl Session {
    pub(in crate::session) fn create_schedule(
        &mut self,
        create: &CreateRecoverySchedule,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE RECOVERY SCHEDULE";
        let CreateRecoverySchedule {
            name,
            target,
            faults,
            every,
            if_not_exists,
        } = create;
        if self.definitions().schedule(name).is_some() {
            if *if_not_exists {
                self.notice_as(
                    sqlstate::DUPLICATE_OBJECT,
                    format!("recovery schedule \"{name}\" already exists, skipping"),
                );
                return Ok(done(TAG));
            }
            return Err(duplicate_schedule(name));
        }
        // Said now rather than at the first drill; and kept, whatever becomes of the name that was said.
        let pipeline = self.pipeline_of_any(target)?;
        Fault::named(faults.as_deref())?;
        let schedule = ScheduleDefinition {
            target: pipeline,
            faults: faults.clone(),
            every: every.clone(),
            created_at_us: self.parts.clock.now_us(),
        };
        self.stage(CatalogChange::CreateSchedule(name.clone(), schedule), None)?;
        Ok(done(TAG))
    }

    pub(in crate::session) fn drop_schedules(
        &mut self,
        names: &[String],
        if_exists: bool,
    ) -> Result<StatementResult> {
        for name in names {
            if self.definitions().schedule(name).is_some() {
                self.stage(CatalogChange::DropSchedule(name.clone()), None)?;
                continue;
            }
            let text = format!("recovery schedule \"{name}\" does not exist");
            if !if_exists {
                return Err(Error::new(sqlstate::UNDEFINED_OBJECT, text)
                    .hint("SELECT schedule_name FROM streaming_recovery_schedules;"));
            }
            self.notice(format!("{text}, skipping"));
        }
        Ok(done("DROP RECOVERY SCHEDULE"))
    }
}
