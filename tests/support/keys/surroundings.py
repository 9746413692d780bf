"""What is around a run: processes, machines, versions."""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
import types

import numpy as np
import pluggy

import soma
import soma._version
from soma import Graph
from soma.identity import names
from support.keys.lab import HEADER, Keys, Lab, Probe, alone, keys, row

Pair = tuple[Keys, Keys]

PROBE = """
class Probe(Filter):
    tags = frozenset({"a", "b", "c"})
    def fit(self, x, y=None): return 0
    def forward(self, x, state): return x
node = Probe()
"""
ELSEWHERE = """
import platform, socket, sys
platform.node = socket.gethostname = lambda: "elsewhere"
sys.path[:0] = {path!r}
from support.keys.lab import keys
import pipeline
print(*keys(pipeline.node))
"""


@row("the process; its hash seed; the user, the home, the machine, the working folder")
def _(lab: Lab) -> Pair:
    (lab.folder / "pipeline.py").write_text(HEADER + PROBE)
    around = {"PYTHONHASHSEED": "7", "HOME": str(lab.folder), "USER": "else", "LOGNAME": "else"}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE.format(path=[str(lab.folder), *sys.path])],
        cwd=lab.folder,
        env=os.environ | around,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return keys(lab.module(PROBE).node), Keys(*done.stdout.split())


@row("the worker that computes it, and how many there are")
def _(lab: Lab) -> Pair:
    g = alone(Probe())
    g.add_worker("local://")
    try:
        found = keys(graph=g)
        assert g.last_run.actions[0].worker
    finally:
        g.shutdown_workers()
    return keys(), found


@row("the cache: in memory or on disk, and in which folder")
def _(lab: Lab) -> Pair:
    g = Graph(cache="disk", cache_path=lab.folder / "cache")
    g.node("probe", Probe())
    return keys(), keys(graph=g)


READS = """
import os, pathlib, random
class Reads(Filter):
    def fit(self, x, y=None): return 0
    def forward(self, x, state):
        os.environ.get("SOMA_TEST_RATE"), pathlib.Path({path!r}).read_text(), random.random()
        return x
node = Reads()
"""


@row("an environment variable, a file, a global random generator that the code reads")
def _(lab: Lab) -> Pair:
    file = lab.folder / "rates.csv"
    text = READS.format(path=str(file))
    file.write_text("1")
    before = keys(lab.module(text).node)
    file.write_text("2")
    lab.patch.setenv("SOMA_TEST_RATE", "2")
    random.random()  # noqa: S311  # no secret
    np.random.random()  # noqa: NPY002  # the global one is meant
    return before, keys(lab.module(text).node)


@row("the minor version of Python")
def _(lab: Lab) -> Pair:
    before = keys(lab.module(PROBE).node)
    version = types.SimpleNamespace(major=3, minor=99, micro=0)
    lab.patch.setattr("soma.identity.sys", types.SimpleNamespace(version_info=version))
    return before, keys(lab.module(PROBE).node)


@row("the patch version of Python")
def _(lab: Lab) -> Pair:
    before = keys(lab.module(PROBE).node)
    now = sys.version_info
    version = types.SimpleNamespace(major=now.major, minor=now.minor, micro=99)
    lab.patch.setattr("soma.identity.sys", types.SimpleNamespace(version_info=version))
    lab.patch.setattr(platform, "python_version", lambda: f"{now.major}.{now.minor}.99")
    return before, keys(lab.module(PROBE).node)


def with_versions(lab: Lab, text: str) -> Pair:
    """Return the keys with the packages that are installed, and with others."""
    before = keys(lab.module(text).node)
    with lab.patch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "99.0")
        for module in (np, pluggy, soma, soma._version):
            patch.setattr(module, "__version__", "99.0")
        names.version_of.cache_clear()
        try:
            return before, keys(lab.module(text).node)
        finally:
            names.version_of.cache_clear()


NUMPY = """
{imports}
class Exp(Filter):
    {attributes}
    def __init__(self, how=None): self.how = how
    def fit(self, x, y=None): return 0
    def forward(self, x, state): return x if x is not None else {function}(x)
node = Exp({how})
"""


def numpy(function="np.exp", imports="", attributes="pass", how="") -> str:
    return NUMPY.format(function=function, imports=imports, attributes=attributes, how=how)


@row("the version of Soma")
def _(lab: Lab) -> Pair:
    return with_versions(lab, PROBE)


@row("the version of a package that the code uses: `np.exp`, `from package import function`")
def _(lab: Lab) -> Pair:
    before, after = with_versions(lab, numpy("PluginManager", "from pluggy import PluginManager"))
    assert before == after
    return with_versions(lab, numpy())


@row('the same, with `_cache_env = ("numpy",)`')
def _(lab: Lab) -> Pair:
    return with_versions(lab, numpy(attributes="_cache_env = ('numpy',)"))


@row("the same, of something written in C that the code names by itself: `from numpy import exp`")
def _(lab: Lab) -> Pair:
    return with_versions(lab, numpy("exp", "from numpy import exp"))


@row("the same, of a function of the package in an attribute: `Apply(np.mean)`")
def _(lab: Lab) -> Pair:
    return with_versions(lab, numpy(how="np.mean"))


@row("the same, of an array or another value of the package in an attribute")
def _(lab: Lab) -> Pair:
    return with_versions(lab, numpy(how="np.arange(3)"))
