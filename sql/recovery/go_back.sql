-- Going back to a batch: those after it run again exactly as they were.

REWIND v TO BATCH 0;
FLUSH;
VERIFY MATERIALIZED VIEW v;
