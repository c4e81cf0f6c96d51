// pgx: extended protocol with binary results, batches, COPY, listeners, a pool, each query mode.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var ctx = context.Background()

func check(name string, work func() (any, error)) {
	value, err := work()
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		fmt.Printf("%s: error %s %s\n", name, refused.Code, refused.Message)
	case err != nil:
		fmt.Printf("%s: error %v\n", name, err)
	default:
		fmt.Printf("%s: %v\n", name, value)
	}
}

func connect(more string) *pgx.Conn {
	url := fmt.Sprintf("postgres://%s@%s:%s/%s?sslmode=disable%s", os.Getenv("PGUSER"), os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGDATABASE"), more)
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		fmt.Println("connect:", err)
		os.Exit(1)
	}
	return c
}

func rows(c *pgx.Conn, sql string, args ...any) (any, error) {
	r, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(r, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	return all, err
}

func main() {
	c := connect("")
	exec := func(sql string, args ...any) func() (any, error) {
		return func() (any, error) { return c.Exec(ctx, sql, args...) }
	}
	query := func(sql string, args ...any) func() (any, error) {
		return func() (any, error) { return rows(c, sql, args...) }
	}
	check("create", exec("create table gx (id bigint primary key, i integer, n numeric(10,2), f float8, b boolean, t text, d date, tz timestamptz, u uuid, j jsonb, by bytea, ia integer[], ta text[], iv interval)"))
	check("insert", exec("insert into gx values ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)", 1, 2, "3.50", 1.5, true, "tëxt",
		time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(2024, 2, 29, 12, 0, 0, 5000, time.UTC), "12345678-1234-5678-1234-567812345678",
		map[string]any{"a": 1}, []byte{0, 255}, []int32{1, 2}, []string{"a", "b,c"}, time.Hour))
	check("nulls", exec("insert into gx (id, t) values ($1, $2)", 2, nil))
	check("select", query("select id, i, f, b, t, d, by, ia, ta, j from gx order by id"))
	check("numeric", func() (any, error) {
		var n string
		err := c.QueryRow(ctx, "select n::text from gx where id = $1", 1).Scan(&n)
		return n, err
	})
	check("any", query("select id from gx where id = any($1) order by id", []int64{1, 2}))
	check("limit", query("select id from gx order by id limit $1", 1))
	check("fields", func() (any, error) {
		r, err := c.Query(ctx, "select id, t, n from gx")
		if err != nil {
			return nil, err
		}
		defer r.Close()
		told := ""
		for _, f := range r.FieldDescriptions() {
			told += fmt.Sprint(f.Name, f.DataTypeOID, f.TypeModifier, f.TableAttributeNumber, f.TableOID > 0, f.Format, " ")
		}
		return told, nil
	})
	check("batch", func() (any, error) {
		b := &pgx.Batch{}
		for n := 10; n < 20; n++ {
			b.Queue("insert into gx (id, i) values ($1, $2)", n, n)
		}
		b.Queue("select count(*) from gx")
		r := c.SendBatch(ctx, b)
		for n := 10; n < 20; n++ {
			if _, err := r.Exec(); err != nil {
				return nil, err
			}
		}
		var count int
		err := r.QueryRow().Scan(&count)
		return count, errors.Join(err, r.Close())
	})
	check("failing batch", func() (any, error) {
		b := &pgx.Batch{}
		b.Queue("insert into gx (id) values (30)")
		b.Queue("insert into gx (id) values (1)")
		return nil, c.SendBatch(ctx, b).Close()
	})
	check("nothing of it", query("select count(*) from gx where id = 30"))
	check("copy", func() (any, error) {
		return c.CopyFrom(ctx, pgx.Identifier{"gx"}, []string{"id", "t", "tz", "ia", "f"}, pgx.CopyFromSlice(1000, func(n int) ([]any, error) {
			return []any{int64(1000 + n), fmt.Sprint("r", n), time.Unix(int64(n), 0), []int32{int32(n)}, float64(n) / 4}, nil
		}))
	})
	check("copied", query("select count(*), sum(f), min(t), max(tz) = '1970-01-01 00:16:39+00' from gx where id >= 1000"))
	check("transaction", func() (any, error) {
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
		if err != nil {
			return nil, err
		}
		if _, err = tx.Exec(ctx, "insert into gx (id) values (5000)"); err != nil {
			return nil, err
		}
		inner, err := tx.Begin(ctx)
		if err != nil {
			return nil, err
		}
		_, err = inner.Exec(ctx, "select 1/0")
		told := fmt.Sprint(err != nil, inner.Rollback(ctx))
		return told, tx.Commit(ctx)
	})
	check("after", query("select count(*) from gx where id = 5000"))
	check("cancel", func() (any, error) {
		short, done := context.WithTimeout(ctx, 300*time.Millisecond)
		defer done()
		d := connect("")
		_, err := d.Exec(short, "select pg_sleep(20)")
		return errors.Is(err, context.DeadlineExceeded), nil
	})
	check("listen", exec("listen jobs"))
	go func() {
		time.Sleep(200 * time.Millisecond)
		d := connect("")
		_, err := d.Exec(ctx, "select pg_notify('jobs', 'from go')")
		if err != nil {
			fmt.Println(err)
		}
	}()
	check("notified", func() (any, error) {
		short, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		n, err := c.WaitForNotification(short)
		if err != nil {
			return nil, err
		}
		return n.Channel + " " + n.Payload, nil
	})
	for _, sql := range []string{"select * from nothing_here", "selec", "select 1/0", "insert into gx (id) values (1)"} {
		check("error "+sql, query(sql))
	}
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		check("mode "+mode, func() (any, error) {
			d := connect("&default_query_exec_mode=" + mode)
			defer d.Close(ctx)
			for n := 0; n < 3; n++ {
				if _, err := rows(d, "select id, t from gx where id = $1 and t = $2", int64(1), "it's"); err != nil {
					return nil, err
				}
			}
			return rows(d, "select id, t, f, b from gx where id = $1", int64(1))
		})
	}
	check("load type", func() (any, error) {
		t, err := c.LoadType(ctx, "text[]")
		if err != nil {
			return nil, err
		}
		return t.OID, nil
	})
	check("stale plan", func() (any, error) {
		if _, err := rows(c, "select * from gx where id = $1", 2); err != nil {
			return nil, err
		}
		if _, err := c.Exec(ctx, "alter table gx drop column iv"); err != nil {
			return nil, err
		}
		_, err := rows(c, "select * from gx where id = $1", 2)
		told := fmt.Sprint(err)
		_, err = rows(c, "select * from gx where id = $1", 2)
		return told, err
	})
	check("drop", exec("drop table gx"))
}
