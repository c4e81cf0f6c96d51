"""Nexmark side by side: Tidemill, Spark Structured Streaming and Flink SQL over the same files on the same machine.

Each run is a process of its own that starts, reads all files with checkpoints, and ends. In a round the engines run one
after the other, so that ratios are of runs of the same minutes. `make bench-peers` sets everything up; what is measured
and how is in ../README.md.
"""

import argparse
import datetime
import os
import shutil
import signal
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

import answers
import measure
from engines import EVENTS_PER_SECOND, HERE, PEERS, STREAMS, Engine, Flink, Input, Query, Spark, Tidemill, queries

STARTED_AT = datetime.datetime(2015, 7, 15)
"""Event time of the generator's first event."""
OPEN_AT_END = datetime.timedelta(seconds=60)
"""Windows that end later may be open when the input ends: the watermark's delay, a window and a batch."""
START_UP_EVENTS = 1_000
COMPARED = queries(HERE / "spark.sql").keys() | queries(HERE / "flink.sql").keys()


@dataclass
class Outcome:
    """What an engine did with a query."""

    costs: list[measure.Cost] = field(default_factory=list)
    error: str | None = None
    answer: str = ""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tidemill", type=Path, required=True, metavar="BINARY")
    parser.add_argument("--events", type=int, default=5_000_000, help="events of all kinds")
    parser.add_argument("--files", type=int, default=20, help="files of each kind")
    parser.add_argument("--format", choices=("parquet", "json"), default="parquet")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--queries", default="", help="q1,q17: these only")
    parser.add_argument("--engines", default="spark,flink", help="peers to run; empty: Tidemill alone")
    parser.add_argument("--folder", type=Path, default=PEERS / "data", help="input and what runs write")
    parser.add_argument("--seconds-max", type=float, default=600, help="a run that takes longer is ended")
    return parser.parse_args()


