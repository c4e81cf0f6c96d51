-- A table with a primary key, changed by DML, joined to a stream: the view follows both.

CREATE TABLE products (id BIGINT PRIMARY KEY, name TEXT NOT NULL, price NUMERIC(10,2) DEFAULT 0);
CREATE STREAM sales (product_id BIGINT, quantity INTEGER);

CREATE MATERIALIZED VIEW revenue AS
  SELECT p.name, sum(s.quantity) AS sold, sum(s.quantity * p.price) AS revenue
  FROM sales s JOIN products p ON p.id = s.product_id
  GROUP BY p.name;

INSERT INTO products VALUES (1, 'tea', 4.50), (2, 'cup', 12.00);
INSERT INTO sales VALUES (1, 2), (1, 1), (2, 1);
UPDATE products SET price = 5.00 WHERE id = 1;
FLUSH;
SELECT * FROM revenue ORDER BY name;
