"""psycopg 3: server-side parameters in text and binary, pipeline mode, server-side cursors, stream, COPY, notifications."""

import asyncio
import datetime
import decimal
import uuid

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from session import DATABASE, HOST, PORT, USER, acheck, check, show

DSN = f"host={HOST} port={PORT} user={USER} dbname={DATABASE}"
c = psycopg.connect(DSN)
INFO = c.info
show("info", (INFO.encoding, INFO.transaction_status.name, INFO.pipeline_status.name, INFO.parameter_status("TimeZone")))


def rows(text, args=None, **how):
    return c.execute(text, args, **how).fetchall()


def status(text, args=None, **how):
    cur = c.execute(text, args, **how)
    return cur.statusmessage, cur.rowcount


check("create", lambda: status(
    "create table p3 (id bigint primary key, i integer, s smallint, n numeric(12,3), f double precision, r real, b boolean,"
    " t text, v varchar(20), d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, by bytea,"
    " ia integer[], ta text[], tza timestamptz[], tm time)"))
UTC = datetime.timezone.utc
VALUES = (
    1, 2, 3, decimal.Decimal("12345.678"), 1.5, 0.25, True, "tëxt", "vc", datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, 15, 123456), datetime.datetime(2024, 2, 29, 12, 30, 15, 5000, tzinfo=UTC),
    datetime.timedelta(days=3, hours=4, microseconds=7), uuid.UUID(int=7), Jsonb({"a": [1, None, "x"]}), b"\x00\xff",
    [1, None, 3], ["a", None, 'q"u,o{t}e', "NULL"],
    [datetime.datetime(2024, 1, 1, tzinfo=UTC)], datetime.time(23, 59, 59, 999999))
HOLES = ",".join(["%s"] * len(VALUES))
BINARY_HOLES = ",".join(["%b"] * len(VALUES))
check("insert text", lambda: status(f"insert into p3 values ({HOLES})", VALUES))
check("insert binary", lambda: status(f"insert into p3 values ({BINARY_HOLES})", (2, *VALUES[1:])))
check("insert nulls", lambda: status("insert into p3 (id, t, i) values (%s, %s, %b)", (3, None, None)))
c.commit()
check("text", lambda: rows("select * from p3 order by id"))
check("binary", lambda: rows("select * from p3 order by id", binary=True))
check("types", lambda: [(d.name, d.type_code, d.internal_size, d.precision, d.scale) for d in c.execute("select * from p3").description])
c.commit()
c.autocommit = True
for kind, value in [
    ("int2", 1), ("int4", 70000), ("int8", 5_000_000_000), ("numeric", 10**18), ("decimal", decimal.Decimal("-0.123456789")),
    ("float", 1e300), ("bool", False), ("text", "x'y"), ("bytes", b"\x01\x00"),
    ("date", datetime.date(1, 1, 1)), ("time", datetime.time(1, 2, 3)), ("ts", datetime.datetime(1999, 12, 31)),
    ("interval", datetime.timedelta(days=-1, seconds=5)), ("uuid", uuid.UUID(int=1)), ("list", [1, 2]),
    ("texts", ["a", "b"]), ("empty", []), ("none", None),
]:
    for hole in ("%s", "%t", "%b"):
        check(f"echo {kind} {hole}", lambda: rows(f"select {hole} as x", (value,)))
    check(f"echo {kind} binary", lambda: rows("select %s as x", (value,), binary=True))
c.autocommit = False
check("typeof", lambda: rows("select pg_typeof(%s), pg_typeof(%s), pg_typeof(%s)", (1, decimal.Decimal(1), 1.5)))
check("limit", lambda: rows("select id from p3 order by id limit %s offset %s", (1, 1)))
check("any", lambda: rows("select id from p3 where id = any(%s) order by id", ([1, 3],)))
check("between", lambda: rows("select id from p3 where ts > %s and d = %s order by id", (VALUES[10] - datetime.timedelta(1), VALUES[9])))
check("interval arithmetic", lambda: rows("select %s + %s", (VALUES[10], datetime.timedelta(hours=1))))
check("infinity", lambda: rows("select 'infinity'::float8, '-infinity'::float4, 'NaN'::float8", binary=True))
check("json", lambda: rows("select j -> 'a' -> 2, j ->> 'a' from p3 where id = 1", binary=True))
check("prepared", lambda: [rows("select %s::bigint + 1", (n,), prepare=True) for n in range(7)][-1])
check("several", lambda: [cur.fetchall() for cur in c.execute("select 1; select 2, 3").results()])
check("many", lambda: (lambda cur: (cur.executemany("insert into p3 (id, i) values (%s, %s) returning id", [(n, n) for n in range(10, 14)], returning=True),
                                    [r.fetchone() for r in cur.results()]))(c.cursor()))
