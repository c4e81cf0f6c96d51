-- Beginning anew from what the sources still have. A sink gets every row again, as new batches.

RESET CHECKPOINT OF v FROM EARLIEST;
FLUSH;
VERIFY MATERIALIZED VIEW v;
