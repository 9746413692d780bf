"""``soma estimate``: a graph and its data, from a module; and every way to get it wrong."""

from __future__ import annotations

import json
import sys
from inspect import signature

import pytest
from click.testing import CliRunner

from soma.cli.estimate import estimate
from support.distributions import run_soma

MODULE = """
import soma
from soma import Filter, Graph
print("imported")

class Center(Filter):
    def fit(self, x, y=None):
        print("fits")
        return sum(x) / len(x)

    def forward(self, x, mean):
        print("forwards")
        return [one - mean for one in x]

class Line(Filter):
    def fit(self, x, y):
        return 1.0

    def forward(self, x, state):
        return x

g = Graph.somatize(Center(), cache="memory")
expression = Center() >> Center()
labelled = Graph.somatize(Line(), cache="memory")
pair = (g, [1.0, 2.0])
started = (expression, [1.0, 2.0])
triple = (labelled, [1.0, 2.0], [1.0, 2.0])

def prepared():
    print("called")
    return pair

def known():
    g.fit(pair[1])
    return pair

class Noisy:
    pass

def dump(found):
    print("written down", flush=True)  # early releases of click.testing do not flush stderr
    return b"noise"

def noisy():
    kind = f"tests.Noisy{id(Noisy)}"  # this module may be imported again
    soma.codec(kind, Noisy, dump=dump, load=lambda found: Noisy())
    return g, Noisy()

without_labels = (labelled, [1.0, 2.0])
several = (g, 1, 2, 3)
nothing = ()
other = ("g", [1.0])
number = 3
empty = Graph(cache="memory")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "estimated_under_test.py").write_text(MODULE)
    # Releases of click before 8.2 mix the two streams unless they are told not to.
    apart = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}

    def run(target, *arguments):
        target = f"estimated_under_test:{target}"
        return CliRunner(**apart).invoke(estimate, [target, *arguments])

    yield run
    sys.modules.pop("estimated_under_test", None)


def nodes(done):
    return [line.split()[:3] for line in done.stdout.splitlines()[2:-3]]


class TestWhatIsSaid:
    @pytest.mark.parametrize("target", ["pair", "prepared"])
    def test_a_graph_and_its_input(self, run, target):
        done = run(target)
        assert done.exit_code == 0
        assert done.stdout.splitlines()[0] == "estimate of fit and forward"
        assert nodes(done) == [["fit", "center", "state"], ["forward", "center", "output"]]
        assert "computed" in done.stdout
        assert "fits" not in done.stdout + done.stderr
        assert "imported" not in done.stdout

    def test_a_graph_alone(self, run):
        done = run("g")
        assert done.exit_code == 0
        assert done.stdout.count("unknown until run") == 2

    def test_an_expression_and_labels(self, run):
        assert nodes(run("started"))[0] == ["fit", "center", "state"]
        assert nodes(run("triple"))[0] == ["fit", "line", "state"]

    def test_one_phase(self, run):
        assert run("pair", "--phase", "fit").stdout.splitlines()[0] == "estimate of fit"
        done = run("pair", "--phase", "forward")
        assert done.exit_code == 1
        assert "forward before fit: 'center' learned nothing yet" in done.stderr

    def test_json(self, run):
        done = run("known", "--json")
        data = json.loads(done.stdout)
        assert data["counts"] == {"reused": 1, "computed": 1}
        assert [one["what"] for one in data["rows"]] == ["state", "output"]

    def test_what_user_code_prints_meanwhile_does_not_spoil_it(self, run):
        done = run("noisy", "--json")
        assert json.loads(done.stdout)["phases"] == ["fit", "forward"]
        assert "written down" in done.stderr

    def test_as_it_is_installed(self, run, tmp_path):
        done = run_soma("estimate estimated_under_test:pair --phase fit", cwd=tmp_path)
        assert done.returncode == 0
        assert done.stdout.splitlines()[0] == "estimate of fit"


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("number", "estimated_under_test:number is int, and what is wanted is a Graph, (graph"),
            ("other", "estimated_under_test:other begins with str, and what is wanted"),
            ("several", "estimated_under_test:several has 4 parts, and what is wanted is (graph"),
            ("nothing", "estimated_under_test:nothing is tuple, and what is wanted"),
            ("empty", "empty"),
            ("without_labels", "Node 'line' (Line) learns from labels"),
            ("pear", "has no 'pear'. Did you mean 'pair'?"),
        ],
    )
    def test_in_a_sentence(self, run, target, says):
        done = run(target)
        assert done.exit_code == 1
        assert says in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""

    def test_usage(self, run):
        assert run("pair", "--phase", "both").exit_code == 2
        assert CliRunner().invoke(estimate, ["pipeline.py"]).exit_code == 2
        assert CliRunner().invoke(estimate, []).exit_code == 2
