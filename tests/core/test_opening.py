"""Which store a graph gets, and what is said where it is not the one on disk.

Nothing here needs soma-cache, and nothing is changed by its being installed: what offers the disk
cache is a stand-in of these tests, or hidden from the process.
"""

from __future__ import annotations

import subprocess

import pytest

from soma import ActionStoreSpec, Graph, InvalidInput, UnknownName, _discovery
from soma.engine import MemoryStore, opening
from soma.engine.memory import shared_store
from soma.engine.opening import CacheChoice
from soma.registry import Catalog, Offer, Registry
from support.distributions import run_python, without, write_plugin

IN_MEMORY = (
    "soma: results are held in memory, and are gone when this process ends. To have them kept on "
    'disk: pip install "soma-core[cache]". To have it so without this line: '
    "Graph(cache='memory')\n"
)
UNUSABLE = "soma: the cache on disk cannot be used, so results are held in memory: "
NO_IMPORT = (
    "BrokenPackage: The action store 'disk' comes from soma-cache 1.0, which is installed but "
    "failed to import: {why}. See: soma plugins show soma-cache\n"
)


class Plain:
    """Stands for the disk cache: it keeps how it was opened."""

    def __init__(self, **options):
        self.options = options

    def lookup(self, key):
        return None

    def commit(self, record):
        pass


class Exact(Plain):
    """Knows better than its caller how another process opens it."""

    @property
    def open_options(self):
        return {"path": "/exact", **self.options}


class Alone(Plain):
    open_options = None


def refuse(**options):
    raise UnknownName("There is no cache tier 's4'. Did you mean 's3'?")


@pytest.fixture
def offer(monkeypatch):
    """Return a function that has one store of these tests be what plugins offer."""

    def offer_it(target, *, name="disk", shareable=True):
        spec = ActionStoreSpec(
            name=name, target=f"{__name__}:{target.__name__}", shareable=shareable
        )
        offered = Offer(spec=spec, dist="soma-cache", version="1.0")
        registry = Registry(_discovery.builtins, lambda: Catalog(offers=(offered,)))
        monkeypatch.setattr(opening, "default", lambda: registry)

    return offer_it


class TestTheStore:
    @pytest.mark.parametrize(
        ("cache", "path", "max_bytes", "options"),
        [
            (None, None, None, {}),
            (None, None, 10, {"max_bytes": 10}),
            ("disk", None, None, {}),
            ("disk", "here", None, {"path": "here"}),
            ("disk", None, 10, {"max_bytes": 10}),
            ("disk", "here", 10, {"path": "here", "max_bytes": 10}),
            ("local", "here", None, {"path": "here"}),
            ("local", "here", 10, {"path": "here", "max_bytes": 10}),
            ("tiered", "here", None, {"path": "here"}),
            ("tiered", "here", 10, {"path": "here", "max_bytes": 10}),
            ("file:///lab", None, None, {"url": "file:///lab"}),
            ("file:///lab", "here", None, {"url": "file:///lab", "path": "here"}),
            ("file:///lab", None, 10, {"url": "file:///lab", "max_bytes": 10}),
        ],
    )
    def test_of_the_disk_is_opened_with_what_was_said(self, cache, path, max_bytes, options, offer):
        offer(Plain)
        choice = CacheChoice(cache, path, max_bytes)
        assert type(choice.store) is Plain
        assert choice.store.options == options
        assert choice.source == ("disk", options)

    def test_of_another_plugin_is_opened_by_its_name(self, offer):
        offer(Plain, name="shelf")
        choice = CacheChoice("shelf", "here", 10)
        assert choice.store.options == {"path": "here", "max_bytes": 10}
        assert choice.source == ("shelf", choice.store.options)

    @pytest.mark.parametrize("cache", [None, "disk"])
    def test_is_opened_once(self, cache, offer):
        offer(Plain)
        choice = CacheChoice(cache, None, None)
        assert choice.store is choice.store

    def test_that_was_named_is_opened_at_once_and_the_default_when_it_is_needed(self, offer):
        offer(refuse)
        with pytest.raises(UnknownName):
            CacheChoice("disk", None, None)
        later = CacheChoice(None, None, None)
        offer(Plain)
        assert type(later.store) is Plain

    def test_in_memory_is_the_graphs_own_and_has_the_size_that_was_said(self, offer):
        offer(refuse)  # which nobody asks
        one, other = CacheChoice("memory", None, 10), CacheChoice("memory", None, 10)
        assert type(one.store) is MemoryStore
        assert one.store.max_bytes == 10
        assert one.store is not other.store
        assert one.source is None
        assert CacheChoice("memory", None, None).store.max_bytes == 1 << 30

    def test_that_is_off_is_none(self):
        choice = CacheChoice("off", None, None)
        assert (choice.store, choice.source) == (None, None)

    def test_that_was_given_is_taken_as_it_is_and_nobody_else_opens_it(self):
        store = Exact()
        choice = CacheChoice(store, None, None)
        assert choice.store is store
        assert choice.source is None

    def test_of_a_copied_graph_is_that_of_the_graph(self, offer):
        offer(Plain)
        g = Graph()
        h = g.__copy__()
        assert h._cache.store is g._cache.store