class Bench:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.tidemill = Tidemill(options.tidemill.resolve())
        peers = {"spark": Spark, "flink": Flink}
        self.peers = [peers[name]() for name in options.engines.split(",") if name]
        self.engines = [self.tidemill, *self.peers]
        self.start_up = {}

    def chosen(self) -> list[Query]:
        names = self.options.queries.split(",") if self.options.queries else []
        is_asked = lambda name: name in COMPARED and (not names or name in names)
        return [query for name, query in self.tidemill.queries.items() if is_asked(name)]

    def input(self, events: int, files: int) -> Input:
        """The files, made once; also read once, so that they are in the page cache."""
        folder = self.options.folder / f"input-{events}-{files}"
        made = folder / f"{self.options.format}.done"
        if not made.exists():
            shutil.rmtree(folder / self.options.format, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            work = self.work_folder()
            measure.run(self.tidemill.input(work, self.options.format, events, files), work, self.options.seconds_max)
            for stream in STREAMS:
                shutil.copytree(work / self.options.format / stream.name, folder / self.options.format / stream.name)
            made.touch()
        for file in (folder / self.options.format).rglob("*.*"):
            file.read_bytes()
        return Input(folder, self.options.format, events)

    def work_folder(self) -> Path:
        folder = self.options.folder / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def once(self, engine: Engine, query: Query, input: Input, csv: Path | None = None) -> measure.Cost:
        folder = self.work_folder()
        command = engine.command(query, input, folder, csv if engine is not self.tidemill else None)
        cost = measure.run(command, folder, self.options.seconds_max)
        if csv and (answer := engine.answer(folder, csv)):
            measure.run(answer, folder, self.options.seconds_max)
        return cost

    def measure_start_up(self) -> None:
        """What an engine takes for next to no rows: processes, classes, a plan and a checkpoint."""
        input = self.input(START_UP_EVENTS, 2)
        for engine in self.engines:
            costs = [self.once(engine, engine.queries["q1"], input) for _ in range(self.options.runs)]
            self.start_up[engine.name] = statistics.median(cost.cpu_seconds for cost in costs)

    def check(self, query: Query, input: Input, outcomes: dict[str, Outcome]) -> None:
        """Whether the engines give the same answer; runs of their own, since writing an answer is not what is measured."""
        csv = {engine.name: self.options.folder / "answers" / engine.name for engine in self.engines}
        shutil.rmtree(self.options.folder / "answers", ignore_errors=True)
        (self.options.folder / "answers").mkdir()
        for engine in self.engines:
            outcome = outcomes[engine.name]
            if query.name not in engine.queries:
                outcome.error = "not asked"
                continue
            try:
                self.once(engine, engine.queries[query.name], input, csv[engine.name])
            except measure.Failed as failed:
                outcome.error = engine.error(str(failed))
        length = datetime.timedelta(seconds=input.events / EVENTS_PER_SECOND)
        closed_until = str(STARTED_AT + length - OPEN_AT_END)
        for peer in self.peers:
            outcome = outcomes[peer.name]
            if outcome.error or outcomes[self.tidemill.name].error:
                continue
            closed_by = peer.queries[query.name].closed_by
            differs = answers.compare(csv[self.tidemill.name], csv[peer.name], closed_by, closed_until)
            if differs.only_here or differs.only_there:
                outcome.answer = f"differs: {differs.only_here} rows missing, {differs.only_there} other, of {differs.rows}"
            else:
                outcome.answer = f"same {differs.rows} rows" + (", closed windows only" if closed_by else "")

    def measure(self, query: Query, input: Input) -> dict[str, Outcome]:
        outcomes = {engine.name: Outcome() for engine in self.engines}
        self.check(query, input, outcomes)
        for _ in range(self.options.runs):
            for engine in self.engines:
                outcome = outcomes[engine.name]
                if outcome.error is None:
                    outcome.costs.append(self.once(engine, engine.queries[query.name], input))
        return outcomes

    def rates(self, engine: Engine, outcome: Outcome, rows: int) -> list[float]:
        """Rows per CPU second of each run, without what starting takes."""
        return [rows / max(cost.cpu_seconds - self.start_up[engine.name], 0.01) for cost in outcome.costs]

    def row(self, query: Query, rows: int, outcomes: dict[str, Outcome]) -> str:
        own = self.rates(self.tidemill, outcomes[self.tidemill.name], rows)
        cells = [f"{query.name} {query.asks}", thousands(rows), failed(outcomes[self.tidemill.name]) or rate(own)]
        for peer in self.peers:
            outcome = outcomes[peer.name]
            if error := failed(outcome):
                cells += [error, ""]
                continue
            theirs = self.rates(peer, outcome, rows)
            cells += [rate(theirs), spread([a / b for a, b in zip(own, theirs)]) if own else ""]
        cells += ["; ".join(f"{peer.name}: {outcomes[peer.name].answer}" for peer in self.peers if outcomes[peer.name].answer)]
        return "| " + " | ".join(cells) + " |"

    def detail(self, query: Query, outcomes: dict[str, Outcome]) -> str:
        cells = [query.name]
        for engine in self.engines:
            costs = outcomes[engine.name].costs
            if not costs:
                cells += ["", "", ""]
                continue
            middle = lambda values: statistics.median(list(values))
            cells.append(f"{middle(c.wall_seconds for c in costs):.1f}")
            cells.append(f"{middle(c.cpu_seconds for c in costs):.1f}")
            cells.append(f"{max(c.peak_bytes for c in costs) / 1e6:.0f}")
        return "| " + " | ".join(cells) + " |"

    def run(self) -> None:
        options = self.options
        versions = ", ".join(f"{engine.name} {engine.version}" for engine in self.engines)
        say(f"{versions}; {options.events} events in {options.files} files of each kind, {options.format}, {options.runs} runs; ")
        say(f"{os.cpu_count()} cores, load averages before: {measure.loads()}")
        self.measure_start_up()
        start_up = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.start_up.items())
        say(f"CPU seconds of starting (q1 over {START_UP_EVENTS} events), left out of the rates: {start_up}\n")
        input = self.input(options.events, options.files)
        peers = "".join(f" {peer.name} | Tidemill : {peer.name} |" for peer in self.peers)
        say(f"| rows per CPU second | rows read | Tidemill |{peers} answers |")
        say("|---" * (4 + 2 * len(self.peers)) + "|")
        details = []
        for query in self.chosen():
            outcomes = self.measure(query, input)
            say(self.row(query, query.rows(options.events), outcomes))
            details.append(self.detail(query, outcomes))
        figures = "".join(f" {engine.name} s | CPU s | peak MB |" for engine in self.engines)
        say(f"\n| query |{figures}")
        say("|---" * (1 + 3 * len(self.engines)) + "|")
        for detail in details:
            say(detail)
        say(f"\nLoad averages after: {measure.loads()}")


def say(line: str) -> None:
    print(line, flush=True)


def thousands(number: float) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.0f} k"


def rate(rates: list[float]) -> str:
    return thousands(statistics.median(rates)) if rates else ""


def spread(ratios: list[float]) -> str:
    """The median of the runs' ratios, and the least and the greatest."""
    number = lambda ratio: f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
    middle = number(statistics.median(ratios))
    return middle if len(ratios) == 1 else f"{middle} ({number(min(ratios))}–{number(max(ratios))})"


def failed(outcome: Outcome) -> str | None:
    """An error in a few words that a cell of a table can hold."""
    if outcome.error is None:
        return None
    words = outcome.error.replace("|", "/").split()
    return " ".join(words)[:120]


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit("this needs Linux: it reads /proc")
    measure.adopt_orphans()
    # What runs is ended with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    Bench(arguments()).run()
