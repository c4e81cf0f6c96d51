"""asyncpg: everything prepared and binary, records, arrays, cursors, COPY, pools, listeners."""

import asyncio
import datetime
import decimal
import io
import json
import uuid

import asyncpg

from session import DATABASE, HOST, PORT, USER, acheck, show

UTC = datetime.timezone.utc


async def main():
    c = await asyncpg.connect(host=HOST, port=PORT, user=USER, database=DATABASE)
    show("version", c.get_server_version()[:1])
    show("settings", (c.get_settings().client_encoding, c.get_settings().TimeZone))
    await acheck("create", c.execute(
        "create table ap (id bigint primary key, i integer, s smallint, n numeric(12,3), f double precision, r real, b boolean,"
        " t text, v varchar(20), d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, by bytea,"
        " ia integer[], ta text[], ua uuid[], tm time)"))
    values = (
        1, 2, 3, decimal.Decimal("12345.678"), 1.5, 0.25, True, "tëxt", "vc", datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 12, 30, 15, 123456), datetime.datetime(2024, 2, 29, 12, 30, 15, 5000, tzinfo=UTC),
        datetime.timedelta(days=3, hours=4, microseconds=7), uuid.UUID(int=7), json.dumps({"a": [1, None, "x"]}), b"\x00\xff",
        [1, None, 3], ["a", None, 'q"u,o{t}e'], [uuid.UUID(int=9)],
        datetime.time(23, 59, 59, 999999))
    holes = ",".join(f"${n + 1}" for n in range(len(values)))
    await acheck("insert", c.execute(f"insert into ap values ({holes})", *values))
    await acheck("insert nulls", c.execute("insert into ap (id, t) values ($1, $2)", 2, None))
    await acheck("fetch", c.fetch("select * from ap order by id"))
    await acheck("row", c.fetchrow("select id, t from ap where id = $1", 1))
    await acheck("value", c.fetchval("select count(*) from ap"))
    await acheck("many", c.executemany("insert into ap (id, i) values ($1, $2)", [(n, n) for n in range(10, 20)]))
    await acheck("fetchmany", c.fetchmany("insert into ap (id) values ($1) returning id", [(30,), (31,)]))
    await acheck("failing many", c.executemany("insert into ap (id) values ($1)", [(40,), (1,)]))
    await acheck("nothing of it", c.fetchval("select count(*) from ap where id = 40"))
    await acheck("script", c.execute("select 1; insert into ap (id) values (50); delete from ap where id = 50"))

    async def prepared(text):
        statement = await c.prepare(text)
        return ([(p.name, p.oid) for p in statement.get_parameters()],
                [(a.name, a.type.name, a.type.oid) for a in statement.get_attributes()], statement.get_statusmsg())

    for name, text in [
        ("typed", "select $1::integer, $2::text[], $3::timestamptz"),
        ("column", "select id from ap where t = $1 and tz > $2 and n < $3 and u = $4"),
        ("any", "select id from ap where id = any($1)"),
        ("limit", "select id from ap limit $1 offset $2"),
        ("insert", "insert into ap (id, t, tz, ia) values ($1, $2, $3, $4)"),
        ("update", "update ap set n = n + $1, t = $2 where id = $3"),
        ("alone", "select $1"),
        ("interval", "select now() - $1::interval"),
        ("coalesce", "select coalesce($1, i) from ap"),
        ("case", "select case when $1 then i else $2 end from ap"),
        ("between", "select i from ap where d between $1 and $2"),
        ("like", "select i from ap where t like $1"),
        ("in", "select i from ap where i in ($1, $2)"),
        ("arithmetic", "select i + $1, f * $2, n - $3 from ap"),
        ("array", "select ia[$1] from ap"),
        ("values", "values ($1::bigint, $2::text), ($3, $4)"),
        ("json", "select j ->> $1 from ap"),
        ("concat", "select t || $1 from ap"),
        ("no rows", "create table never (id bigint primary key)"),
    ]:
        await acheck(f"prepare {name}", prepared(text))

    statement = await c.prepare("select id, t from ap where id >= $1 order by id")
    await acheck("statement", statement.fetch(10))
    await acheck("statement row", statement.fetchrow(1))
    await acheck("statement many", statement.fetchmany([(30,), (31,)]))
    for kind, value in [
        ("int4", 7), ("int8", -(2**63)), ("numeric", decimal.Decimal("-99999999999999999999.123456789")), ("float8", float("inf")), ("bool", True),
        ("text", "a\tb"), ("bytea", b"\x00"), ("date", datetime.date(2000, 1, 1)), ("time", datetime.time(1, 2, 3, 4)),
        ("timestamp", datetime.datetime(1970, 1, 1)), ("timestamptz", datetime.datetime(2100, 1, 1, tzinfo=UTC)),
        ("interval", datetime.timedelta(days=400, seconds=3)), ("uuid", uuid.UUID(int=3)), ("json", '{"a":1}'), ("jsonb", '{"a": 1}'),
        ("int4[]", [1, None]), ("text[]", ["x", None]), ("bool[]", [True, None, False]), ("float8[]", [1.5]), ("date[]", [datetime.date(2000, 1, 1)]),
        ("int8[]", [1, 2]), ("oid", 26), ("name", "n"), ("varchar", "v"), ("smallint", -5), ("real", 0.5), ("regclass", "ap"),
        ("xid", 5),
    ]:
        await acheck(f"echo {kind}", c.fetchval(f"select $1::{kind}", value))
    await acheck("specials", c.fetchrow("select 'NaN'::float8, '-infinity'::float4"))
    await acheck("array", c.fetchval("select array_agg(id order by id) from ap where id < 15"))
    await acheck("empty array", c.fetchval("select array[]::text[]"))

    async def cursors():
        told = []
        async with c.transaction():
            cursor = await c.cursor("select id from ap order by id")
            told.append(await cursor.fetch(3))
            told.append(await cursor.forward(2))
            told.append(await cursor.fetchrow())
            told.append([r["id"] async for r in c.cursor("select id from ap order by id", prefetch=4)])
        return told

    await acheck("cursor", cursors())

    async def nested():
        async with c.transaction(isolation="serializable"):
            await c.execute("insert into ap (id) values (60)")
            try:
                async with c.transaction():
                    await c.execute("insert into ap (id) values (61)")
                    await c.execute("select 1/0")
            except asyncpg.DivisionByZeroError:
                pass
            return await c.fetch("select id from ap where id >= 60")

    await acheck("nested", nested())
    async def read_only():
        async with c.transaction(readonly=True, deferrable=True, isolation="serializable"):
            await c.execute("delete from ap")
    await acheck("read only", read_only())

    await acheck("copy records", c.copy_records_to_table("ap", records=[(100 + n, f"r{n}", [n, None], None) for n in range(5)], columns=["id", "t", "ia", "n"]))
    await acheck("copied records", c.fetch("select id, t, ia, n from ap where id >= 100 order by id"))
    await acheck("copy to table", c.copy_to_table("ap", source=io.BytesIO(b"200,x\n201,\n"), columns=["id", "t"], format="csv"))
    out = io.BytesIO()
    await acheck("copy from table", c.copy_from_query("select id, t from ap where id >= $1 order by id", 200, output=out, format="csv", header=True))
    show("copied", out.getvalue())
    out = io.BytesIO()
    await acheck("copy from table binary", c.copy_from_table("ap", columns=["id"], output=out, format="binary"))
    show("binary", (out.getvalue()[:21], len(out.getvalue())))
    await acheck("copy bad records", c.copy_records_to_table("ap", records=[(300,), (1,)], columns=["id"]))
    await acheck("copy kept nothing", c.fetchval("select count(*) from ap where id = 300"))

    for name, text, arguments in [
        ("unique", "insert into ap (id) values ($1)", (1,)), ("zero", "select 1 / $1", (0,)), ("no table", "select * from nothing_here", ()),
        ("arity", "select $1::int", ()), ("type", "select $1::int", ("x",)), ("several", "select 1; select 2 where $1", (True,)),
    ]:
        await acheck(f"error {name}", c.fetch(text, *arguments))
    await acheck("time-out", c.fetch("select pg_sleep(30)", timeout=0.3))
    await acheck("after time-out", c.fetchval("select 1"))
    await acheck("status", c.execute("set statement_timeout = '200ms'"))
    await acheck("statement_timeout", c.fetchval("select pg_sleep(10)"))
    await acheck("reset", c.reset())
    await acheck("was reset", c.fetchval("show statement_timeout"))

    heard = asyncio.Queue()
    await acheck("listener", c.add_listener("jobs", lambda _c, pid, channel, payload: heard.put_nowait((channel, payload))))
    async with asyncpg.create_pool(host=HOST, port=PORT, user=USER, database=DATABASE, min_size=2, max_size=2) as pool:
        await acheck("pool", pool.fetchval("select 1"))
        await acheck("notify", pool.execute("select pg_notify('jobs', 'from the pool')"))
        await acheck("heard", asyncio.wait_for(heard.get(), 5))
        await acheck("concurrent", asyncio.gather(*[pool.fetchval("select $1::int", n) for n in range(20)]))
    await acheck("remove listener", c.remove_listener("jobs", None))
    await acheck("schema change", c.fetch("select * from ap where id = 1"))
    await acheck("alter", c.execute("alter table ap drop column v"))
    await acheck("stale plan", c.fetchval("select count(*) from (select * from ap where id = 1) x"))
    await acheck("introspection", c.fetch("select attname, atttypid from pg_attribute where attrelid = 'ap'::regclass and attnum > 0 and not attisdropped order by attnum"))
    await acheck("codec", c.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"))
    await acheck("decoded", c.fetchval("select j from ap where id = 1"))
    await acheck("drop", c.execute("drop table ap"))
    await acheck("close", c.close())


asyncio.run(main())
