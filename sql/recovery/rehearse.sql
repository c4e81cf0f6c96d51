-- Rehearsing: every fault is made on a copy, mended there, and the outcome compared with production.

BACKUP CHECKPOINT OF v;
RUN RECOVERY DRILL ON v WITH (fault = 'missing_commit, corrupt_state, lost_state');
RUN RECOVERY DRILL ON v;
CREATE RECOVERY SCHEDULE monthly ON v EVERY '1 month';
SELECT schedule_name, every, next_run_at FROM streaming_recovery_schedules;
SELECT fault, verdict, statements, duration_ms, detail FROM streaming_recovery_drills ORDER BY drilled_at;
