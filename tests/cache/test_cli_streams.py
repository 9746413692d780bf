"""What a command prints, where nobody reads it, there is no room, or signs are missing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys

import pytest

from soma import Filter, Graph
from soma.cli.root import run
from soma.contracts import Finding
from support.cache_cli import new_store

CLOSED = 141
"""What a shell reports for a process that SIGPIPE has ended."""
COMMANDS = (
    *("--help", "plugins list --all", "plugins list --json", "runs list", "graph m:g", "doctor"),
    *("doctor --json", "estimate m:g", "cache", "cache stats", "cache verify", "cache pins"),
    *("cache path", "cache purge-v1", "cache gc --max-size 1G --json", "cache show --help"),
)
SIGN = "größe 🎉"


class Step(Filter):
    def forward(self, x, state):
        return x


@pytest.fixture(autouse=True)
def prepared(monkeypatch, folder, tmp_path):
    """A graph that each command finds, a cache, and a doctor with one thing to say."""
    g = Graph()
    g.node(SIGN, Step())
    for room in ("graph", "estimate"):
        monkeypatch.setattr(f"soma.cli.{room}.load_object", lambda target: g)
    found = [("cache", Finding(about=SIGN, state="fine", text=SIGN))]
    monkeypatch.setattr("soma.cli.doctor.examine", lambda: found)
    monkeypatch.chdir(tmp_path)
    new_store(folder)


def said(command, out):
    """Run a command with that standard output; return its status, and what is on the other."""
    err = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(command.split())
    err.flush()
    return status, err.buffer.getvalue().decode()


@contextlib.contextmanager
def pipe_that_nobody_reads():
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out:  # noqa: PTH123  # a descriptor
        yield out


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_reads(command):
    with pipe_that_nobody_reads() as out:
        assert said(command, out) == (CLOSED, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_there_is_no_room(command):
    with open("/dev/full", "w") as out:  # noqa: PTH123  # as others are opened here
        status, err = said(command, out)
    assert status == 1
    assert err == ("Error: what was to be printed could not be written: No space left on device\n")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("command", ["graph m:g", "estimate m:g", "doctor"])
def test_a_sign_that_is_not_in_the_encoding(command, encoding):
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    assert said(command, out) == (0, "")
    out.flush()
    assert "größe \\U0001f389" in out.buffer.getvalue().decode(encoding)


def test_an_error_of_something_else_is_not_taken_for_one_of_the_stream(monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("soma_cache.cli.stats.survey", full)
    out = io.StringIO()
    assert said("cache stats", out) == (1, "Error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [(["--version"], ""), (["--version"], "1"), (["plugins", "list", "--all"], "")],
)
def test_python_has_nothing_to_add_when_it_ends(words, unbuffered):
    """What a stream still holds is written once more then, and that may fail again."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    statuses = []
    for stream in ("stdout", "stderr"):
        with open("/dev/full", "w") as full:  # noqa: PTH123  # as others are opened here
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
            more = ["--nope"] if stream == "stderr" else []
            command = [sys.executable, "-m", "soma", *words, *more]
            done = subprocess.run(command, env=environment, timeout=60, check=False, **streams)
        statuses.append(done.returncode)
        if stream == "stdout":
            assert done.stderr.decode().splitlines() == [
                "Error: what was to be printed could not be written: No space left on device"
            ]
    assert statuses == [1, 2]


def test_json_is_whole_where_all_is_well():
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    assert said("doctor --json", out) == (0, "")
    assert json.loads(out.buffer.getvalue())[0]["about"] == SIGN
