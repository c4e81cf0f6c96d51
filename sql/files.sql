-- A folder of JSON lines: new files are found as they come, each batch takes an exact list of them.

CREATE STREAM events (
  user_id BIGINT NOT NULL, url TEXT, amount DOUBLE PRECISION, event_timestamp TIMESTAMPTZ,
  file TEXT METADATA FROM 'file_path',
  WATERMARK FOR event_timestamp AS event_timestamp - INTERVAL '1 hour'
) WITH (connector = 'files', location = 'events', format = 'json', max_files_per_trigger = 100);

CREATE MATERIALIZED VIEW hourly AS
  SELECT window_start, url, count(*) AS views, sum(amount) AS amount
  FROM TUMBLE(events, event_timestamp, INTERVAL '1 hour')
  GROUP BY window_start, window_end, url;

-- What could not be decoded is kept, with file and line.
-- SELECT * FROM streaming_dead_letters;
