"""What each engine needs for a query over the files: its command, settings and queries.

All get the same files, two cores, and as many files a batch; state in RocksDB, checkpoints on local disk.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = Path(os.environ.get("TIDEMILL_TOOLS", Path.home() / ".cache/tidemill-tools"))
PEERS = TOOLS / "peers"

EVENTS_PER_EPOCH = 50
EVENTS_PER_SECOND = 1000
"""Of event time: every event has a millisecond of its own, the finest that Flink's watermarks know."""
FILES_PER_BATCH = 2
MEMORY = "4g"
THREADS = 2


@dataclass(frozen=True)
class Stream:
    name: str
    per_epoch: int
    columns: tuple[tuple[str, str], ...]

    def sql_columns(self, types: dict[str, str]) -> str:
        return ", ".join(f"{name} {types[type]}" for name, type in self.columns)


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, type) for name, type in (column.split() for column in text.split(", ")))


STREAMS = (
    Stream("person", 1, _columns("id BIGINT, name TEXT, email_address TEXT, credit_card TEXT, city TEXT, state TEXT, date_time TIMESTAMP, extra TEXT")),
    Stream("auction", 3, _columns("id BIGINT, item_name TEXT, description TEXT, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra TEXT")),
    Stream("bid", 46, _columns("auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP, extra TEXT")),
)


