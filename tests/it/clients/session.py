"""What the Python clients share: each answer is one line, so that those of two servers compare.

A line is `name: answer`; an error is its SQLSTATE and message. Everything that differs between any two
servers (process ids, times) stays out of the answers.
"""

import os
import re

HOST = os.environ["PGHOST"]
PORT = int(os.environ["PGPORT"])
USER = os.environ["PGUSER"]
DATABASE = os.environ["PGDATABASE"]


def told(error):
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    original = getattr(error, "orig", None)
    if state is None and original is not None:
        return told(original)
    text = str(error).strip().splitlines()
    return f"error {state or type(error).__name__} {text[0] if text else ''}"


def show(name, value):
    print(f"{name}: {value!r}", flush=True)


def show_error(name, error):
    print(f"{name}: {told(error)}", flush=True)


def check(name, work):
    """Runs `work` and prints what it gives."""
    try:
        show(name, work())
    except Exception as error:  # any refusal of the server or the driver is an answer
        show_error(name, error)


async def acheck(name, work):
    """As `check`, for a coroutine."""
    try:
        show(name, await work)
    except Exception as error:
        show_error(name, error)