class TestTheSource:
    """By which name and options another process opens the same store."""

    def test_is_what_the_store_says_of_itself_where_it_does(self, offer):
        offer(Exact)
        choice = CacheChoice("disk", None, 10)
        assert choice.source == ("disk", {"path": "/exact", "max_bytes": 10})
        assert type(choice.source[1]) is dict

    @pytest.mark.parametrize("cache", [None, "disk"])
    def test_is_none_where_the_store_says_that_nobody_else_can(self, cache, offer):
        offer(Alone)
        choice = CacheChoice(cache, None, None)
        assert type(choice.store) is Alone
        assert choice.source is None

    @pytest.mark.parametrize("store", [Plain, Exact])
    def test_is_none_where_the_plugin_does_not_say_that_it_is_shareable(self, store, offer):
        offer(store, shareable=False)
        choice = CacheChoice("disk", None, None)
        assert type(choice.store) is store
        assert choice.source is None

    def test_travels_with_the_program(self, offer):
        offer(Exact)
        g = Graph()
        g.node("one", abs)
        assert g.program().store_source == ("disk", {"path": "/exact"})


class TestWhatDoesNotGoTogether:
    @pytest.mark.parametrize("cache", ["local", "tiered"])
    @pytest.mark.parametrize("max_bytes", [None, 10])
    def test_the_names_of_the_first_soma_want_a_path(self, cache, max_bytes):
        with pytest.raises(InvalidInput, match=f"^cache='{cache}' needs cache_path, the folder"):
            Graph(cache=cache, cache_max_bytes=max_bytes)

    @pytest.mark.parametrize("cache", [None, "memory", "off", MemoryStore(10), 7])
    def test_a_path_is_that_of_a_cache_on_disk(self, cache):
        with pytest.raises(InvalidInput, match=r"^cache_path \('here'\) is .*: say cache='disk'"):
            Graph(cache=cache, cache_path="here")

    @pytest.mark.parametrize("cache", ["off", MemoryStore(10), 7])
    def test_a_size_is_that_of_a_cache_by_name(self, cache):
        with pytest.raises(InvalidInput, match="it goes with cache='memory' and with cache='disk'"):
            Graph(cache=cache, cache_max_bytes=10)

    @pytest.mark.parametrize("cache", [None, "memory", "disk", "file:///lab"])
    @pytest.mark.parametrize("wrong", [0, -1, 1.5, "1G", True])
    def test_a_size_is_a_number_of_bytes_whatever_is_installed(self, cache, wrong):
        with pytest.raises(InvalidInput, match="cache_max_bytes must be a whole number of bytes"):
            Graph(cache=cache, cache_max_bytes=wrong)

    @pytest.mark.parametrize("cache", [7, b"disk", object()])
    def test_a_cache_is_a_name_or_a_store(self, cache):
        with pytest.raises(InvalidInput, match=r"^cache must be one of .*'disk'.* not "):
            Graph(cache=cache)

    @pytest.mark.parametrize(("wrong", "right"), [("memry", "memory"), ("dsik", "disk")])
    def test_a_name_that_nobody_has(self, wrong, right):
        with pytest.raises(
            UnknownName, match=rf"^There is no cache '{wrong}'\. Did you mean '{right}'\?"
        ):
            Graph(cache=wrong)

    def test_a_tier_that_nobody_has_is_told_as_the_store_tells_it(self, offer):
        offer(refuse)
        with pytest.raises(
            UnknownName, match=r"^There is no cache tier 's4'\. Did you mean 's3'\?$"
        ):
            Graph(cache="s4://lab")


