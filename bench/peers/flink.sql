-- Nexmark in Flink SQL, as Flink's own Nexmark has it where the meaning is that of ../nexmark.sql.
--
-- Differences of form only: event times are unique, so q18 and q19 leave out the further columns of
-- the order (Flink then removes duplicates instead of ranking); q5 compares with a maximum, since
-- Flink has no rank() over a stream; an average of bigint is a bigint in Flink, hence the casts.
-- q6 is not here: Flink has no OVER on a changelog, and Spark none at all.

-- q0: every bid as it is
SELECT auction, bidder, price, date_time, extra FROM bid;

-- q1: prices in another currency
SELECT auction, bidder, 0.908 * price AS price_eur, date_time, extra FROM bid;

-- q2: bids on some auctions
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;

-- q3: who sells in three states what is of category 10
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4: the average price at which auctions of a category close
SELECT category, AVG(CAST(final_price AS DOUBLE)) AS average_price
FROM (
  SELECT a.id, a.category, MAX(b.price) AS final_price
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category;

-- q5: the auctions with the most bids of the last ten seconds, every two seconds
SELECT counted.window_start, counted.auction, counted.bids
FROM (
  SELECT auction, COUNT(*) AS bids, window_start, window_end
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) counted
JOIN (
  SELECT MAX(bids) AS bids, window_start, window_end
  FROM (
    SELECT COUNT(*) AS bids, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  )
  GROUP BY window_start, window_end
) most
ON counted.window_start = most.window_start AND counted.window_end = most.window_end AND counted.bids = most.bids;

-- q7: the highest bids of each ten seconds
SELECT b.auction, b.bidder, b.price, b.date_time
FROM (
  SELECT auction, bidder, price, date_time, window_start, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
) b
JOIN (
  SELECT MAX(price) AS price, window_start, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) highest
ON b.window_start = highest.window_start AND b.window_end = highest.window_end AND b.price = highest.price;

-- q8: who came and put something up within the same ten seconds
SELECT p.id, p.name, p.window_start
FROM (
  SELECT id, name, window_start, window_end
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) p
JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end;

-- q9: the winning bid of each auction
SELECT id, item_name, description, initial_bid, reserve, opened, expires, seller, category, auction, bidder, price, date_time
FROM (
  SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
         b.auction, b.bidder, b.price, b.date_time,
         ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
)
WHERE place <= 1;

-- q10: bids as they are filed, by day and minute
SELECT auction, bidder, price, date_time, extra,
       DATE_FORMAT(date_time, 'yyyy-MM-dd') AS `day`, DATE_FORMAT(date_time, 'HH:mm') AS `minute`
FROM bid;

-- q11: bids of each session of a bidder
SELECT bidder, window_start AS session_start, window_end AS session_end, COUNT(*) AS bids
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- q12: bids of a bidder in each ten seconds
SELECT bidder, window_start, window_end, COUNT(*) AS bids
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- q14: bids in a range of prices, the time of day in words, and how often a letter occurs
SELECT auction, bidder, 0.908 * price AS price_eur,
       CASE
         WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'day'
         WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'night'
         ELSE 'other'
       END AS time_of_day,
       date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS letters_c
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15: bids, bidders and auctions of a day, by range of price
SELECT DATE_FORMAT(date_time, 'yyyy-MM-dd') AS `day`,
       COUNT(*) AS total_bids,
       COUNT(*) FILTER (WHERE price < 10000) AS low_bids,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       COUNT(*) FILTER (WHERE price >= 1000000) AS high_bids,
       COUNT(DISTINCT bidder) AS total_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
       COUNT(DISTINCT auction) AS total_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid
GROUP BY DATE_FORMAT(date_time, 'yyyy-MM-dd');

-- q16: the same of each channel, with the last minute
SELECT channel, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS `day`,
       MAX(DATE_FORMAT(date_time, 'HH:mm')) AS `minute`,
       COUNT(*) AS total_bids,
       COUNT(*) FILTER (WHERE price < 10000) AS low_bids,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       COUNT(*) FILTER (WHERE price >= 1000000) AS high_bids,
       COUNT(DISTINCT bidder) AS total_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
       COUNT(DISTINCT auction) AS total_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid
GROUP BY channel, DATE_FORMAT(date_time, 'yyyy-MM-dd');

-- q17: bids on an auction in a day
SELECT auction, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS `day`,
       COUNT(*) AS total_bids,
       COUNT(*) FILTER (WHERE price < 10000) AS low_bids,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       COUNT(*) FILTER (WHERE price >= 1000000) AS high_bids,
       MIN(price) AS lowest, MAX(price) AS highest, AVG(CAST(price AS DOUBLE)) AS average, SUM(price) AS total
FROM bid
GROUP BY auction, DATE_FORMAT(date_time, 'yyyy-MM-dd');

-- q18: the last bid of a bidder on an auction
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid
)
WHERE place <= 1;

-- q19: the ten highest bids on an auction
SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid
)
WHERE place <= 10;

-- q20: bids with their auction, of category 10
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_at, b.extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
       a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- q21: the number of a bid's channel
SELECT auction, bidder, price, channel,
       CASE LOWER(channel)
         WHEN 'apple' THEN '0'
         WHEN 'google' THEN '1'
         WHEN 'facebook' THEN '2'
         WHEN 'baidu' THEN '3'
         ELSE REGEXP_EXTRACT(url, '[&?]channel_id=([^&]*)', 1)
       END AS channel_id
FROM bid
WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
   OR REGEXP_EXTRACT(url, '[&?]channel_id=([^&]*)', 1) IS NOT NULL;

-- q22: the first three folders of a link
SELECT auction, bidder, price, channel,
       SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid;
