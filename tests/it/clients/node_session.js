// node-postgres and postgres.js: text results, prepared statements, cursors, COPY, notifications, a pool.
"use strict";
const { Client, Pool, types } = require("pg");
const Cursor = require("pg-cursor");
const { from: copyFrom, to: copyTo } = require("pg-copy-streams");
const { pipeline } = require("node:stream/promises");
const { Readable } = require("node:stream");
const postgres = require("postgres");

const config = { host: process.env.PGHOST, port: +process.env.PGPORT, user: process.env.PGUSER, database: process.env.PGDATABASE };

async function check(name, work) {
  try {
    console.log(`${name}: ${JSON.stringify(await work(), (k, v) => (typeof v === "bigint" ? `${v}n` : v))}`);
  } catch (error) {
    console.log(`${name}: error ${error.code} ${error.message}`);
  }
}

async function nodePostgres() {
  const c = new Client(config);
  await c.connect();
  const rows = async (text, values) => (await c.query(text, values)).rows;
  const tag = async (text, values) => { const r = await c.query(text, values); return [r.command, r.rowCount]; };
  await check("create", () => tag("create table nd (id bigint primary key, i integer, n numeric(10,2), f float8, b boolean, t text, d date, tz timestamptz, ts timestamp, u uuid, j jsonb, by bytea, ia integer[], ta text[], iv interval)"));
  const values = [1, 2, "3.50", 1.5, true, "tëxt", "2024-02-29", new Date(Date.UTC(2024, 1, 29, 12)), "2024-02-29T12:30:00.000001", "12345678-1234-5678-1234-567812345678",
    { a: [1, null] }, Buffer.from([0, 255]), [1, null, 3], ["a", 'q"u,o', null], "1 day 02:00:00"];
  const holes = values.map((_, n) => `$${n + 1}`).join(",");
  await check("insert", () => tag(`insert into nd values (${holes})`, values));
  await check("insert null", () => tag("insert into nd (id, t, j) values ($1, $2, $3)", [2, null, null]));
  await check("select", () => rows("select * from nd order by id"));
  await check("fields", async () => (await c.query("select * from nd")).fields.map((f) => [f.name, f.dataTypeID, f.dataTypeSize, f.dataTypeModifier, f.columnID, f.tableID > 0, f.format]));
  await check("any", () => rows("select id from nd where id = any($1) order by id", [[1, 2]]));
  await check("any text", () => rows("select id from nd where t = any($1)", [["tëxt", 'x"y']]));
  await check("named", async () => { let r; for (let n = 0; n < 3; n++) r = await c.query({ name: "one", text: "select $1::int + 1 as x", values: [n] }); return r.rows; });
  await check("array mode", async () => (await c.query({ text: "select id, t from nd order by id", rowMode: "array" })).rows);
  await check("binary", async () => (await c.query({ text: "select id, i, f, b from nd where id = $1", values: [1], binary: true })).rows);
  await check("several", async () => (await c.query("select 1 as a; insert into nd (id) values (3); select 2 as b")).map((r) => [r.command, r.rowCount, r.rows]));
  await check("limit", () => rows("select id from nd order by id limit $1", [2]));
  await check("interval", () => rows("select iv, $1::interval as x from nd where id = 1", ["1 month 2 days"]));
  for (const [text, args] of [["select * from nothing_here"], ["selec"], ["select 1/$1::int", [0]], ["insert into nd (id) values ($1)", [1]], ["select $1::int", ["x"]], ["select $1", []]])
    await check(`error ${text}`, () => rows(text, args));
  await check("error fields", async () => { try { await c.query("insert into nd (id) values (1)"); } catch (e) { return [e.severity, e.code, e.table, e.constraint, e.schema, e.detail]; } });
  await check("fill", () => tag("insert into nd (id, i) select g, g from generate_series(100, 299) g"));
  await check("cursor", async () => {
    const cursor = c.query(new Cursor("select id from nd where id >= $1 order by id", [100]));
    const [first, second] = [await cursor.read(3), await cursor.read(50)];
    await cursor.close();
    return [first, second.length];
  });
  await check("after cursor", () => rows("select 1 as a"));
  await check("copy in", () => pipeline(Readable.from(["1000\tx\n1001", "\t\\N\n"]), c.query(copyFrom("copy nd (id, t) from stdin"))));
  await check("copy out", async () => {
    const parts = [];
    for await (const part of c.query(copyTo("copy (select id, t from nd where id >= 1000 order by id) to stdout"))) parts.push(part);
    return Buffer.concat(parts).toString();
  });
  await check("copy bad", () => pipeline(Readable.from(["1002\tx\nbad\ty\n"]), c.query(copyFrom("copy nd (id, t) from stdin"))));
  await check("copy kept nothing", () => rows("select count(*) from nd where id = 1002"));
  const heard = [];
  c.on("notification", (n) => heard.push([n.channel, n.payload]));
  await check("listen", () => tag("listen jobs"));
  const other = new Client(config);
  await other.connect();
  await check("notify", async () => (await other.query("select pg_notify($1, $2)", ["jobs", "x"])).rowCount);
  for (let n = 0; n < 100 && heard.length === 0; n++) await new Promise((done) => setTimeout(done, 20));
  console.log(`heard: ${JSON.stringify(heard)}`);
  await other.end();
  await check("transaction", async () => { await c.query("begin"); await c.query("delete from nd where id = 1"); await c.query("rollback"); return rows("select count(*) from nd where id = 1"); });
  await check("notice", () => new Promise((told) => { c.once("notice", (n) => told([n.severity, n.code, n.message])); c.query("drop table if exists not_there"); }));
  await check("statement_timeout", async () => { const d = new Client({ ...config, statement_timeout: 200 }); await d.connect(); try { return (await d.query("select pg_sleep(20)")).rows; } finally { await d.end(); } });
  await check("idle timeout", async () => {
    const d = new Client({ ...config, idle_in_transaction_session_timeout: 200 });
    const ended = new Promise((done) => d.on("error", (e) => done([e.code, e.message])));
    await d.connect();
    await d.query("begin");
    return ended;
  });
  const pool = new Pool({ ...config, max: 5 });
  await check("pool", async () => (await Promise.all([...Array(40).keys()].map((n) => pool.query("select $1::int as n", [n])))).reduce((sum, r) => sum + r.rows[0].n, 0));
  await pool.end();
  await check("drop", () => tag("drop table nd"));
  await c.end();
}