STEPS = """
import soma

class Add(soma.Filter):
    def __init__(self, amount):
        self.amount = amount
        self._calls = 0

    def fit(self, x, y=None):
        return {"seen": sum(x)}

    def forward(self, x, state):
        self._calls += 1
        return [one + self.amount + state["seen"] for one in x]
"""
SET_UP = """
import soma
from steps import Add

def made(**settings):
    return soma.Graph.somatize(Add(10), **settings)
"""
RUNS = f"""{SET_UP}
for g in (made(), made(), made(cache=None)):
    g.fit([1, 2])
    print(g.forward([0]), g.filter("add")._calls)
"""
COMPUTED_ONCE = "[13] 1\n[13] 0\n[13] 0\n"
"""10 more than the 3 that it saw; the two graphs after it find what the first has kept."""

OFFERS = """
import soma

@soma.hookimpl
def soma_action_stores():
    yield soma.ActionStoreSpec(name="disk", target="{target}", shareable=True)
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs code, beside STEPS, where soma-cache is not installed."""
    (tmp_path / "steps.py").write_text(STEPS)

    def run_it(code: str) -> subprocess.CompletedProcess[str]:
        return run_python(without("soma-cache") + code, tmp_path)

    return run_it


@pytest.fixture
def run_with(tmp_path):
    """Return a function that runs code where soma-cache is what a test makes of it."""
    (tmp_path / "steps.py").write_text(STEPS)

    def run_it(
        code: str,
        store: str,
        *,
        plugin: str = OFFERS.format(target="soma_cache.cli:Store"),
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        write_plugin(tmp_path, "soma-cache", plugin=plugin, cli=store)
        return run_python(code, tmp_path, **environment)

    return run_it


class TestWithoutThePackage:
    def test_results_are_held_in_memory_and_a_line_says_so_once(self, run):
        done = run(RUNS)
        assert (done.stdout, done.stderr) == (COMPUTED_ONCE, IN_MEMORY)

    def test_a_size_makes_it_the_graphs_own(self, run):
        done = run(f"""{SET_UP}
for g in (made(cache_max_bytes=10**6), made(cache_max_bytes=10**6)):
    g.fit([1, 2])
    print(g.forward([0]), g.filter("add")._calls, g._cache.store.max_bytes, g._cache.source)
""")
        assert done.stdout == "[13] 1 1000000 None\n" * 2
        assert done.stderr == IN_MEMORY

    def test_a_graph_that_is_only_built_and_drawn_says_nothing(self, run):
        done = run(f"""{SET_UP}
import copy
g = made()
copy.copy(g), copy.deepcopy(g)
g.compile()
print(str(g), repr(g), g.to_svg()[:4], g.to_mermaid()[:5], g.search_space(), g.state())
""")
        assert done.stdout == "└── add (Add) learns <Graph: nodes=1, edges=0> <svg flowc [] {}\n"
        assert done.stderr == ""

    @pytest.mark.parametrize(
        ("settings", "calls"), [("cache='memory'", 1), ("cache='off'", 2)], ids=["memory", "off"]
    )
    def test_who_has_said_where_results_go_is_told_nothing(self, settings, calls, run):
        done = run(f"""{SET_UP}
g = made({settings})
g.fit([1, 2])
print(g.forward([0]), g.forward([0]), g.filter("add")._calls)
""")
        assert (done.stdout, done.stderr) == (f"[13] [13] {calls}\n", "")

    @pytest.mark.parametrize(
        "settings",
        [
            "cache='disk'",
            "cache='disk', cache_path='here'",
            "cache='disk', cache_max_bytes=10",
            "cache='local', cache_path='here'",
            "cache='tiered', cache_path='here'",
            "cache='file:///lab'",
        ],
    )
    def test_who_has_named_the_disk_is_told_how_to_have_it(self, settings, run):
        done = run(f"""
import soma
try:
    soma.Graph({settings})
except soma.MissingPackage as error:
    print(error)
""")
        assert done.stdout == (
            "The action store 'disk' comes from the 'soma-cache' package, which is not installed. "
            'Install it with: pip install "soma-core[cache]"\n'
        )
        assert done.stderr == ""


class TestWithThePackage:
    def test_every_graph_has_the_disk_cache_and_nothing_is_said(self, run_with):
        store = """
from soma.engine import MemoryStore

class Store(MemoryStore):
    def __init__(self, **options):
        print("opened", options)
        super().__init__()
"""
        done = run_with(
            f"""{SET_UP}
for g in (made(), made(cache_max_bytes=10)):
    print(repr(g))
    g.fit([1, 2])
    print(g.forward([0]), type(g._cache.store).__module__)
""",
            store,
        )
        each = "<Graph: nodes=1, edges=0>\nopened {}\n[13] soma_cache.cli\n"
        assert done.stdout == each.format("{}") + each.format("{'max_bytes': 10}")
        assert done.stderr == ""

    @pytest.mark.parametrize(
        ("store", "why"),
        [
            (
                "import module_nobody_has\n",
                NO_IMPORT.format(why="ModuleNotFoundError: No module named 'module_nobody_has'"),
            ),
            (
                "Stor = None\n",
                NO_IMPORT.format(why="ImportError: soma_cache.cli has no attribute 'Store'"),
            ),
            (
                "import soma\ndef Store(**options):\n    raise soma.InvalidInput('two\\nlines')\n",
                "InvalidInput: two lines\n",
            ),
            ("def Store(**options):\n    raise OSError(5, 'bad disk')\n", "OSError: [Errno 5] bad"),
            ("def Store(path):\n    pass\n", "TypeError: Store() missing 1 required"),
        ],
        ids=["import", "attribute", "soma error", "os error", "signature"],
    )
    def test_one_that_is_broken_costs_a_line_and_no_run(self, store, why, run_with):
        done = run_with(RUNS, store)
        assert done.stdout == COMPUTED_ONCE
        assert done.stderr.startswith(UNUSABLE + why)
        assert done.stderr.count("\n") == 1

    def test_one_that_does_not_load_costs_the_line_of_its_plugin_too(self, run_with):
        done = run_with(RUNS, "", plugin="raise ValueError('bad day')\n")
        assert done.stdout == COMPUTED_ONCE
        of_the_plugin, of_the_cache = done.stderr.splitlines()
        assert of_the_plugin.startswith("soma: left out the plugin soma-cache 1.0: ")
        assert of_the_cache == (
            f"{UNUSABLE}BrokenPackage: The action store 'disk' comes from soma-cache, which is "
            "installed but was left out: ValueError: bad day. See: soma plugins show soma-cache"
        )

    def test_one_that_is_switched_off_is_told_to_be(self, run_with):
        done = run_with(RUNS, "", SOMA_LOAD_PLUGINS="")
        assert done.stdout == COMPUTED_ONCE
        assert done.stderr == (
            f"{UNUSABLE}BrokenPackage: The action store 'disk' comes from soma-cache, which is "
            "installed but was left out: SOMA_LOAD_PLUGINS does not name it. "
            "See: soma plugins show soma-cache\n"
        )

    def test_two_that_claim_the_disk_are_named_and_neither_is_used(self, run_with, tmp_path):
        write_plugin(tmp_path, "other", plugin=OFFERS.format(target="other.cli:Store"), cli="")
        done = run_with(RUNS, "")
        assert done.stdout == COMPUTED_ONCE
        assert done.stderr.startswith(f"{UNUSABLE}NameConflict: The action store 'disk' is claimed")
        assert "pip uninstall other or pip uninstall soma-cache" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_who_has_named_the_disk_is_told_what_is_broken(self, run_with):
        done = run_with(
            """
import soma
try:
    soma.Graph(cache="disk")
except soma.BrokenPackage as error:
    print(error)
""",
            "import module_nobody_has\n",
        )
        assert done.stdout.startswith(
            "The action store 'disk' comes from soma-cache 1.0, which is installed but failed to "
            "import: ModuleNotFoundError: No module named 'module_nobody_has'"
        )
        assert done.stderr == ""


def test_what_falls_back_to_memory_is_shared_by_the_graphs_of_a_process(offer):
    offer(refuse)
    assert CacheChoice(None, None, None).store is shared_store()
    own = CacheChoice(None, None, 10)
    assert own.store.max_bytes == 10
    assert own.source is None
