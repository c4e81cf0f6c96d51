-- Nexmark in Spark SQL over streaming views, with the meaning of ../nexmark.sql.
--
-- In brackets: the output mode; in mode "update" also the columns of which the last row counts, in
-- mode "append" with windows also the column up to which windows are closed when the input ends.
-- q18 is an aggregate, since Spark has no row_number() over a stream; q5 compares with a maximum.
-- What Spark refuses (q4, q9, q15, q16, q19) stands as one would write it, so that its error is seen.

-- q0 (append): every bid as it is
SELECT auction, bidder, price, date_time, extra FROM bid;

-- q1 (append): prices in another currency
SELECT auction, bidder, 0.908 * price AS price_eur, date_time, extra FROM bid;

-- q2 (append): bids on some auctions
SELECT auction, price FROM bid WHERE mod(auction, 123) = 0;

-- q3 (append): who sells in three states what is of category 10
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4 (update by category): the average price at which auctions of a category close
SELECT category, avg(final_price) AS average_price
FROM (
  SELECT a.id, a.category, max(b.price) AS final_price
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category;

-- q5 (append, closed by window_start): the auctions with the most bids of the last ten seconds, every two seconds
WITH counted AS (
  SELECT auction, count(*) AS bids, window
  FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
), most AS (
  SELECT max(bids) AS bids, window FROM counted GROUP BY window
)
SELECT counted.window.start AS window_start, counted.auction, counted.bids
FROM counted JOIN most ON counted.window = most.window AND counted.bids = most.bids;

-- q7 (append, closed by date_time): the highest bids of each ten seconds
SELECT b.auction, b.bidder, b.price, b.date_time
FROM (SELECT auction, bidder, price, date_time, window(date_time, '10 seconds') AS w FROM bid) b
JOIN (SELECT max(price) AS price, window AS w FROM bid GROUP BY window(date_time, '10 seconds')) highest
ON b.w = highest.w AND b.price = highest.price;

-- q8 (append, closed by window_start): who came and put something up within the same ten seconds
SELECT p.id, p.name, p.w.start AS window_start
FROM (SELECT id, name, window AS w FROM person GROUP BY id, name, window(date_time, '10 seconds')) p
JOIN (SELECT seller, window AS w FROM auction GROUP BY seller, window(date_time, '10 seconds')) a
ON p.id = a.seller AND p.w = a.w;

-- q9 (append): the winning bid of each auction
SELECT id, item_name, description, initial_bid, reserve, opened, expires, seller, category, auction, bidder, price, date_time
FROM (
  SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
         b.auction, b.bidder, b.price, b.date_time,
         row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
  FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
)
WHERE place <= 1;

-- q10 (append): bids as they are filed, by day and minute
SELECT auction, bidder, price, date_time, extra,
       date_format(date_time, 'yyyy-MM-dd') AS day, date_format(date_time, 'HH:mm') AS minute
FROM bid;

-- q11 (append, closed by session_end): bids of each session of a bidder
SELECT bidder, session_window.start AS session_start, session_window.end AS session_end, count(*) AS bids
FROM bid
GROUP BY bidder, session_window(date_time, '10 seconds');

-- q12 (update by bidder, window_start): bids of a bidder in each ten seconds
SELECT bidder, window.start AS window_start, window.end AS window_end, count(*) AS bids
FROM bid
GROUP BY bidder, window(date_time, '10 seconds');

-- q14 (append): bids in a range of prices, the time of day in words, and how often a letter occurs
SELECT auction, bidder, 0.908 * price AS price_eur,
       CASE
         WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'day'
         WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'night'
         ELSE 'other'
       END AS time_of_day,
       date_time, extra, char_length(extra) - char_length(replace(extra, 'c', '')) AS letters_c
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15 (update by day): bids, bidders and auctions of a day, by range of price
SELECT date_format(date_time, 'yyyy-MM-dd') AS day,
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
GROUP BY date_format(date_time, 'yyyy-MM-dd');

-- q16 (update by channel, day): the same of each channel, with the last minute
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day,
       max(date_format(date_time, 'HH:mm')) AS minute,
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
GROUP BY channel, date_format(date_time, 'yyyy-MM-dd');

-- q17 (update by auction, day): bids on an auction in a day
SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS low_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
       count(*) FILTER (WHERE price >= 1000000) AS high_bids,
       min(price) AS lowest, max(price) AS highest, avg(price) AS average, sum(price) AS total
FROM bid
GROUP BY auction, date_format(date_time, 'yyyy-MM-dd');

-- q18 (update by bidder, auction): the last bid of a bidder on an auction
SELECT last.auction, last.bidder, last.price, last.channel, last.url, last.date_time, last.extra
FROM (
  SELECT max_by(struct(auction, bidder, price, channel, url, date_time, extra), date_time) AS last
  FROM bid GROUP BY bidder, auction
);

-- q19 (append): the ten highest bids on an auction
SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid
)
WHERE place <= 10;

-- q20 (append): bids with their auction, of category 10
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_at, b.extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
       a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- q21 (append): the number of a bid's channel
SELECT auction, bidder, price, channel,
       CASE lower(channel)
         WHEN 'apple' THEN '0'
         WHEN 'google' THEN '1'
         WHEN 'facebook' THEN '2'
         WHEN 'baidu' THEN '3'
         ELSE nullif(regexp_extract(url, '[&?]channel_id=([^&]*)', 1), '')
       END AS channel_id
FROM bid
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
   OR nullif(regexp_extract(url, '[&?]channel_id=([^&]*)', 1), '') IS NOT NULL;

-- q22 (append): the first three folders of a link
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;
