-- A Kafka topic of JSON, at most 100,000 messages a batch, and the closed windows written to Parquet files.

CREATE STREAM clicks (
  user_id BIGINT NOT NULL, url TEXT, event_timestamp TIMESTAMPTZ,
  kafka_partition INTEGER METADATA FROM 'partition',
  kafka_offset BIGINT METADATA FROM 'offset',
  WATERMARK FOR event_timestamp AS event_timestamp - INTERVAL '10 minutes'
) WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'events.clicks', format = 'json',
        starting_offsets = 'earliest', max_offsets_per_trigger = 100000,
        "kafka.max.partition.fetch.bytes" = 1048576);

CREATE MATERIALIZED VIEW clicks_per_user WITH (trigger = '10 seconds') AS
  SELECT window_start, window_end, user_id, count(*) AS clicks
  FROM TUMBLE(clicks, event_timestamp, INTERVAL '10 minutes')
  GROUP BY window_start, window_end, user_id
  EMIT ON WINDOW CLOSE;

CREATE SINK clicks_archive FROM clicks_per_user
  WITH (connector = 'files', location = 'archive', format = 'parquet', mode = 'append');
