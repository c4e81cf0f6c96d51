-- Nexmark, q0 to q22, in Tidemill's dialect, over the streams person, auction and bid.
--
-- What each query asks is the benchmark's (Tucker, Tufte, Papadimos, Maier, 2002, and the queries that
-- stream processors have added since); prices are in cents. Windows are of event time, also
-- where others take the clock (q12): an answer is then the same whenever it is computed.
-- `tidemill bench nexmark` and the test `nexmark` read this file; a line "-- qN: what it asks" begins a query.

-- q0: every bid as it is
SELECT auction, bidder, price, date_time, extra FROM bid;

-- q1: prices in another currency
SELECT auction, bidder, 0.908 * price AS price_eur, date_time, extra FROM bid;

-- q2: bids on some auctions
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- q3: who sells in three states what is of category 10
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4: the average price at which auctions of a category close
SELECT category, avg(final_price) AS average_price
FROM (
  SELECT a.id, a.category, max(b.price) AS final_price
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
) closed
GROUP BY category;

-- q5: the auctions with the most bids of the last ten seconds, every two seconds
SELECT window_start, auction, bids
FROM (
  SELECT window_start, auction, bids, rank() OVER (PARTITION BY window_start ORDER BY bids DESC) AS place
  FROM (
    SELECT window_start, auction, count(*) AS bids
    FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
    GROUP BY window_start, window_end, auction
  ) counted
) ranked
WHERE place = 1;

-- q6: the average price of a seller's last ten auctions
SELECT seller, id, avg(price) OVER (
         PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
       ) AS average_price
FROM (
  SELECT a.seller, a.id, b.price, b.date_time,
         row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
) won
WHERE place = 1;

-- q7: the highest bids of each ten seconds
SELECT b.auction, b.bidder, b.price, b.date_time
FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') b
JOIN (
  SELECT window_start, max(price) AS price
  FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
  GROUP BY window_start, window_end
) highest ON b.window_start = highest.window_start AND b.price = highest.price;

-- q8: who came and put something up within the same ten seconds
SELECT p.id, p.name, p.window_start
FROM (
  SELECT id, name, window_start, window_end FROM TUMBLE(person, date_time, INTERVAL '10 seconds')
  GROUP BY id, name, window_start, window_end
) p
JOIN (
  SELECT seller, window_start, window_end FROM TUMBLE(auction, date_time, INTERVAL '10 seconds')
  GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.window_start = a.window_start;

-- q9: the winning bid of each auction
SELECT id, item_name, description, initial_bid, reserve, opened, expires, seller, category, auction, bidder, price, date_time
FROM (
  SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
         b.auction, b.bidder, b.price, b.date_time,
         row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
) won
WHERE place = 1;

-- q10: bids as they are filed, by day and minute
SELECT auction, bidder, price, date_time, extra,
       to_char(date_time, 'YYYY-MM-DD') AS day, to_char(date_time, 'HH24:MI') AS minute
FROM bid;

-- q11: bids of each session of a bidder
SELECT bidder, session_window.start AS session_start, session_window.end AS session_end, count(*) AS bids
FROM bid
GROUP BY session_window(date_time, '10 seconds'), bidder;

-- q12: bids of a bidder in each ten seconds
SELECT bidder, window_start, window_end, count(*) AS bids
FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end;

-- q13: bids with what a table says of their auction
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input FOR SYSTEM_TIME AS OF b.date_time AS s ON b.auction % 10000 = s.key;

-- q14: bids in a range of prices, the time of day in words, and how often a letter occurs
SELECT auction, bidder, 0.908 * price AS price_eur,
       CASE
         WHEN extract(hour FROM date_time) BETWEEN 8 AND 18 THEN 'day'
         WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'night'
         ELSE 'other'
       END AS time_of_day,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS letters_c
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15: bids, bidders and auctions of a day, by range of price
SELECT to_char(date_time, 'YYYY-MM-DD') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS low_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       count(*) FILTER (WHERE price >= 1000000) AS high_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid
GROUP BY to_char(date_time, 'YYYY-MM-DD');

-- q16: the same of each channel, with the last minute
SELECT channel, to_char(date_time, 'YYYY-MM-DD') AS day,
       max(to_char(date_time, 'HH24:MI')) AS minute,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS low_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       count(*) FILTER (WHERE price >= 1000000) AS high_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid
GROUP BY channel, to_char(date_time, 'YYYY-MM-DD');

-- q17: bids on an auction in a day
SELECT auction, to_char(date_time, 'YYYY-MM-DD') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS low_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       count(*) FILTER (WHERE price >= 1000000) AS high_bids,
       min(price) AS lowest, max(price) AS highest, avg(price) AS average, sum(price) AS total
FROM bid
GROUP BY auction, to_char(date_time, 'YYYY-MM-DD');

-- q18: the last bid of a bidder on an auction
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
  SELECT auction, bidder, price, channel, url, date_time, extra,
         row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, price, extra) AS place
  FROM bid
) latest
WHERE place = 1;

-- q19: the ten highest bids on an auction
SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (
  SELECT auction, bidder, price, channel, url, date_time, extra,
         row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder, extra) AS place
  FROM bid
) ranked
WHERE place <= 10;

-- q20: bids with their auction, of category 10
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_at, b.extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
       a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- q21: the number of a bid's channel
SELECT auction, bidder, price, channel,
       CASE lower(channel)
         WHEN 'apple' THEN '0'
         WHEN 'google' THEN '1'
         WHEN 'facebook' THEN '2'
         WHEN 'baidu' THEN '3'
         ELSE substring(url FROM '[&?]channel_id=([^&]*)')
       END AS channel_id
FROM bid
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR substring(url FROM '[&?]channel_id=([^&]*)') IS NOT NULL;

-- q22: the first three folders of a link
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;
