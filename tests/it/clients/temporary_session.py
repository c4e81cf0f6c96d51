"""Temporary tables: whose they are, what they hide, when they and their rows go."""

import io

import psycopg2

from session import DATABASE, HOST, PORT, USER, check, show


def connect():
    connection = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
    connection.autocommit = True
    return connection


c = connect()
other = connect()
cur = c.cursor()
other_cur = other.cursor()


def run(sql, cursor=cur):
    def work():
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else cursor.statusmessage

    check(sql, work)


def copy_in(sql, text):
    check(sql, lambda: (cur.copy_expert(sql, io.StringIO(text)), cur.statusmessage)[1])


def copy_out(sql):
    def work():
        out = io.StringIO()
        cur.copy_expert(sql, out)
        return out.getvalue()

    check(sql, work)


run("create table tt (id int primary key, what text)")
run("insert into tt values (1, 'permanent'), (2, 'permanent')")

# Hiding, and reaching what is hidden.
run("create temp table tt (id int primary key, what text default 'd', n numeric(8,2) not null default 0)")
run("create temp table tt (a int)")
run("create temporary table if not exists tt (a int)")
run("insert into tt values (1, 'temporary')")
run("insert into tt (id) values (2), (3) returning id, what, n")
run("insert into tt values (1, 'again')")
run("insert into tt values (1, 'updated', 1) on conflict (id) do update set what = excluded.what, n = excluded.n returning *")
run("select * from tt order by id")
run("select * from public.tt order by id")
run("select * from pg_temp.tt order by id")
run("select tt.what, p.what from tt join public.tt p using (id) order by id")
run("select tt.id from tt where exists (select from public.tt p where p.id = tt.id) order by 1")
run("with tt as (select 5 as id) select * from tt")
run("update tt set n = n + 1, what = 'u' where id > 1")
run("update public.tt set what = 'changed' where id = 2")
run("delete from tt using public.tt p where p.id = tt.id and p.id = 1 returning tt.id")
run("delete from public.tt where id = 1")
run("insert into public.tt values (7, 'seven')")
run("select * from tt order by id")
run("select * from public.tt order by id")
run("select * from tt order by id", other_cur)
run("select * from pg_temp.tt", other_cur)

# In the catalog.
run("select 'tt'::regclass = 'pg_temp.tt'::regclass, 'tt'::regclass::text, 'public.tt'::regclass::text")
run("select relpersistence, relkind, n.nspname ~ '^pg_temp_' from pg_class c join pg_namespace n on n.oid = relnamespace where relname = 'tt' order by 1")
run("select pg_table_is_visible('tt'::regclass), pg_table_is_visible('public.tt'::regclass)")
run("select table_type, table_schema ~ '^pg_temp' from information_schema.tables where table_name = 'tt' order by 1")
run("select column_name, data_type, is_nullable from information_schema.columns where table_name = 'tt' and table_schema <> 'public' order by ordinal_position")
run("select relnamespace = pg_my_temp_schema(), pg_is_other_temp_schema(relnamespace) from pg_class where oid = 'tt'::regclass")
run("select current_schemas(true)::text ~ 'pg_temp_', current_schemas(false)::text")
run("select has_table_privilege('tt', 'insert'), pg_my_temp_schema() <> 0")

# Transactions and savepoints.
run("begin")
run("create temp table kept (id int, a text)")
run("insert into kept values (1, 'x'), (1, 'x'), (2, null)")
run("savepoint s")
run("delete from kept where id = 1")
run("create temp table undone as select 1 as a")
run("insert into tt values (50, 'undone')")
run("select count(*) from kept")
run("rollback to s")
run("select count(*) from kept")
run("select * from undone")
run("rollback to s")
run("insert into public.tt values (8, 'with it')")
run("commit")
run("select id, a, count(*) from kept group by 1, 2 order by 1")
run("select * from tt where id = 50")
run("begin")
run("drop table kept")
run("insert into tt values (60, 'x')")
run("truncate tt")
run("select count(*) from tt")
run("rollback")
run("select (select count(*) from kept), (select count(*) from tt)")
run("begin; create temp table gone (a int); insert into gone values (1); rollback")
run("select * from gone")
run("begin; insert into tt values (70, 'a'); insert into tt values (70, 'b'); commit")
run("rollback")
run("select count(*) from tt where id = 70")

# At the end of a transaction.
run("create temp table cleared (a int) on commit delete rows")
run("begin")
run("insert into cleared values (1), (2)")
run("select * from cleared order by 1")
run("commit")
run("select * from cleared")
run("insert into cleared values (3)")
run("select * from cleared")
copy_in("copy cleared from stdin", "1\n2\n")
run("select count(*) from cleared")
run("begin")
run("create temp table short (a int) on commit drop")
run("insert into short values (1)")
run("select * from short")
run("commit")
run("select * from short")
run("create temp table short on commit drop as select 1 as a")
run("select * from short")
run("create temp table stays on commit preserve rows as select 1 as a")
run("select * from stays")

