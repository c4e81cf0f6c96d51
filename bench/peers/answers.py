"""Compares answers as multisets.

Each answer is CSV of changes with a header: a column `weight`, or Tidemill's `change_kind`, says whether a row comes or
goes, and the answer is the rows that stay. Values compare by what they mean: numbers to a thousandth (an average is exact in one engine and a double in
another), times to the millisecond, anything else as text.
"""

from dataclasses import dataclass
from pathlib import Path

import duckdb


@dataclass
class Difference:
    rows: int
    """Rows of the one answer, up to where windows are closed."""
    only_here: int
    only_there: int


def compare(here: Path, there: Path, closed_by: str | None, closed_until: str) -> Difference:
    """Rows of `there` and how many of each are not in the other; `closed_by` names a column of both that bounds them."""
    connection = duckdb.connect()
    for name, path in (("here", here), ("there", there)):
        _load(connection, name, path, closed_by, closed_until)
    count = lambda sql: connection.execute(sql).fetchone()[0] or 0
    less = "SELECT CAST(sum(n) AS BIGINT) FROM (SELECT coalesce(a.n, 0) - coalesce(b.n, 0) AS n FROM {} a LEFT JOIN {} b ON a.line = b.line) WHERE n > 0"
    return Difference(
        rows=count("SELECT CAST(sum(n) AS BIGINT) FROM there"),
        only_here=count(less.format("here", "there")),
        only_there=count(less.format("there", "here")),
    )


def _load(connection: duckdb.DuckDBPyConnection, name: str, path: Path, closed_by: str | None, closed_until: str) -> None:
    """A table of lines, each the row's values in one text, and how often each is there."""
    files = f"{path}/*.csv" if path.is_dir() else str(path)
    source = f"read_csv('{files}', all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"')"
    columns = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]
    values = [_value(column) for column in columns if column not in ("weight", "change_kind", "batch_id")]
    weight = "CAST(weight AS BIGINT)"
    if "change_kind" in columns:
        weight = "CASE WHEN change_kind IN ('insert', 'update_after') THEN 1 ELSE -1 END"
    where = f"WHERE CAST({closed_by} AS TIMESTAMP) <= TIMESTAMP '{closed_until}'" if closed_by else ""
    connection.execute(
        f"""CREATE TABLE {name} AS
            SELECT concat_ws('|', {', '.join(values)}) AS line, CAST(sum({weight}) AS BIGINT) AS n
            FROM {source} {where} GROUP BY ALL HAVING n <> 0"""
    )


def _value(column: str) -> str:
    column = f'"{column}"'
    return (
        f"coalesce(CAST(round(TRY_CAST({column} AS DOUBLE), 3) AS VARCHAR), "
        f"CAST(epoch_ms(TRY_CAST({column} AS TIMESTAMP)) AS VARCHAR), {column}, '')"
    )
