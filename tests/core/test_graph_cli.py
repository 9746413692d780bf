"""``soma graph``: from a module or a run to text, SVG or Mermaid; and every way to get it wrong."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from soma.cli.graph import graph
from soma.errors import UnknownName
from support.distributions import run_soma

MODULE = """
from soma import Filter, Graph
print("imported")

def double(x):
    return 2 * x

def vote(x):
    return x

def build():
    print("called")
    g = Graph(cache="memory")
    g.node("start", double)
    g.node("<end> & \\"x\\" \\U0001f600", vote)
    g.edge("start", "<end> & \\"x\\" \\U0001f600")
    return g

class Holder:
    g = build()

g = build()
g2 = build()
g2.forward(3)

def needs(this): ...
def fails(): raise KeyError("of the user's")
def leaves(): raise SystemExit(4)
number = 3
empty = Graph()
big = Graph()
for n in range(2_001):
    big.node(f"n{n}", double)
class Same(Filter):
    def forward(self, x, state):
        return x

expression = Same() >> Same()
circle = Graph()
a, b = circle.node("a", double), circle.node("b", double)
circle.edge(a, b)
circle.edge(b, a)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "pipe_under_test.py").write_text(MODULE)
    (tmp_path / "raises_under_test.py").write_text("\n\nvalue = 1 / 0\n")
    (tmp_path / "lacks_under_test.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "broken_under_test.py").write_text("def (\n")

    # Releases of click before 8.2 mix the two streams unless they are told not to.
    apart = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}

    def run(*arguments):
        return CliRunner(**apart).invoke(graph, arguments, catch_exceptions=True)

    yield run
    for name in [one for one in sys.modules if one.endswith("_under_test")]:
        del sys.modules[name]


class TestDrawing:
    @pytest.mark.parametrize("target", ["g", "build", "Holder.g", "expression"])
    def test_text_alone_is_on_stdout(self, run, target):
        done = run(f"pipe_under_test:{target}")
        assert done.exit_code == 0
        first = "same (Same)" if target == "expression" else "start (double)"
        assert done.stdout.splitlines()[0] == f"├── {first}"
        assert "imported" not in done.stdout

    def test_what_the_users_code_prints_goes_to_stderr(self, run, tmp_path):
        done = run_soma("graph pipe_under_test:build", cwd=tmp_path)
        assert done.stdout.splitlines()[0] == "├── start (double)"
        assert {"imported", "called"} <= set(done.stderr.splitlines())

    def test_svg(self, run):
        done = run("pipe_under_test:g", "--format", "svg")
        texts = [one.strip() for one in ET.fromstring(done.stdout).itertext()]  # noqa: S314  # our own
        assert {"start", "double", '<end> & "x" \U0001f600'} <= set(texts)

    def test_mermaid(self, run):
        lines = run("pipe_under_test:g", "--format", "mermaid").stdout.splitlines()
        assert lines[0] == "flowchart TD"
        assert sum("-->" in line for line in lines) == 1
        assert not any("<end>" in line for line in lines)

    @pytest.mark.parametrize(
        ("name", "begins"),
        [("a.svg", "<svg"), ("a.SVG", "<svg"), ("a.mmd", "flowchart"), ("a.txt", "├"), ("a", "├")],
    )
    def test_the_name_of_the_file_says_the_format(self, run, tmp_path, name, begins):
        done = run("pipe_under_test:g", "-o", name)
        assert done.exit_code == 0
        assert done.stdout == ""
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
        assert [one.name for one in tmp_path.iterdir() if one.suffix != ".py"] == [name]

    def test_a_format_that_is_said_wins(self, run, tmp_path):
        run("pipe_under_test:g", "-o", "a.svg", "--format", "text")
        assert (tmp_path / "a.svg").read_text().startswith("├")

    def test_what_the_last_run_did_is_shown_unless_it_is_not_wanted(self, run):
        svg = ("--format", "svg")
        assert "computed, " in run("pipe_under_test:g2", *svg).stdout
        assert "computed, " not in run("pipe_under_test:g2", *svg, "--no-overlay").stdout
        assert "computed, " not in run("pipe_under_test:g", *svg).stdout


class TestOutput:
    """What ``-o`` names is the user's: it is replaced when all is there, and stays what it is."""

    def test_a_file_keeps_who_may_read_it(self, run, tmp_path):
        target = tmp_path / "a.svg"
        target.write_text("old")
        target.chmod(0o600)
        assert run("pipe_under_test:g", "-o", "a.svg").exit_code == 0
        assert target.stat().st_mode & 0o777 == 0o600
        assert target.read_text().startswith("<svg")

    def test_a_link_stays_a_link(self, run, tmp_path):
        (tmp_path / "a.svg").symlink_to("b.svg")
        run("pipe_under_test:g", "-o", "a.svg")
        assert (tmp_path / "a.svg").is_symlink()
        assert (tmp_path / "b.svg").read_text().startswith("<svg")

    def test_a_pipe_is_written_to(self, run, tmp_path):
        os.mkfifo(tmp_path / "pipe.svg")
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit((tmp_path / "pipe.svg").read_text)
            run("pipe_under_test:g", "-o", "pipe.svg")
            assert read.result(30).startswith("<svg")
        assert (tmp_path / "pipe.svg").is_fifo()

    def test_a_long_name(self, run, tmp_path):
        name = "x" * 250 + ".svg"
        assert run("pipe_under_test:g", "-o", name).exit_code == 0
        assert (tmp_path / name).read_text().startswith("<svg")


class TestRuns:
    @pytest.fixture
    def tracked(self, run):
        from soma import Graph

        g = Graph(cache="memory")
        g.node("here", abs)
        with g.track_run("mine"):
            g.forward(-3)
            g.forward(-3)
        return run

    def test_a_run_is_drawn_with_what_it_did(self, tracked):
        text = tracked("--run", "mine", "--format", "svg").stdout
        words = [one.strip() for one in ET.fromstring(text).itertext()]  # noqa: S314  # our own
        assert "here" in words
        assert any(one.startswith("1 computed, 1 hit") for one in words)
        assert any(one.startswith("mine, ") for one in words)

    def test_as_text(self, tracked):
        assert tracked("--run", "last").stdout == "└── here (abs)\n"

    def test_there_is_no_such_run(self, tracked):
        assert isinstance(tracked("--run", "mime").exception, UnknownName)


class TestMistakes:
    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("pipe_under_test:gg", "The module 'pipe_under_test' has no 'gg'. Did you mean 'g'"),
            ("pipe_under_test:Holder.h", "has no 'Holder.h'"),
            ("pipe_under_test:number", "is int, neither a Graph nor a function that returns one"),
            ("pipe_under_test:Holder", "is type, neither"),
            ("pipe_under_test:needs", "takes (this), and is called without arguments"),
            ("pipe_under_test:fails", 'failed: KeyError: "of the user\'s" ('),
            ("pipe_under_test:leaves", "failed: SystemExit: 4 ("),
            ("raises_under_test:g", "does not import: ZeroDivisionError: division by zero ("),
            ("lacks_under_test:g", "does not import: ModuleNotFoundError: No module named"),
            ("broken_under_test:g", "does not import: SyntaxError: "),
            ("no_such_under_test:g", "There is no module 'no_such_under_test', neither in this"),
            ("no.such:g", "There is no module 'no.such'"),
        ],
    )
    def test_each_is_one_sentence(self, run, target, said):
        done = run(target)
        assert done.exit_code == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""

    def test_the_line_of_the_users_code_is_named(self, run, tmp_path):
        assert f"({tmp_path / 'raises_under_test.py'}, line 3)" in run("raises_under_test:g").stderr
        assert "pipe_under_test.py, line " in run("pipe_under_test:fails").stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("a:b", "--run", "x"),
            ("module",),
            (":g",),
            ("module:",),
            ("pipe_under_test.py:g",),
            ("folder/pipe_under_test:g",),
            ("pipe_under_test:g", "-o", "a.pdf"),
        ],
    )
    def test_what_makes_no_sense_is_a_usage_error(self, run, arguments):
        done = run(*arguments)
        assert done.exit_code == 2
        assert "Usage: " in done.stderr

    def test_a_file_is_answered_with_the_module(self, run):
        assert "the folder it lies in: x:g" in run("some/where/x.py:g").stderr

    @pytest.mark.parametrize("form", ["svg", "mermaid"])
    @pytest.mark.parametrize(("target", "said"), [("empty", "empty"), ("circle", "a -> b -> a")])
    def test_what_cannot_be_compiled_is_refused(self, run, form, target, said):
        done = run(f"pipe_under_test:{target}", "--format", form)
        assert said in str(done.exception)

    def test_what_cannot_be_compiled_is_text_all_the_same(self, run):
        assert "error: " in run("pipe_under_test:circle").stdout
        assert run("pipe_under_test:empty").stdout == "(empty graph)\n"

    def test_too_large_for_a_picture(self, run, tmp_path):
        done = run("pipe_under_test:big", "-o", "big.svg")
        assert "2,001 nodes" in str(done.exception)
        assert not (tmp_path / "big.svg").exists()
        assert run("pipe_under_test:big").stdout.count("(double)") == 2_001

    def test_a_file_that_cannot_be_written(self, run, tmp_path):
        (tmp_path / "file").write_text("")
        done = run("pipe_under_test:g", "-o", "file/a.svg")
        assert done.exit_code == 1
        assert "file/a.svg cannot be written: " in done.stderr
