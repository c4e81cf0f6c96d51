import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** The JDBC driver: metadata, prepared statements in text and binary, cursors by fetch size, batches, COPY, notifications. */
public class Jdbc {
    interface Work { Object run() throws Exception; }

    static Connection c;

    static void check(String name, Work work) {
        try {
            System.out.println(name + ": " + show(work.run()));
        } catch (SQLException e) {
            System.out.println(name + ": error " + e.getSQLState() + " " + String.valueOf(e.getMessage()).split("\n")[0]);
        } catch (Exception e) {
            System.out.println(name + ": error " + e.getClass().getSimpleName() + " " + e.getMessage());
        }
    }

    static String show(Object o) throws SQLException {
        if (o instanceof java.sql.Array a) return show(a.getArray());
        if (o instanceof byte[] b) return HexFormat.of().formatHex(b);
        if (o instanceof Object[] a) {
            List<String> parts = new ArrayList<>();
            for (Object x : a) parts.add(show(x));
            return parts.toString();
        }
        if (o instanceof List<?> a) {
            List<String> parts = new ArrayList<>();
            for (Object x : a) parts.add(show(x));
            return parts.toString();
        }
        return o == null ? "null" : o.getClass().getSimpleName() + " " + o;
    }

    /** All rows; `columns` of them, or all where none are named. */
    static List<List<String>> rows(ResultSet r, String... columns) throws SQLException {
        List<List<String>> all = new ArrayList<>();
        while (r.next()) {
            List<String> row = new ArrayList<>();
            int n = columns.length == 0 ? r.getMetaData().getColumnCount() : columns.length;
            for (int i = 0; i < n; i++) {
                Object v = columns.length == 0 ? r.getObject(i + 1) : r.getObject(columns[i]);
                row.add(show(v));
            }
            all.add(row);
        }
        return all;
    }

