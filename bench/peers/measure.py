"""Wall time, CPU time and peak memory of a command with all that it starts.

CPU time is what the kernel accounts to the processes when they have ended. A process whose parent ends first
(the JVM that Python starts for Spark) becomes a child of this one, so that nothing is missed.
"""

import ctypes
import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS = 0.1


@dataclass
class Cost:
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


class Failed(Exception):
    """The command ended with an error; the text is the end of what it wrote."""


def adopt_orphans() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def run(command: list[str], folder: Path, seconds_max: float) -> Cost:
    """Runs a command in a session of its own, in `folder`, where its output stays as `output.txt`."""
    output = folder / "output.txt"
    cpu_before = _cpu_seconds_of_children()
    started = time.monotonic()
    with output.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)
    status, peak_bytes, in_time = None, 0, True
    try:
        while True:
            time.sleep(SAMPLE_SECONDS)
            peak_bytes = max(peak_bytes, _resident_bytes(process.pid))
            ended = _reap()
            if ended is None:
                break
            status = ended.get(process.pid, status)
            if in_time and time.monotonic() - started > seconds_max:
                in_time = False
                os.killpg(process.pid, signal.SIGKILL)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    cost = Cost(time.monotonic() - started, _cpu_seconds_of_children() - cpu_before, peak_bytes)
    process.returncode = status
    if not in_time:
        raise Failed(f"not done after {seconds_max:.0f} s")
    if status != 0:
        raise Failed(output.read_text(errors="replace"))
    return cost


def _reap() -> dict[int, int] | None:
    """Children that have ended, with what they ended with; None when there are no children left."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            # The last ones are told first.
            return ended or None
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _resident_bytes(session: int) -> int:
    """Resident memory of all processes of a session."""
    total = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                total += int(Path(entry.path, "statm").read_text().split()[1]) * PAGE_BYTES
        except OSError:
            pass  # It has ended since the folder was listed.
    return total


def loads() -> str:
    """How busy the machine is: the load averages of one, five and fifteen minutes."""
    return ", ".join(f"{load:.1f}" for load in os.getloadavg())
