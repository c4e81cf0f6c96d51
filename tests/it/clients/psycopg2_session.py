"""psycopg2: text protocol, client-side parameters, server-side cursors, COPY, notices, cancel."""

import datetime
import decimal
import io
import threading
import uuid

import psycopg2
import psycopg2.extensions
import psycopg2.extras
import psycopg2.sql

from session import DATABASE, HOST, PORT, USER, check, show

psycopg2.extras.register_uuid()
c = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
cur = c.cursor()


def rows(sql, *args):
    cur.execute(sql, *args)
    return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in cur.fetchall()]


def status(sql, *args):
    cur.execute(sql, *args)
    return cur.statusmessage, cur.rowcount


def column(d):
    return (d.name, d.type_code, d.internal_size, d.precision, d.scale)


show("status", c.get_transaction_status())
show("encoding", c.encoding)
show("parameters", [c.get_parameter_status(p) for p in (
    "client_encoding", "DateStyle", "standard_conforming_strings", "integer_datetimes", "is_superuser",
    "server_encoding", "IntervalStyle", "TimeZone", "in_hot_standby", "default_transaction_read_only")])
check("create", lambda: status(
    "create table p2 (id bigint primary key, i integer, s smallint, n numeric(12,3), f double precision, r real, b boolean,"
    " t text, v varchar(20), d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, by bytea,"
    " ia integer[], ta text[], tm time)"))
VALUES = (
    1, 2, 3, decimal.Decimal("12345.678"), 1.5, 0.25, True, "tëxt 'quoted' \\ back", "vc", datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, 15, 123456),
    datetime.datetime(2024, 2, 29, 12, 30, 15, 5000, tzinfo=datetime.timezone.utc),
    datetime.timedelta(days=3, hours=4, microseconds=7), uuid.UUID("12345678-1234-5678-1234-567812345678"),
    psycopg2.extras.Json({"a": [1, None, "x"]}), b"\x00\xff\\x", [1, None, 3], ["a", None, 'q"u,o{t}e', "NULL"],
    datetime.time(23, 59, 59, 999999))
check("insert", lambda: status("insert into p2 values (" + ",".join(["%s"] * 19) + ")", VALUES))
check("insert nulls", lambda: status("insert into p2 (id) values (%s)", (2,)))
check("commit", lambda: c.commit())
check("select", lambda: rows("select * from p2 order by id"))
check("description", lambda: [column(d) for d in cur.description])
check("named", lambda: rows("select i + %(a)s as x from p2 where id = %(id)s", {"a": 40, "id": 1}))
check("returning", lambda: rows("insert into p2 (id, t) values (3, 'x'), (4, 'y') returning id, t"))
check("returning rowcount", lambda: (cur.statusmessage, cur.rowcount))
check("update", lambda: status("update p2 set t = 'z' where id >= 3"))
check("delete", lambda: status("delete from p2 where id = 4"))
check("conflict", lambda: status("insert into p2 (id, t) values (3, 'new') on conflict (id) do update set t = excluded.t"))
check("in list", lambda: rows("select id from p2 where id in %s order by id", ((1, 3),)))
check("any", lambda: rows("select id from p2 where id = any(%s) order by id", ([1, 3],)))
check("like", lambda: rows("select id from p2 where t like %s", ("n%",)))
check("mogrify", lambda: cur.mogrify("select %s, %s", ("a'b\\c", None)))
check("executemany", lambda: (cur.executemany("insert into p2 (id) values (%s)", [(n,) for n in range(10, 15)]), cur.rowcount))
check("execute_values", lambda: psycopg2.extras.execute_values(
    cur, "insert into p2 (id, i) values %s returning id", [(n, n) for n in range(20, 25)], fetch=True))
check("execute_batch", lambda: psycopg2.extras.execute_batch(cur, "update p2 set i = %s where id = %s", [(1, 20), (2, 21)]))
check("rollback", lambda: c.rollback())
check("after rollback", lambda: rows("select count(*), max(id) from p2"))