    static List<List<String>> query(String sql, Object... args) throws SQLException {
        try (PreparedStatement p = c.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) p.setObject(i + 1, args[i]);
            return rows(p.executeQuery());
        }
    }

    static int run(String sql) throws SQLException {
        try (Statement s = c.createStatement()) { return s.executeUpdate(sql); }
    }

    public static void main(String[] a) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        String base = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        String url = base + "?user=" + System.getenv("PGUSER") + "&sslmode=disable";
        c = DriverManager.getConnection(url);
        DatabaseMetaData m = c.getMetaData();
        check("product", () -> List.of(m.getDatabaseProductName(), m.getDatabaseMajorVersion(), m.getDefaultTransactionIsolation(), m.getUserName()));
        check("create", () -> run("create table jd (id bigint primary key, i integer not null, s smallint, n numeric(12,3), f double precision, r real, b boolean,"
            + " t text, v varchar(20), d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, by bytea, ia integer[], ta text[], tm time)"));
        check("create view", () -> run("create view jd_view as select id, t from jd"));
        check("create materialized view", () -> run("create materialized view jd_mv as select i, count(*) as n from jd group by i"));
        check("create index", () -> run("create index jd_mv_n on jd_mv (n desc, i)"));
        check("comment", () -> run("comment on table jd is 'a table'"));
        check("comment column", () -> run("comment on column jd.t is 'a column'"));
        check("two keys", () -> run("create table jd2 (a bigint, b text, c integer default 5, primary key (b, a))"));

        check("getTables", () -> rows(m.getTables(null, "public", "jd%", new String[] {"TABLE", "VIEW", "MATERIALIZED VIEW"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"));
        check("getTables indexes", () -> rows(m.getTables(null, "public", "jd%", new String[] {"INDEX"}), "TABLE_NAME", "TABLE_TYPE"));
        check("getTableTypes", () -> rows(m.getTableTypes()).contains(List.of("String MATERIALIZED VIEW")));
        check("getColumns", () -> rows(m.getColumns(null, "public", "jd%", "%"), "TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE", "REMARKS", "COLUMN_DEF", "ORDINAL_POSITION", "IS_NULLABLE", "IS_AUTOINCREMENT"));
        check("getPrimaryKeys", () -> rows(m.getPrimaryKeys(null, "public", "jd2"), "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME"));
        check("getIndexInfo", () -> rows(m.getIndexInfo(null, "public", "jd2", false, false), "TABLE_NAME", "NON_UNIQUE", "INDEX_NAME", "TYPE", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC"));
        check("getIndexInfo view", () -> rows(m.getIndexInfo(null, "public", "jd_mv", false, false), "TABLE_NAME", "NON_UNIQUE", "INDEX_NAME", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC"));
        check("getSchemas", () -> rows(m.getSchemas(null, "pub%")));
        check("getCatalogs", () -> rows(m.getCatalogs()).contains(List.of("String " + c.getCatalog())));
        check("getImportedKeys", () -> rows(m.getImportedKeys(null, "public", "jd")));
        check("getExportedKeys", () -> rows(m.getExportedKeys(null, "public", "jd")));
        check("getBestRowIdentifier", () -> rows(m.getBestRowIdentifier(null, "public", "jd2", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME", "TYPE_NAME"));
        check("getVersionColumns", () -> rows(m.getVersionColumns(null, "public", "jd"), "COLUMN_NAME", "TYPE_NAME"));
        check("getTypeInfo", () -> {
            Set<String> wanted = Set.of("String int8", "String text", "String numeric", "String timestamptz", "String _int4", "String jsonb", "String uuid", "String bool");
            return rows(m.getTypeInfo(), "TYPE_NAME", "DATA_TYPE", "PRECISION", "SEARCHABLE").stream().filter(r -> wanted.contains(r.get(0))).sorted(Comparator.comparing(Object::toString)).toList();
        });
        check("getTablePrivileges", () -> rows(m.getTablePrivileges(null, "public", "jd"), "TABLE_NAME", "GRANTEE", "PRIVILEGE"));
        check("getColumnPrivileges", () -> rows(m.getColumnPrivileges(null, "public", "jd", "id"), "COLUMN_NAME", "PRIVILEGE"));
        check("getProcedures", () -> rows(m.getProcedures(null, "public", "%")));
        check("getFunctions", () -> rows(m.getFunctions(null, "public", "%")));
        check("getClientInfoProperties", () -> rows(m.getClientInfoProperties(), "NAME"));
        check("limits", () -> List.of(m.getMaxColumnNameLength(), m.getMaxIndexLength() >= 0, m.getSQLKeywords().length() > 0));

        String holes = String.join(",", Collections.nCopies(19, "?"));
        check("insert", () -> {
            try (PreparedStatement p = c.prepareStatement("insert into jd values (" + holes + ")")) {
                for (int id = 1; id <= 8; id++) {
                    p.setLong(1, id); p.setInt(2, id * 10); p.setShort(3, (short) id); p.setBigDecimal(4, new BigDecimal("12.345"));
                    p.setDouble(5, 1.5); p.setFloat(6, 0.25f); p.setBoolean(7, id % 2 == 0); p.setString(8, "tëxt"); p.setString(9, "vc");
                    p.setObject(10, LocalDate.of(2024, 2, 29)); p.setObject(11, LocalDateTime.of(2024, 2, 29, 12, 30, 15, 123456000));
                    p.setObject(12, OffsetDateTime.of(2024, 2, 29, 12, 30, 15, 5000000, ZoneOffset.UTC)); p.setObject(13, new org.postgresql.util.PGInterval("1 mon 2 days 03:04:05"));
                    p.setObject(14, new UUID(0, id)); p.setObject(15, "{\"a\": 1}", Types.OTHER); p.setBytes(16, new byte[] {0, -1});
                    p.setArray(17, c.createArrayOf("int4", new Object[] {1, null, 3})); p.setArray(18, c.createArrayOf("text", new Object[] {"a", "q\"u,o", null}));
                    p.setObject(19, LocalTime.of(23, 59, 59, 999999000));
                    p.executeUpdate();
                }
            }
            return query("select count(*) from jd");
        });
        check("select", () -> query("select * from jd where id = ?", 1L));
        check("nulls", () -> {
            try (PreparedStatement p = c.prepareStatement("insert into jd (id, i, t, n, ts) values (?, ?, ?, ?, ?)")) {
                p.setLong(1, 9); p.setInt(2, 1); p.setNull(3, Types.VARCHAR); p.setNull(4, Types.NUMERIC); p.setNull(5, Types.TIMESTAMP);
                return p.executeUpdate();
            }
        });
        // From the fifth execution on the driver uses a named statement, and binary results.
        check("binary", () -> {
            List<Object> told = new ArrayList<>();
            try (PreparedStatement p = c.prepareStatement("select id, i, s, n, f, r, b, t, d, ts, tz, u, by, ia, ta, tm, iv from jd where id = ?")) {
                for (int n = 1; n <= 8; n++) {
                    p.setLong(1, n);
                    told = new ArrayList<>(rows(p.executeQuery()));
                }
            }
            return told;
        });
        check("binary nulls", () -> {
            try (PreparedStatement p = c.prepareStatement("select s, n, f, d, ts, u, by, ia from jd where id = ?")) {
                for (int n = 0; n < 7; n++) { p.setLong(1, 9); if (n < 6) p.executeQuery().close(); }
                return rows(p.executeQuery());
            }
        });
        check("result metadata", () -> {
            try (PreparedStatement p = c.prepareStatement("select id, n, v as named, t || 'x', ts from jd where id = ?")) {
                ResultSetMetaData r = p.getMetaData();
                List<Object> told = new ArrayList<>();
                for (int i = 1; i <= r.getColumnCount(); i++)
                    told.add(List.of(r.getColumnName(i), r.getColumnLabel(i), r.getColumnTypeName(i), r.getPrecision(i), r.getScale(i), r.getColumnDisplaySize(i), r.getColumnClassName(i),
                        r.getTableName(i), r.isNullable(i), r.isAutoIncrement(i)));
                return told;
            }
        });
        check("parameter metadata", () -> {
            try (PreparedStatement p = c.prepareStatement("select id from jd where n > ? and t = ? and ts < ? limit ?")) {
                ParameterMetaData r = p.getParameterMetaData();
                List<Object> told = new ArrayList<>();
                for (int i = 1; i <= r.getParameterCount(); i++) told.add(r.getParameterTypeName(i));
                return told;
            }
        });
        check("typed getters", () -> {
            try (PreparedStatement p = c.prepareStatement("select d, ts, tz, tm from jd where id = 1"); ResultSet r = p.executeQuery()) {
                r.next();
                return List.of(r.getObject(1, LocalDate.class), r.getObject(2, LocalDateTime.class), r.getObject(3, OffsetDateTime.class), r.getObject(4, LocalTime.class), r.getTimestamp(3), r.getDate(1));
            }
        });

        check("batch", () -> {
            try (PreparedStatement p = c.prepareStatement("insert into jd2 (a, b) values (?, ?)")) {
                for (int n = 0; n < 500; n++) { p.setLong(1, n); p.setString(2, "b" + n % 3); p.addBatch(); }
                return Arrays.stream(p.executeBatch()).sum();
            }
        });
        try (Connection rewriting = DriverManager.getConnection(url + "&reWriteBatchedInserts=true")) {
            check("rewritten batch", () -> {
                try (PreparedStatement p = rewriting.prepareStatement("insert into jd2 (a, b) values (?, ?)")) {
                    for (int n = 1000; n < 1500; n++) { p.setLong(1, n); p.setString(2, "r"); p.addBatch(); }
                    return p.executeBatch().length;
                }
            });
        }
        check("failing batch", () -> {
            try (PreparedStatement p = c.prepareStatement("insert into jd2 (a, b) values (?, ?)")) {
                for (long n : new long[] {5000, 0, 5001}) { p.setLong(1, n); p.setString(2, "b0"); p.addBatch(); }
                return p.executeBatch();
            } catch (BatchUpdateException e) {
                return List.of(e.getSQLState(), e.getUpdateCounts().length);
            }
        });
        check("after batch", () -> query("select count(*), max(a) from jd2"));
        check("generated keys", () -> {
            try (PreparedStatement p = c.prepareStatement("insert into jd2 (a, b) values (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                p.setLong(1, 7000); p.setString(2, "k"); p.executeUpdate();
                return rows(p.getGeneratedKeys());
            }
        });
        check("fetch size", () -> {
            c.setAutoCommit(false);
            try (PreparedStatement p = c.prepareStatement("select a from jd2 order by a")) {
                p.setFetchSize(100);
                long sum = 0; int count = 0;
                try (ResultSet r = p.executeQuery()) { while (r.next()) { sum += r.getLong(1); count++; } }
                return List.of(sum, count);
            } finally { c.commit(); c.setAutoCommit(true); }
        });
        check("two open cursors", () -> {
            c.setAutoCommit(false);
            try (PreparedStatement p = c.prepareStatement("select a from jd2 order by a"); PreparedStatement q = c.prepareStatement("select id from jd order by id")) {
                p.setFetchSize(10); q.setFetchSize(2);
                ResultSet r = p.executeQuery(), s = q.executeQuery();
                int n = 0;
                while (s.next()) { r.next(); n += r.getInt(1) + s.getInt(1); }
                for (int i = 0; i < 30; i++) r.next();
                return List.of(n, r.getInt(1));
            } finally { c.commit(); c.setAutoCommit(true); }
        });
        check("scrollable", () -> {
            try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY); ResultSet r = s.executeQuery("select a from jd2 order by a")) {
                r.last(); int n = r.getRow(); r.absolute(5);
                return List.of(n, r.getInt(1), r.previous(), r.getInt(1));
            }
        });
        check("updatable", () -> {
            try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE); ResultSet r = s.executeQuery("select id, i, t from jd where id = 1")) {
                r.next(); r.updateString("t", "updated"); r.updateRow();
            }
            return query("select t from jd where id = 1");
        });
        check("max rows", () -> {
            try (Statement s = c.createStatement()) { s.setMaxRows(3); return rows(s.executeQuery("select a from jd2 order by a")); }
        });
        check("several", () -> {
            try (Statement s = c.createStatement()) {
                List<Object> told = new ArrayList<>();
                boolean isRows = s.execute("select 1; update jd set i = i where id < 3; select 'x'");
                for (;;) {
                    if (isRows) told.add(rows(s.getResultSet()));
                    else if (s.getUpdateCount() == -1) break;
                    else told.add(s.getUpdateCount());
                    isRows = s.getMoreResults();
                }
                return told;
            }
        });
        check("savepoints", () -> {
            c.setAutoCommit(false);
            try {
                run("insert into jd2 (a, b) values (9000, 's')");
                Savepoint s = c.setSavepoint("here");
                run("insert into jd2 (a, b) values (9001, 's')");
                c.rollback(s);
                c.commit();
                return query("select a from jd2 where a >= 9000");
            } finally { c.setAutoCommit(true); }
        });
        check("isolation", () -> {
            c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            int was = c.getTransactionIsolation();
            c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            return List.of(was, c.getTransactionIsolation());
        });
        check("read only", () -> {
            c.setReadOnly(true);
            c.setAutoCommit(false);
            try { return run("delete from jd2"); } finally { c.rollback(); c.setAutoCommit(true); c.setReadOnly(false); }
        });
        check("schema", () -> List.of(c.getSchema(), c.getCatalog(), c.isValid(5)));
        check("set schema", () -> { c.setSchema("public"); return c.getSchema(); });
        check("query timeout", () -> {
            try (Statement s = c.createStatement()) { s.setQueryTimeout(1); return rows(s.executeQuery("select pg_sleep(30)")); }
        });
        check("cancel", () -> {
            try (Statement s = c.createStatement()) {
                new Thread(() -> { try { Thread.sleep(300); s.cancel(); } catch (Exception e) { throw new RuntimeException(e); } }).start();
                return rows(s.executeQuery("select pg_sleep(30)"));
            }
        });
        for (String sql : new String[] {"select * from nothing_here", "selec", "select 1/0", "insert into jd2 (a, b) values (1, 'b1')", "select 'x'::int", "insert into jd (id) values (77)"})
            check("error " + sql, () -> query(sql));
        check("autosave", () -> {
            try (Connection saving = DriverManager.getConnection(url + "&autosave=always")) {
                saving.setAutoCommit(false);
                try (Statement s = saving.createStatement()) {
                    s.executeUpdate("insert into jd2 (a, b) values (9500, 'x')");
                    try { s.executeUpdate("insert into jd2 (a, b) values (9500, 'x')"); } catch (SQLException e) { }
                    ResultSet r = s.executeQuery("select count(*) from jd2 where a = 9500");
                    r.next();
                    return r.getInt(1);
                }
            }
        });
        for (String mode : new String[] {"simple", "extendedForPrepared", "extendedCacheEverything"})
            check("mode " + mode, () -> {
                try (Connection d = DriverManager.getConnection(url + "&preferQueryMode=" + mode); PreparedStatement p = d.prepareStatement("select id, t from jd where id = ? or t = ? order by id")) {
                    List<Object> told = new ArrayList<>();
                    for (int n = 0; n < 6; n++) { p.setLong(1, 2); p.setString(2, "it's"); told = new ArrayList<>(rows(p.executeQuery())); }
                    return told;
                }
            });
        check("schema parameter", () -> {
            try (Connection d = DriverManager.getConnection(url + "&currentSchema=public&options=-c%20statement_timeout=1234&ApplicationName=jd")) {
                try (Statement s = d.createStatement()) {
                    return List.of(rows(s.executeQuery("show statement_timeout")), rows(s.executeQuery("show application_name")), d.getSchema());
                }
            }
        });
        check("stale plan", () -> {
            try (PreparedStatement p = c.prepareStatement("select * from jd2 where a = ?")) {
                for (int n = 0; n < 7; n++) { p.setLong(1, 7000); p.executeQuery().close(); }
                run("alter table jd2 add column extra integer");
                p.setLong(1, 7000);
                return rows(p.executeQuery());
            }
        });

        CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
        check("copy in", () -> copy.copyIn("copy jd2 (a, b, c) from stdin with (format csv)", new StringReader("10000,x,1\n10001,\"y,z\",\n")));
        check("copy out", () -> { StringWriter w = new StringWriter(); copy.copyOut("copy (select a, b, c from jd2 where a >= 10000 order by a) to stdout", w); return w.toString(); });
        check("copy bad", () -> copy.copyIn("copy jd2 (a, b) from stdin", new StringReader("10002\tx\nx\ty\n")));
        check("copy kept nothing", () -> query("select count(*) from jd2 where a = 10002"));

        PGConnection pg = c.unwrap(PGConnection.class);
        check("listen", () -> run("listen jobs"));
        check("notify", () -> run("notify jobs, 'hello'"));
        check("notified", () -> { var n = pg.getNotifications(3000); return List.of(n[0].getName(), n[0].getParameter(), n[0].getPID() == pg.getBackendPID()); });
        check("notified from afar", () -> {
            new Thread(() -> { try (Connection d = DriverManager.getConnection(url); Statement s = d.createStatement()) { Thread.sleep(200); s.execute("select pg_notify('jobs', 'afar')"); } catch (Exception e) { throw new RuntimeException(e); } }).start();
            var n = pg.getNotifications(5000);
            return n.length + n[0].getParameter();
        });
        check("warnings", () -> { try (Statement s = c.createStatement()) { s.execute("drop table if exists not_there"); return s.getWarnings().getMessage(); } });
        check("drop", () -> run("drop materialized view jd_mv; drop view jd_view; drop table jd; drop table jd2"));
        c.close();
    }
}