c.commit()

# Errors.
for name, text, args in [
    ("unique", "insert into p3 (id) values (%s)", (1,)),
    ("not null", "insert into p3 (id) values (%s)", (None,)),
    ("bad text", "select %t::integer", ("x",)),
    ("zero", "select 1 / %s", (0,)),
    ("no table", "select * from nothing_here where a = %s", (1,)),
    ("several with parameters", "select %s; select 2", (1,)),
    ("overflow", "select %s::smallint", (70000,)),
]:
    check("error " + name, lambda: rows(text, args))
    show("state " + name, INFO.transaction_status.name)
    c.rollback()

# Pipelines: answers in order, an error aborts up to the next sync.
def pipeline():
    with c.pipeline() as p:
        one = c.execute("select %s", (1,))
        c.execute("insert into p3 (id) values (%s)", (5000,))
        two = c.execute("select count(*) from p3 where id = 5000")
        p.sync()
        return one.fetchall(), two.fetchall(), INFO.transaction_status.name


def failing_pipeline():
    """Whether the driver tells of the error at once or at the end depends on when it is answered."""
    try:
        with c.pipeline():
            c.execute("insert into p3 (id) values (5001)")
            c.execute("select 1/0")
            c.execute("insert into p3 (id) values (5002)")
        return "no error"
    except psycopg.Error as error:
        return type(error).__name__ in ("DivisionByZero", "PipelineAborted"), INFO.transaction_status.name


check("pipeline", pipeline)
c.rollback()
check("failing pipeline", failing_pipeline)
c.rollback()
check("after pipeline", lambda: rows("select count(*) from p3 where id >= 5000"))
c.rollback()
c.autocommit = True
check("pipeline in autocommit", pipeline)
check("failing pipeline in autocommit", failing_pipeline)
check("after autocommit", lambda: rows("select id from p3 where id >= 5000 order by id"))
check("executemany pipelined", lambda: (lambda cur: (cur.executemany("delete from p3 where id = %s", [(n,) for n in range(10, 14)]), cur.rowcount))(c.cursor()))
c.autocommit = False

# Server-side cursors, binary too; a stream; a client cursor.
check("fill", lambda: status("insert into p3 (id, i) select g, g from generate_series(100, 199) g"))
with c.cursor("srv", binary=True) as server:
    server.execute("select id from p3 where id between %s and %s order by id", (100, 199))
    check("server", lambda: (server.fetchone(), server.fetchmany(3), len(server.fetchall())))
with c.cursor("scr", scrollable=True) as server:
    check("scroll open", lambda: server.execute("select id from p3 where id between %s and %s order by id", (100, 199)) and None)
    check("scroll", lambda: (server.fetchmany(2), server.scroll(5), server.fetchone(), server.scroll(-3), server.fetchone()))
    check("scroll absolute", lambda: (server.scroll(90, mode="absolute"), server.fetchall()))
c.commit()
check("stream", lambda: sum(row[0] for row in c.cursor().stream("select id from p3 where id >= %s", (100,))))
check("stream chunks", lambda: sum(row[0] for row in c.cursor().stream("select g from generate_series(1, 1000) g", size=100)))
check("client cursor", lambda: psycopg.ClientCursor(c).execute("select %s, %s", ("a'b", [1, 2])).fetchall())
check("raw", lambda: psycopg.RawCursor(c).execute("select $1::text || $2", ["a", "b"]).fetchall())
check("dict", lambda: c.cursor(row_factory=dict_row).execute("select id, j from p3 where id = 1").fetchall())

# COPY: text, binary with set types, from a query, a failure on either side.
def copy_rows(how, types=None):
    with c.cursor() as cur:
        with cur.copy(f"copy p3 (id, t, n, tz, ia) from stdin {how}") as copy:
            if types:
                copy.set_types(types)
            for n in range(3):
                base = 6000 if types else 7000
                copy.write_row((base + n, f"r\t{n}\n\\", decimal.Decimal(n), VALUES[11], [n, None]))
        return cur.rowcount


