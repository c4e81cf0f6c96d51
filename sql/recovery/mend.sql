-- Mending a checkpoint. What is damaged is moved to <location>.archive, never deleted.
-- DIAGNOSE v names which of these helps; each may be said again at any time.

REPAIR CHECKPOINT OF v;                   -- writes anew what the files beside it prove
REBUILD STATE OF v;                       -- computes the state again, batch by batch
VERIFY MATERIALIZED VIEW v;               -- and proves it
REPLAY DEAD LETTERS OF s;                 -- after a fix of the stream: records that could not be read