# Errors: each with what a program looks at.
for name, sql in [
    ("unique", "insert into p2 (id) values (1)"),
    ("not null", "insert into p2 (id) values (null)"),
    ("syntax", "selec 1"),
    ("no table", "select * from nothing_here"),
    ("no column", "select nothing_here from p2"),
    ("zero", "select 1/0"),
    ("bad integer", "select 'x'::integer"),
    ("out of range", "select 3000000000::integer"),
    ("bad date", "select '2024-02-30'::date"),
    ("too long", "insert into p2 (id, v) values (9, '" + "x" * 21 + "')"),
    ("numeric overflow", "insert into p2 (id, n) values (9, 1e12)"),
    ("duplicate table", "create table p2 (id bigint primary key)"),
    ("aborted", None),
]:
    def failing(sql=sql):
        if sql is None:
            try:
                cur.execute("select 1/0")
            except psycopg2.Error:
                pass
            cur.execute("select 1")
        cur.execute(sql)
    try:
        failing()
        show("error " + name, "none")
    except psycopg2.Error as error:
        d = error.diag
        show("error " + name, (type(error).__name__, error.pgcode, d.severity, d.message_primary, d.statement_position,
                               d.table_name, d.column_name, d.constraint_name))
    show("state " + name, c.get_transaction_status())
    c.rollback()

# A server-side cursor, plain and held.
check("fill", lambda: (status("insert into p2 (id, i) select g, g from generate_series(100, 199) g"), c.commit())[0])
server = c.cursor("srv")
server.itersize = 30
server.execute("select id from p2 where id between %s and %s order by id", (100, 199))
check("server fetch", lambda: (server.fetchone(), server.fetchmany(3), len(list(server))))
check("server description", lambda: [d.name for d in server.description])
server.close()
scrolled = c.cursor("scr", scrollable=True)
check("scroll open", lambda: scrolled.execute("select id from p2 where id >= 100 order by id"))
check("scroll", lambda: (scrolled.fetchmany(2), scrolled.scroll(10), scrolled.fetchone()))
check("scroll back", lambda: (scrolled.scroll(-3), scrolled.fetchone()))
check("scroll absolute", lambda: (scrolled.scroll(50, mode="absolute"), scrolled.fetchone()))
c.commit()
held = c.cursor("held", withhold=True)
held.execute("select id from p2 where id >= 100 order by id")
c.commit()
check("held", lambda: held.fetchmany(2))
held.close()
c.commit()

# Every direction of FETCH and MOVE, from wherever the last one left the cursor.
DIRECTIONS = (
    "fetch next", "fetch 3", "fetch prior", "fetch prior", "fetch prior", "fetch prior", "fetch prior", "fetch forward 2",
    "fetch relative 0", "fetch relative 3", "fetch relative -2", "fetch absolute 7", "fetch absolute 0", "fetch next", "fetch absolute -1",
    "fetch next", "fetch prior", "fetch absolute -4", "fetch backward 2", "fetch backward all", "fetch forward 0", "fetch all", "fetch all",
    "fetch backward 3", "fetch first", "fetch last", "fetch forward 0", "move absolute 4", "move 2", "fetch 1", "move backward 3", "fetch next",
    "move last", "fetch next", "move backward all", "fetch next", "fetch -1", "move relative 4", "fetch 0", "fetch absolute 20", "fetch prior",
    "move all", "move all", "fetch backward 100", "fetch absolute -20", "fetch next", "move first", "fetch next",
)


def went(statement):
    cur.execute(statement + " from d")
    return cur.statusmessage, [row[0] for row in cur.fetchall()] if cur.description else None


check("declare", lambda: status("declare d scroll cursor for select g from generate_series(1, 10) g order by g"))
for direction in DIRECTIONS:
    check(direction, lambda: went(direction))
c.rollback()
for last in ("fetch prior", "fetch absolute 2", "fetch relative 0", "move first", "fetch last"):
    check("declare", lambda: status("declare d no scroll cursor for select g from generate_series(1, 10) g order by g"))
    for direction in ("fetch absolute 2", "fetch 2", "move 1", "fetch relative 2", "move absolute 8"):
        check(direction, lambda: went(direction))
    check("no scroll " + last, lambda: went(last))
    c.rollback()

