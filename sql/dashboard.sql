-- What a dashboard asks. Each runs as it stands in psql and as a panel of a SQL data source.

-- Batch duration trend of one view.
SELECT
    batch_id,
    trigger_execution_ms,
    add_batch_ms,
    num_input_rows,
    ROUND(num_input_rows / (add_batch_ms / 1000.0), 0) AS rows_per_second
FROM streaming_metrics_log
WHERE stream_name = '${stream_name}'
ORDER BY batch_id DESC
LIMIT 100;

-- What runs, what waits, what is wrong and the statement that helps.
SELECT stream_name, status, last_batch_id, message, hint FROM streaming_queries;

-- Lag of every source.
SELECT pipeline, source_name, backlog_rows, input_rows_per_second, last_data_at, last_error FROM streaming_sources;

-- Where state grows.
SELECT stream_name, operator_name, num_rows_total, num_rows_updated, num_rows_removed, memory_bytes
FROM streaming_state_operators ORDER BY num_rows_total DESC;