# From queries, also from what the new table hides.
run("create temp table made (k, v) as select id, what from public.tt")
run("select * from made order by k")
run("create table hidden (a int); insert into hidden values (1), (2)")
run("create temp table hidden as select a + 10 as a from hidden")
run("select * from hidden order by a")
run("create temp table empty as select * from tt with no data")
run("select count(*) from empty")
run("create temp table empty2 as select 1 as a with data")

# COPY, prepared statements, ALTER, names.
copy_in("copy made from stdin with (format csv)", "20,twenty\n21,\n")
copy_in("copy public.tt (id, what) from stdin", "30\tthirty\n")
copy_out("copy made (k, v) to stdout with (format csv)")
copy_out("copy hidden to stdout")
copy_out("copy public.hidden to stdout")
copy_out("copy (select count(*) from made) to stdout")
run("prepare p as select count(*) from kept where id = $1")
run("execute p (1)")
run("insert into kept values (1, 'y')")
run("execute p (1)")
run("alter table made add column extra int default 5")
run("select * from made where k = 20")
run("alter table made rename column v to name")
run("update made set extra = extra + 1 where name is null returning *")
run("alter table made rename to renamed")
run("select count(*) from renamed")
run("select count(*) from made")
run("alter table renamed rename to tt")
run("comment on table renamed is 'mine'")
run("select obj_description('renamed'::regclass, 'pg_class')")
run("declare held cursor with hold for select k from renamed order by k")
run("fetch 1 from held")
run("close held")
run("begin read only")
run("insert into renamed values (99, 'r', 1)")
run("insert into public.tt values (99, 'r')")
run("rollback")
run("begin read only; insert into renamed values (98, 'r', 1); commit")
run("select count(*) from renamed where k = 98")

# What PostgreSQL refuses too.
run("create temp table public.wrong (a int)")
run("create table wrong (a int) on commit drop")
run("create materialized view wrong as select * from kept")
run("create materialized view wrong as select * from public.tt t where id in (select id from kept)")
run("select * from pg_temp.nosuch")
run("drop table pg_temp.nosuch")
run("drop table if exists pg_temp.nosuch")
run("insert into pg_temp.nosuch values (1)")
run("truncate pg_temp.nosuch")

# Dropping: the temporary one first.
run("drop table public.hidden")
run("select count(*) from hidden")
run("drop table hidden")
run("select count(*) from hidden")
run("create table pg_temp.placed (a int)")
run("select relpersistence from pg_class where oid = 'placed'::regclass")
run("create local temp table placed2 (a int)")
run("drop table placed, placed2, pg_temp.kept")
run("discard temp")
run("select count(*) from tt")
run("select * from renamed")
run("select pg_my_temp_schema() = 0 or not exists (select from pg_class where relnamespace = pg_my_temp_schema())")
run("create temp table once (a int)")
run("discard all")
run("select * from once")

# Another session has its own, and they go with it.
run("create temp table own as select 'one' as s")
run("create temp table own as select 'two' as s", other_cur)
run("select s from own")
run("select s from own", other_cur)
other.close()
third = connect()
run("select s from own", third.cursor())
run("select s from own")
run("drop table tt")

# Views of the session, which hide and are hidden as tables are.
run("create table vt (id int primary key, what text)")
run("insert into vt values (1, 'permanent'), (2, 'permanent')")
run("create temp view seen as select id, what from vt where id > 1")
run("create temp view seen as select 1 as id")
run("create or replace temp view seen as select id, what, id * 2 as twice from vt where id > 1")
run("select * from seen")
run("select * from seen", third.cursor())
run("select relkind, relpersistence, relnamespace = pg_my_temp_schema() from pg_class where relname = 'seen'")
run("select pg_get_viewdef('seen'::regclass) like '%FROM%vt%'")
run("create temp table vt (id int, n int)")
run("insert into vt values (7, 70), (8, 80)")
run("select * from seen")
run("create view over_temp as select vt.id, vt.n from vt where vt.id > 7")
run("select relpersistence from pg_class where relname = 'over_temp'")
run("select * from over_temp")
run("create view over_view as select n + 1 as more from over_temp")
run("select * from over_view")
run("create materialized view stored as select * from over_temp")
run("create materialized view stored as select * from seen")
run("drop table vt")
run("drop view over_temp")
run("create view pg_temp.placed_view as select 3 as a")
run("select * from placed_view")
run("create temp view public.wrong as select 1 as a")
run("alter table pg_temp.vt rename to vt_renamed")
run("select * from over_view")
run("alter view over_temp rename to over_renamed")
run("select * from over_view")
run("insert into vt_renamed values (9, 90)")
run("select * from over_view order by 1")
run("begin; drop view over_view; rollback")
run("select count(*) from over_view")
run("begin; create temp table short (a int) on commit drop; create view over_short as select a from short; insert into short values (1); select * from over_short")
run("commit")
run("select * from over_short")
run("comment on view seen is 'looked at'")
run("select obj_description('seen'::regclass, 'pg_class')")
run("drop table vt_renamed cascade")
run("select * from over_view")
run("drop table vt")
run("drop view seen, placed_view")
run("drop table vt")