# COPY in every direction.
text = io.StringIO("1000\ta\\tb\n1001\t\\N\n1002\tüñ\\\\x\n")
check("copy_from", lambda: (cur.copy_from(text, "p2", columns=("id", "t")), cur.rowcount))
out = io.StringIO()
check("copy_to", lambda: cur.copy_expert("copy (select id, t from p2 where id >= 1000 order by id) to stdout", out))
show("copied", out.getvalue())
csv = io.StringIO('id,t\n1003,"a,""b"\n1004,\n1005,""\n')
check("copy csv", lambda: (cur.copy_expert("copy p2 (id, t) from stdin with (format csv, header true)", csv), cur.rowcount))
out = io.StringIO()
check("copy csv out", lambda: cur.copy_expert(
    "copy (select id, t from p2 where id >= 1003 order by id) to stdout with (format csv, header, force_quote (t))", out))
show("copied csv", out.getvalue())
c.commit()
check("copy bad", lambda: cur.copy_expert("copy p2 (id, t) from stdin", io.StringIO("1006\tx\nbad\ty\n")))
c.rollback()
check("copy kept nothing", lambda: rows("select count(*) from p2 where id = 1006"))

# Sessions.
check("savepoint", lambda: [status(s) for s in (
    "savepoint a", "insert into p2 (id) values (2000)", "rollback to savepoint a", "release savepoint a")])
c.commit()
check("autocommit", lambda: setattr(c, "autocommit", True))
check("notice", lambda: status("drop table if exists not_there"))
show("notices", c.notices)
check("isolation", lambda: (setattr(c, "autocommit", False), c.set_session(isolation_level="REPEATABLE READ", readonly=True)))
check("read only", lambda: rows("show transaction_isolation"))
check("read only write", lambda: status("delete from p2"))
c.rollback()
check("reset", lambda: c.reset())
check("isolation again", lambda: (c.set_session(isolation_level="DEFAULT", readonly=False), rows("show transaction_isolation")))
c.commit()
check("pid", lambda: rows("select pg_backend_pid()")[0][0] == c.get_backend_pid())
timer = threading.Timer(0.3, c.cancel)
timer.start()
check("cancelled", lambda: rows("select pg_sleep(20)"))
c.rollback()
check("after cancel", lambda: rows("select 1"))
c.commit()

# LISTEN and NOTIFY.
c.autocommit = True
other = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
other.autocommit = True
check("listen", lambda: status("listen jobs"))
check("notify", lambda: other.cursor().execute("notify jobs, 'first'; select pg_notify('jobs', 'second')"))
check("poll", lambda: rows("select 1"))
show("notified", [(n.channel, n.payload, n.pid == other.get_backend_pid()) for n in c.notifies])
check("channels", lambda: rows("select * from pg_listening_channels()"))

# Composed SQL, record and JSON adapters.
check("composed", lambda: rows(psycopg2.sql.SQL("select {} from {} where id = 1").format(
    psycopg2.sql.Identifier("t"), psycopg2.sql.Identifier("p2"))))
dicts = c.cursor(cursor_factory=psycopg2.extras.RealDictCursor)
check("dict", lambda: (dicts.execute("select id, j from p2 where id = 1"), dicts.fetchall()))
named = c.cursor(cursor_factory=psycopg2.extras.NamedTupleCursor)
check("tuple", lambda: (named.execute("select id, u as key from p2 where id = 1"), named.fetchall()))
check("hstore", lambda: psycopg2.extras.HstoreAdapter.get_oids(c))
check("infinity", lambda: rows("select 'NaN'::float8, 'infinity'::float8, '-infinity'::float8"))
check("date", lambda: rows("select current_date = now()::date, '0001-01-01'::date, '9999-12-31'::date"))
check("null array", lambda: rows("select null::integer[], '{}'::integer[], array[array[1,2],array[3,4]]"))
check("void", lambda: rows("select pg_sleep(0)"))
check("drop", lambda: status("drop table p2"))
c.close()
show("closed", c.closed)
