-- The checkpointing guide's word count: lines from a socket, counted by word, kept over kill -9.
-- In another terminal: nc -lk 9999

CREATE STREAM lines (value TEXT) WITH (connector = 'socket', host = 'localhost', port = 9999);

CREATE MATERIALIZED VIEW word_counts AS
  SELECT word, count(*) AS count
  FROM (SELECT unnest(string_to_array(value, ' ')) AS word FROM lines) AS words
  GROUP BY word;

-- SELECT * FROM word_counts ORDER BY count DESC, word;
