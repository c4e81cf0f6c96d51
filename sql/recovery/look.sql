-- Looking at a pipeline and its checkpoint. Nothing here changes anything.
-- Replace v by the name of a pipeline, or of a view or sink in it, and s by that of a stream it reads.

DIAGNOSE v;                               -- what is wrong, and the statement to run next (last row)
CHECK v;                                  -- what could be tuned, with the evidence
DIAGNOSE CHECKPOINT OF v;                 -- a row per part of the checkpoint
DIAGNOSE CHECKPOINT OF v AS JSON;
REPAIR CHECKPOINT OF v DRY RUN;           -- what REPAIR would do
VERIFY MATERIALIZED VIEW v SAMPLE 1000;   -- compute it again and compare a thousand rows
TEST SOURCE s;                            -- each step of the connection by itself
SUGGEST WATERMARK FOR s;                  -- how late its rows came
COMPARE SCHEMA OF v;                      -- source, stream, view and sink side by side

SELECT stream_name, status, exception, hint FROM streaming_queries;
SELECT event_at, event, object_name, detail FROM streaming_events ORDER BY event_at DESC LIMIT 20;
SELECT pipeline, location, batch_id, backed_up_at FROM streaming_backups ORDER BY backed_up_at DESC;
SELECT pipeline, fault, verdict, duration_ms FROM streaming_recovery_drills ORDER BY drilled_at DESC;