async function postgresJs() {
  const notices = [];
  const sql = postgres({ host: config.host, port: config.port, user: config.user, database: config.database, max: 3, onnotice: (n) => notices.push(n.code) });
  await check("js create", () => sql`create table pj (id bigint primary key, t text, ia integer[], j jsonb, tz timestamptz, n numeric)`);
  await check("js insert", () => sql`insert into pj ${sql([{ id: 1, t: "a", ia: [1, 2] }, { id: 2, t: null, ia: null }], "id", "t", "ia")}`);
  await check("js typed", () => sql`insert into pj (id, j, tz, n) values (${3}, ${sql.json({ a: 1 })}, ${new Date(Date.UTC(2024, 0, 1))}, ${"1.5"})`);
  await check("js select", () => sql`select id, t, ia, j, tz from pj order by id`);
  await check("js in", () => sql`select id from pj where id in ${sql([1, 3])} order by id`);
  await check("js any", () => sql`select id from pj where id = any(${[1, 2]}) order by id`);
  await check("js columns", async () => (await sql`select id, t from pj`).columns.map((c) => [c.name, c.type, c.number, c.table > 0]));
  await check("js update", async () => (await sql`update pj set ${sql({ t: "new" }, "t")} where id = ${2}`).count);
  await check("js begin", () => sql.begin(async (s) => { await s`insert into pj (id) values (50)`; await s.savepoint((t) => t`insert into pj (id) values (51)`.then(() => { throw new Error("no"); })).catch(() => {}); return s`select id from pj where id >= 50`; }));
  await check("js pipeline", () => sql.begin((s) => [s`select 1 as a`, s`select 2 as b`]));
  await check("js cursor", async () => { let n = 0; for await (const part of sql`select g from generate_series(1, 100) g`.cursor(7)) n += part.length; return n; });
  await check("js error", () => sql`select * from nothing_here where id = ${1}`);
  await check("js simple", () => sql`select 1 as a; select 2 as b`.simple());
  await check("js describe", async () => (await sql`select id, t from pj where id = ${1} and n > ${1}`.describe()).types);
  const heard = [];
  await check("js listen", async () => { await sql.listen("things", (p) => heard.push(p)); await sql.notify("things", "hello"); await new Promise((d) => setTimeout(d, 300)); return heard; });
  await check("js drop", () => sql`drop table pj`);
  await sql.end();
}

nodePostgres().then(postgresJs).catch((e) => { console.log("ended by", e); process.exit(1); });