def copied(how, types=None):
    with c.cursor() as cur, cur.copy(f"copy (select id, t, n, tz, ia from p3 where id >= 6000 order by id) to stdout {how}") as copy:
        if types:
            copy.set_types(types)
        return list(copy.rows())


TYPES = ["int8", "text", "numeric", "timestamptz", "int4[]"]
check("copy text", lambda: copy_rows(""))
check("copy binary", lambda: copy_rows("(format binary)", TYPES))
check("copied text", lambda: copied(""))
check("copied binary", lambda: copied("(format binary)", TYPES))
c.commit()


def broken_copy():
    with c.cursor() as cur, cur.copy("copy p3 (id) from stdin") as copy:
        copy.write_row((8000,))
        raise RuntimeError("changed my mind")


def half_binary():
    with c.cursor() as cur, cur.copy("copy p3 (id, t) from stdin (format binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + bytes(8) + b"\x00\x02\x00\x00\x00\x08")


check("copy given up", broken_copy)
c.rollback()
check("copy cut", half_binary)
c.rollback()
check("copy kept nothing", lambda: rows("select count(*) from p3 where id >= 8000"))

# Transactions as contexts, savepoints inside, two-phase.
def nested():
    with c.transaction():
        c.execute("insert into p3 (id) values (9000)")
        try:
            with c.transaction():
                c.execute("insert into p3 (id) values (9001)")
                c.execute("select 1/0")
        except psycopg.Error:
            pass
        return rows("select id from p3 where id >= 9000")


c.commit()
check("nested", nested)
c.rollback()
check("isolation", lambda: (setattr(c, "isolation_level", psycopg.IsolationLevel.SERIALIZABLE), setattr(c, "read_only", True),
                            setattr(c, "deferrable", True), rows("show transaction_isolation"), rows("show transaction_read_only")))
c.rollback()
c.isolation_level = c.read_only = c.deferrable = None
check("type info", lambda: psycopg.types.TypeInfo.fetch(c, "integer"))
check("type info missing", lambda: psycopg.types.TypeInfo.fetch(c, "nothing_here"))
check("range info", lambda: psycopg.types.range.RangeInfo.fetch(c, "int4range"))
c.rollback()
check("composed", lambda: c.execute(sql.SQL("select {} from {} where id = {}").format(
    sql.Identifier("t"), sql.Identifier("public", "p3"), sql.Literal(1))).fetchall())
check("notices", lambda: (lambda heard: (c.add_notice_handler(lambda n: heard.append((n.severity, n.sqlstate, n.message_primary))),
                                         c.execute("drop table if exists not_there"), heard)[2])([]))
c.commit()

# Notifications: one's own, another's, to a session that only waits.
c.autocommit = True
with psycopg.connect(DSN, autocommit=True) as other:
    check("listen", lambda: status("listen jobs"))
    other.execute("select pg_notify('jobs', %s)", ("x" * 10,))
    other.execute("notify jobs")
    check("notified", lambda: [(n.channel, n.payload) for n in c.notifies(timeout=5, stop_after=2)])
    with other.transaction():
        other.execute("notify jobs, 'a'")
        other.execute("notify jobs, 'b'")
        other.execute("notify jobs, 'a'")
    check("folded", lambda: [(n.channel, n.payload) for n in c.notifies(timeout=5, stop_after=2)])
    try:
        with other.transaction():
            other.execute("notify jobs, 'never'")
            raise RuntimeError
    except RuntimeError:
        pass
    other.execute("notify jobs, 'later'")
    check("not rolled back", lambda: [(n.channel, n.payload) for n in c.notifies(timeout=5, stop_after=1)])
    check("unlisten", lambda: status("unlisten *"))
    other.execute("notify jobs, 'unheard'")
    check("silence", lambda: list(c.notifies(timeout=0.3)))
check("too long", lambda: rows("select pg_notify('jobs', repeat('x', 8000))"))
check("no channel", lambda: rows("select pg_notify('', 'x')"))


async def main():
    async with await psycopg.AsyncConnection.connect(DSN) as a:
        async def fetch(text, args=None):
            return await (await a.execute(text, args)).fetchall()
        await acheck("async", fetch("select id from p3 where id = %s", (1,)))
        await acheck("time-out", asyncio.wait_for(fetch("select pg_sleep(30)"), 0.3))
        await a.rollback()
        await acheck("after time-out", fetch("select 1"))


asyncio.run(main())
check("cancel safe", lambda: c.cancel_safe())
check("drop", lambda: status("drop table p3"))
c.close()