@dataclass(frozen=True)
class Query:
    name: str
    asks: str
    select: str
    mode: str = "append"
    keys: tuple[str, ...] = ()
    closed_by: str | None = None

    def streams(self) -> list[Stream]:
        reads = lambda stream: re.search(rf"\b(FROM|JOIN|TABLE|TUMBLE\(|HOP\()\s*{stream}\b", self.select)
        return [stream for stream in STREAMS if reads(stream.name)]

    def rows(self, events: int) -> int:
        return sum(events * stream.per_epoch // EVENTS_PER_EPOCH for stream in self.streams())


def queries(file: Path) -> dict[str, Query]:
    """Sections `-- qN (mode …): what it asks`, each followed by a SELECT."""
    found = {}
    head = re.compile(r"^-- (q\d+)(?: \((\w+)(?: by ([\w, ]+?))?(?:, closed by (\w+))?\))?: (.*)$", re.MULTILINE)
    text = file.read_text()
    heads = list(head.finditer(text))
    for this, following in zip(heads, heads[1:] + [None]):
        select = text[this.end() : following.start() if following else None].strip().rstrip(";")
        name, mode, keys, closed_by, asks = this.groups()
        keys = tuple(keys.split(", ")) if keys else ()
        found[name] = Query(name, asks, select, mode or "append", keys, closed_by)
    return found


@dataclass
class Input:
    folder: Path
    format: str
    events: int

    def location(self, stream: Stream) -> Path:
        return self.folder / self.format / stream.name


@dataclass
class Engine:
    name: str
    version: str
    queries: dict[str, Query] = field(default_factory=dict)

    def command(self, query: Query, input: Input, folder: Path, csv: Path | None) -> list[str]:
        """Writes what the engine needs into `folder`; the command runs the query to the end of the input."""
        raise NotImplementedError

    def answer(self, folder: Path, csv: Path) -> list[str] | None:
        """A command that writes the answer of a run without `csv`, for engines that keep it."""
        return None

    def error(self, output: str) -> str:
        """The line of the output that says what was wrong."""
        raise NotImplementedError


class Tidemill(Engine):
    def __init__(self, binary: Path):
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        super().__init__("Tidemill", version.split()[-1], queries(HERE.parent / "nexmark.sql"))
        self.binary = binary

    def _run(self, folder: Path, name: str, script: str) -> list[str]:
        (folder / name).write_text(script)
        return [str(self.binary), "run", str(folder / name), "--data", str(folder / "data")]

    def command(self, query: Query, input: Input, folder: Path, csv: Path | None) -> list[str]:
        types = {"BIGINT": "BIGINT", "TEXT": "TEXT", "TIMESTAMP": "TIMESTAMP"}
        script = "".join(
            f"CREATE STREAM {stream.name} ({stream.sql_columns(types)}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')"
            f" WITH (connector = 'files', location = '{input.location(stream)}', format = '{input.format}',"
            f" max_files_per_trigger = {FILES_PER_BATCH});\n"
            for stream in query.streams()
        )
        script += f"CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS {query.select};\nREFRESH MATERIALIZED VIEW v;\n"
        return self._run(folder, "query.sql", script)

    def answer(self, folder: Path, csv: Path) -> list[str]:
        sink = f"connector = 'files', location = '{csv}', format = 'csv', header = true, mode = 'changelog'"
        return self._run(folder, "answer.sql", f"CREATE SINK k FROM v WITH ({sink});\n")

    def input(self, folder: Path, format: str, events: int, files: int) -> list[str]:
        """The command that makes the input."""
        types = {"BIGINT": "BIGINT", "TEXT": "TEXT", "TIMESTAMP": "TIMESTAMP"}
        script = ""
        for stream in STREAMS:
            rows_per_file = events * stream.per_epoch // EVENTS_PER_EPOCH // files
            script += (
                f"CREATE STREAM {stream.name} ({stream.sql_columns(types)}) WITH (connector = 'generator', kind = 'nexmark',"
                f" event = '{stream.name}', rows = {events}, event_rate = {EVENTS_PER_SECOND}, max_offsets_per_trigger = {rows_per_file});\n"
                f"BEGIN; CREATE MATERIALIZED VIEW {stream.name}s WITH (trigger = 'continuous') AS SELECT * FROM {stream.name};\n"
                f"CREATE SINK {stream.name}_files FROM {stream.name}s WITH (connector = 'files',"
                f" location = '{folder / format / stream.name}', format = '{format}'); COMMIT;\n"
                f"REFRESH MATERIALIZED VIEW {stream.name}s;\n"
            )
        return self._run(folder, f"{format}.sql", script)

    def error(self, output: str) -> str:
        return _first_line(output, r"(?i)error")


class Spark(Engine):
    SETTINGS = {
        "spark.driver.memory": MEMORY,
        "spark.sql.shuffle.partitions": str(THREADS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }

    def __init__(self):
        self.python = PEERS / "python/bin/python"
        version = subprocess.run([self.python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True)
        super().__init__("Spark", version.stdout.strip(), queries(HERE / "spark.sql"))

    def command(self, query: Query, input: Input, folder: Path, csv: Path | None) -> list[str]:
        types = {"BIGINT": "BIGINT", "TEXT": "STRING", "TIMESTAMP": "TIMESTAMP"}
        plan = {
            "master": f"local[{THREADS}]",
            "settings": self.SETTINGS | {"spark.local.dir": str(folder / "local")},
            "streams": [
                {"name": stream.name, "columns": stream.sql_columns(types), "location": str(input.location(stream))}
                for stream in query.streams()
            ],
            "format": input.format,
            "files_per_batch": FILES_PER_BATCH,
            "query": query.select,
            "mode": query.mode,
            "keys": query.keys,
            "checkpoint": str(folder / "checkpoint"),
            "csv": str(csv) if csv else None,
        }
        (folder / "plan.json").write_text(json.dumps(plan, indent=1))
        return [str(self.python), str(HERE / "spark_query.py"), str(folder / "plan.json")]

    def error(self, output: str) -> str:
        return _first_line(output, r"^(pyspark\.errors\S*Exception|py4j\S*Error|\S*Exception|\S*Error): ?")


class Flink(Engine):
    SETTINGS = {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": str(THREADS),
        "pipeline.object-reuse": "true",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.interval": "5 s",
        "taskmanager.memory.managed.size": "2g",
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "table.optimizer.distinct-agg.split.enabled": "true",
    }
    HEAP = "4g"

    def __init__(self):
        jars = PEERS / "flink/jars"
        version = next(jars.glob("flink-core-[0-9]*.jar")).stem.removeprefix("flink-core-")
        super().__init__("Flink", version, queries(HERE / "flink.sql"))
        self.classes = PEERS / "flink/classes"
        sources = [str(path) for path in sorted((HERE / "flink").rglob("*.java"))]
        subprocess.run(["javac", "-nowarn", "-d", self.classes, "-cp", f"{jars}/*", *sources], check=True)
        # Our classes come first: one of them stands for one of Flink's.
        self.class_path = f"{self.classes}:{jars}/*"

    def command(self, query: Query, input: Input, folder: Path, csv: Path | None) -> list[str]:
        types = {"BIGINT": "BIGINT", "TEXT": "STRING", "TIMESTAMP": "TIMESTAMP(3)"}
        of_format = {"parquet": "'parquet.utc-timezone' = 'true'", "json": "'json.timestamp-format.standard' = 'ISO-8601'"}
        tables = "".join(
            f"CREATE TABLE {stream.name} ({stream.sql_columns(types)}, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)"
            f" WITH ('connector' = 'filesystem', 'path' = 'file://{input.location(stream)}', 'format' = '{input.format}',"
            f" {of_format[input.format]});\n"
            for stream in query.streams()
        )
        settings = self.SETTINGS | {"execution.checkpointing.dir": f"file://{folder / 'checkpoint'}", "io.tmp.dirs": str(folder / "local")}
        (folder / "settings").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        (folder / "tables.sql").write_text(tables)
        (folder / "query.sql").write_text(query.select)
        files = [str(folder / name) for name in ("settings", "tables.sql", "query.sql")] + ([str(csv)] if csv else [])
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.nio", "sun.nio.ch")]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return ["java", f"-Xmx{self.HEAP}", *opened, quiet, "-cp", self.class_path, "FlinkQuery", *files]

    def error(self, output: str) -> str:
        causes = re.findall(r"^Caused by: (.*)$", output, re.MULTILINE)
        return _without_packages(causes[-1]) if causes else _first_line(output, r"(Exception|Error)")


def _first_line(output: str, pattern: str) -> str:
    lines = output.splitlines()
    told = [line for line in lines if re.search(pattern, line)]
    return _without_packages((told or lines or ["no output"])[0].strip())


def _without_packages(error: str) -> str:
    """`org.example.SomeException: words` as `SomeException: words`."""
    return re.sub(r"^(?:\w+\.)+(?=\w+:)", "", error)
