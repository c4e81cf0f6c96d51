import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs one query of Flink SQL over a folder of files to its end, in this JVM: into a blackhole, or
 * into a CSV file of changes, each with its weight.
 *
 * <p>Arguments: a file of settings ({@code key: value} lines), one of table definitions, one with the query, and
 * perhaps the CSV file. One JVM is the smallest that Flink can be: no client, no RPC between processes.
 */
public final class FlinkQuery {
    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(settings(Path.of(arguments[0])));
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        for (String definition : Files.readString(Path.of(arguments[1])).split(";")) {
            if (!definition.isBlank()) {
                tables.executeSql(definition);
            }
        }
        Table result = tables.sqlQuery(Files.readString(Path.of(arguments[2])));
        if (arguments.length == 3) {
            result.insertInto(TableDescriptor.forConnector("blackhole").build()).execute().await();
        } else {
            writeChanges(result, Path.of(arguments[3]));
        }
        // Threads of the mini cluster would keep the JVM for a while.
        System.exit(0);
    }

    private static Configuration settings(Path file) throws Exception {
        Configuration settings = new Configuration();
        for (String line : Files.readAllLines(file)) {
            String[] parts = line.split(": ", 2);
            settings.setString(parts[0], parts[1]);
        }
        return settings;
    }

    private static void writeChanges(Table result, Path file) throws Exception {
        Map<String, Integer> weights = Map.of("+I", 1, "+U", 1, "-U", -1, "-D", -1);
        try (CloseableIterator<Row> rows = result.execute().collect();
                BufferedWriter out = Files.newBufferedWriter(file)) {
            List<String> names = new ArrayList<>(result.getResolvedSchema().getColumnNames());
            names.add("weight");
            out.write(String.join(",", names) + "\n");
            while (rows.hasNext()) {
                Row row = rows.next();
                StringBuilder line = new StringBuilder();
                for (int i = 0; i < row.getArity(); i++) {
                    Object value = row.getField(i);
                    if (value != null) {
                        line.append('"').append(value.toString().replace("\"", "\"\"")).append('"');
                    }
                    line.append(',');
                }
                out.write(line.append(weights.get(row.getKind().shortString())).append('\n').toString());
            }
        }
    }
}
