"""Filters, functions and codecs as they reach another interpreter, and what is refused."""

from __future__ import annotations

import enum
import functools
import socket
import subprocess
import sys
import textwrap
import threading
import types
import weakref

import numpy as np
import pytest

from soma import Filter, NotSendable, Opaque, codecs
from soma.engine.blobs import Blob
from soma.sessions import travel
from support.threads import run_in_threads

CHILD = """
import json, sys
told = json.loads(sys.argv[1])
sys.path[:] = told["path"]
from soma.engine.blobs import Blob
from soma.sessions import travel
blobs = []
for header, lengths, name in told["blobs"]:
    with open(name, "rb") as file:
        buffers = [memoryview(file.read(length)) for length in lengths]
    blobs.append(Blob(bytes.fromhex(header), buffers))
exec(told["code"])
"""
"""What a child does: ``blobs`` are those that were sent."""

HELPER = f"""
import json, subprocess, sys
CHILD = {CHILD!r}

def in_child(folder, blobs, code):
    told = []
    for number, blob in enumerate(blobs):
        header, buffers = blob.frame()
        name = f"{{folder}}/blob{{number}}"
        with open(name, "wb") as file:
            file.writelines(buffers)
        told.append([header.hex(), [len(one) for one in buffers], name])
    said = json.dumps({{"path": sys.path, "blobs": told, "code": code}})
    return subprocess.run([sys.executable, "-c", CHILD, said], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)
"""
exec(HELPER)  # noqa: S102  # scripts that the tests write have the same


@pytest.fixture
def child(tmp_path):
    """Runs code in a fresh interpreter and returns what it prints."""

    def run(code, *packed):
        blobs = [one.blob for one in packed]
        done = in_child(tmp_path, blobs, textwrap.dedent(code))  # noqa: F821  # from HELPER
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def script(tmp_path):
    """Runs a script as ``__main__`` and returns what it prints."""

    def run(text):
        (tmp_path / "helper.py").write_text(HELPER)
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, str(file), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module and imports it; it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def write(name, text):
        import importlib

        file = tmp_path / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name), file

    yield write
    for name in made:
        sys.modules.pop(name, None)


SCALER = """
from soma import Filter

FACTOR = 10

class Scaler(Filter):
    def __init__(self, by):
        self.by = by

    def forward(self, x, state):
        return x * self.by * FACTOR
"""


# --- by path, by value ---------------------------------------------------------------------------


def test_an_importable_class_goes_by_path_with_its_state(module, child):
    found, file = module("soma_travel_a", SCALER)
    scaler = found.Scaler(3)
    scaler.learned = "kept"
    packed = travel.pack_node("a", scaler)
    file.write_text(SCALER.replace("FACTOR = 10", "FACTOR = 100"))  # the child imports the file
    assert (
        child(
            "n = travel.unpack(blobs[0]); print(n.forward(2, None), n.learned, n.kwargs())",
            packed,
        )
        == "600 kept {'by': 3}"
    )


def test_a_constructor_is_not_run_again(module, child):
    found, _ = module(
        "soma_travel_b",
        """
        class Once:
            def __init__(self, must):
                print("constructed")
                self.must = must
            def forward(self, x, state): return self.must
        """,
    )
    packed = travel.pack_node("a", found.Once(5))
    assert child("print(travel.unpack(blobs[0]).forward(0, None))", packed) == "5"


def test_a_class_of_main_goes_by_value(script):
    assert (
        script("""
        import sys
        from helper import in_child
        from soma import Filter
        from soma.sessions import travel
        FACTOR = 10

        class Base(Filter):
            def scaled(self, x): return x * FACTOR

        class Scaler(Base):
            def __init__(self, by): self.by = by
            def forward(self, x, state): return super().scaled(x) * self.by

        packed = travel.pack_node("a", Scaler(3))
        done = in_child(sys.argv[1], [packed.blob], '''
        n = travel.unpack(blobs[0])
        print(n.forward(2, None), type(n).__module__, isinstance(n, __import__("soma").Filter))
        '''.strip())
        print(done.stdout, done.stderr)
        """)
        == "60 __main__ True"
    )


def test_a_local_class_goes_by_value(child):
    step = 7

    class Local(Filter):
        def forward(self, x, state):
            return x + step

    assert (
        child("print(travel.unpack(blobs[0]).forward(1, None))", travel.pack_node("a", Local()))
        == "8"
    )


def test_a_class_of_a_module_that_nobody_finds_goes_by_value(monkeypatch, child):
    made = types.ModuleType("soma_travel_made")
    exec(SCALER, made.__dict__)  # noqa: S102  # a module without a file
    monkeypatch.setitem(sys.modules, made.__name__, made)
    packed = travel.pack_node("a", made.Scaler(3))
    assert child("print(travel.unpack(blobs[0]).forward(2, None))", packed) == "60"


def test_a_class_whose_file_is_gone_goes_by_value(module, child):
    found, file = module("soma_travel_gone", SCALER)
    before = travel.pack_node("a", found.Scaler(3))
    file.unlink()
    packed = travel.pack_node("a", found.Scaler(3))
    assert b"soma_travel_gone\x94\x8c\x06Scaler" in before.blob.header
    assert child("print(travel.unpack(blobs[0]).forward(2, None))", packed) == "60"


def test_a_class_of_a_package_whose_folder_alone_is_left_goes_by_value(tmp_path, module, child):
    (tmp_path / "soma_travel_pkg").mkdir()
    _, file = module("soma_travel_pkg.__init__", SCALER)
    sys.modules.pop("soma_travel_pkg.__init__")
    import soma_travel_pkg as package

    try:
        file.unlink()
        packed = travel.pack_node("a", package.Scaler(3))
        assert child("print(travel.unpack(blobs[0]).forward(2, None))", packed) == "60"
    finally:
        sys.modules.pop("soma_travel_pkg")


def test_a_module_of_that_name_elsewhere_is_another(module, child, tmp_path, monkeypatch):
    found, _ = module("soma_travel_two", SCALER)
    other = tmp_path / "other"
    other.mkdir()
    (other / "soma_travel_two.py").write_text(SCALER.replace("10", "1000"))
    monkeypatch.syspath_prepend(str(other))
    packed = travel.pack_node("a", found.Scaler(3))
    assert child("print(travel.unpack(blobs[0]).forward(2, None))", packed) == "60"


def test_a_module_that_code_by_value_names_goes_with_it(module, child):
    found, file = module("soma_travel_helper", "def double(x): return 2 * x")

    def twice(x):
        return found.double(x)

    file.unlink()
    packed = travel.pack_node("a", twice)
    assert child("print(travel.unpack(blobs[0])(4))", packed) == "8"


def test_a_module_that_its_package_makes_goes_by_path(monkeypatch, tmp_path, child):
    (tmp_path / "soma_travel_six").mkdir()
    (tmp_path / "soma_travel_six" / "__init__.py").write_text(
        "import sys, types\n"
        "made = types.ModuleType(__name__ + '.moves')\n"
        "exec('def f(x): return x + 1', made.__dict__)\n"
        "sys.modules[made.__name__] = made\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import soma_travel_six

    try:
        made = sys.modules["soma_travel_six.moves"]
        packed = travel.pack_function(made.f, "f")
        assert b"_make_function" not in packed.blob.header
        assert child("print(travel.unpack(blobs[0])(1))", packed) == "2"
    finally:
        for name in ("soma_travel_six.moves", soma_travel_six.__name__):
            sys.modules.pop(name)


def test_a_finder_of_the_script_does_not_count(script):
    assert (
        script("""
        import importlib.util, sys
        from helper import in_child
        from soma.sessions import travel

        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "in_memory":
                    return importlib.util.spec_from_loader(name, self)
            def create_module(self, spec): return None
            def exec_module(self, module): exec("def f(x): return x + 1", module.__dict__)

        sys.meta_path.append(Finder())
        import in_memory
        packed = travel.pack_function(in_memory.f, "f")
        done = in_child(sys.argv[1], [packed.blob], "print(travel.unpack(blobs[0])(1))")
        print(done.stdout, done.stderr)
        """)
        == "2"
    )


def test_cloudpickle_is_left_as_it_was(module):
    from cloudpickle.cloudpickle import list_registry_pickle_by_value, register_pickle_by_value

    found, file = module("soma_travel_left", SCALER)
    file.unlink()
    travel.pack_node("a", found.Scaler(1))
    with pytest.raises(NotSendable):
        travel.pack_node("a", [found.Scaler(1), threading.Lock()])
    assert list_registry_pickle_by_value() == set()
    register_pickle_by_value(found)
    try:
        travel.pack_node("a", found.Scaler(1))
        assert list_registry_pickle_by_value() == {"soma_travel_left"}
    finally:
        from cloudpickle import unregister_pickle_by_value

        unregister_pickle_by_value(found)


# --- state ---------------------------------------------------------------------------------------


class Careful(Filter):
    def __init__(self):
        self.lock = threading.Lock()
        self.kept = [1, 2]

    def __getstate__(self):
        return {"kept": self.kept}

    def __setstate__(self, state):
        self.__dict__.update(state, lock=threading.Lock(), again=True)

    def forward(self, x, state):
        with self.lock:
            return [*self.kept, x, self.again]


def test_getstate_and_setstate_are_respected(child):
    packed = travel.pack_node("a", Careful())
    assert child("print(travel.unpack(blobs[0]).forward(3, None))", packed) == "[1, 2, 3, True]"


def test_slots_travel(child):
    class Base:
        __slots__ = ("a",)

    class Slotted(Base):
        __slots__ = ("__dict__", "b", "unset")

        def forward(self, x, state):
            return self.a, self.b, self.c, hasattr(self, "unset")

    made = Slotted()
    made.a, made.b, made.c = 1, 2, 3
    packed = travel.pack_node("a", made)
    assert child("print(travel.unpack(blobs[0]).forward(0, None))", packed) == ("(1, 2, 3, False)")


def test_large_arrays_lie_beside_the_pickle(child):
    made = Careful()
    made.kept = [np.arange(1 << 18, dtype="f8"), np.asfortranarray(np.ones((300, 400), "f4"))]
    made.kept[0].flags.writeable = False
    packed = travel.pack_node("a", made)
    assert packed.blob.lengths == ((1 << 18) * 8, 300 * 400 * 4)
    assert packed.blob.fd >= 0
    assert len(packed.blob.header) < 10_000  # code and its path, however long; not the 2.5 MB
    assert (
        child(
            """
        one, two = travel.unpack(blobs[0]).kept
        print(float(one.sum()), one.flags.writeable, two.shape, two.flags.f_contiguous)
        two += 1
        print(float(two.sum()))
        """,
            packed,
        )
        == f"{float(np.arange(1 << 18).sum())} False (300, 400) True\n240000.0"
    )


def test_what_was_unpacked_is_its_own():
    made = Careful()
    made.kept = [np.zeros(3)]
    packed = travel.pack_node("a", made)
    one, two = travel.unpack(packed.blob), travel.unpack(packed.blob)
    one.kept[0] += 1
    assert two.kept[0].tolist() == [0, 0, 0]
    assert made.kept[0].tolist() == [0, 0, 0]


def test_a_token_stays_while_nothing_changes():
    class Local(Filter):
        def __init__(self):
            self.names = {"a", "b", "c"}
            self.array = np.arange(5.0)
            self.fn = lambda x: x + 1

        def forward(self, x, state):
            return x

    made = Local()
    first = travel.pack_node("a", made)
    assert travel.pack_node("b", made).token == first.token
    assert len(first.token) == 64
    made.array[0] = 1
    changed = travel.pack_node("a", made)
    assert changed.token != first.token
    made.array[0] = 0
    assert travel.pack_node("a", made).token == first.token
    Local.forward = lambda self, x, state: x + 1
    assert travel.pack_node("a", made).token != first.token


def test_streams_of_the_process_are_those_of_the_child(child):
    made = types.SimpleNamespace(out=sys.__stdout__)
    sys_stdout, sys.stdout = sys.stdout, sys.__stdout__
    try:
        packed = travel.pack_value(made, "x")
    finally:
        sys.stdout = sys_stdout
    assert child("travel.unpack(blobs[0]).out.write('here')", packed) == "here"


# --- functions -----------------------------------------------------------------------------------


class Adder:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x + self.by

    def method(self, x):
        return x - self.by


def closure(by):
    def inner(x, *, more=1000):
        return helper(x) + by + more

    def helper(x):
        return x * 2

    return inner


FUNCTIONS = {
    "lambda": (lambda x: x + 1, 4),
    "builtin": (abs, 3),
    "partial": (functools.partial(lambda a, b: a * b, 5), 15),
    "bound method": (Adder(1).method, 2),
    "callable object": (Adder(1), 4),
    "closure": (closure(100), 1106),
    "named": (np.square, 9),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_travel(kind, child):
    fn, expected = FUNCTIONS[kind]
    code = "print(*(int(travel.unpack(one)(3)) for one in blobs))"
    both = (travel.pack_node("a", fn), travel.pack_function(fn, "The function given to call"))
    assert child(code, *both) == f"{expected} {expected}"


def test_nodes_packed_together_share_classes_and_globals(script):
    assert (
        script("""
        import sys
        from helper import in_child
        from soma import codec
        from soma.sessions import travel
        COUNT = [0]

        class Reading:
            def __init__(self, v): self.v = v

        codec("my.Reading", Reading, dump=lambda r: bytes([r.v]), load=lambda b: Reading(b[0]))

        def one(x):
            COUNT[0] += x
            return Reading(COUNT[0])

        def two(x):
            return isinstance(x, Reading), COUNT[0]

        packed = travel.pack_together({"one": one, "ü": two})
        done = in_child(sys.argv[1], [packed.blob], '''
        nodes = travel.unpack_together(blobs[0])
        from soma.frame import encode, decode_parts
        made = nodes["one"](5)
        e = encode(made)
        print(nodes["ü"](made), decode_parts(e.header, e.buffers).v)
        '''.strip())
        print(done.stdout, done.stderr)
        """)
        == "(True, 5) 5"
    )


# --- coming home ---------------------------------------------------------------------------------

COMING_HOME = """
import sys
from helper import in_child
from soma.engine.blobs import Blob
from soma.sessions import travel
FACTOR = 1

class Broken(Exception):
    def __init__(self, name, *, code):
        super().__init__(name)
        self.code = code
    def __reduce__(self): return _make, (self.args[0], self.code)
    def factor(self): return FACTOR

def _make(name, code): return Broken(name, code=code)

def fails(x):
    raise Broken(x, code=3)

original, packed = Broken.factor, travel.pack_node("a", fails)
done = in_child(sys.argv[1], [packed.blob], '''
try:
    travel.unpack(blobs[0])("oh")
except Exception as error:
    print(travel.pack_value(error, "The error").blob.header.hex())
'''.strip())
assert not done.returncode, done.stderr
FACTOR = 2
error = travel.unpack(Blob(bytes.fromhex(done.stdout), []))
print(type(error) is Broken, error.args, error.code, Broken.factor is original, error.factor())
"""


def test_an_exception_of_main_comes_home_as_its_class(script):
    assert script(COMING_HOME) == "True ('oh',) 3 True 2"


def test_a_class_that_changed_here_changes_there(child):
    class Local(Filter):
        def forward(self, x, state):
            return "old"

    made = Local()
    first = travel.pack_node("a", made)
    assert first.blob
    Local.forward = lambda self, x, state: "new"
    second = travel.pack_node("a", made)
    assert (
        child(
            """
        old = travel.unpack(blobs[0])
        was = old.forward(0, None)
        new = travel.unpack(blobs[1])
        print(was, new.forward(0, None), old.forward(0, None), type(old) is type(new))
        """,
            first,
            second,
        )
        == "old new new True"
    )


def test_a_class_made_there_is_one_class_here(child):
    code = """
    class Made(Exception): pass
    Made.__module__ = "__main__"
    print(travel.pack_value(Made(1), "x").blob.header.hex())
    print(travel.pack_value(Made(2), "x").blob.header.hex())
    """
    one, two = (travel.unpack(Blob(bytes.fromhex(line), [])) for line in child(code).split())
    assert (one.args, two.args) == ((1,), (2,))
    assert type(one) is type(two)


def test_a_module_that_is_deleted_between_two_packings(module, child):
    found, file = module("soma_travel_later", SCALER)
    scaler = found.Scaler(3)
    assert travel.pack_node("a", scaler).token == travel.pack_node("a", scaler).token
    file.unlink()
    packed = travel.pack_node("a", scaler)
    assert child("print(travel.unpack(blobs[0]).forward(2, None))", packed) == "60"
    file.write_text(SCALER.replace("10", "1000"))
    packed = travel.pack_node("a", scaler)
    assert child("print(travel.unpack(blobs[0]).forward(2, None))", packed) == "6000"


def test_reading_what_goes_by_path_needs_no_cloudpickle(module, child):
    found, _ = module("soma_travel_light", SCALER)
    code = "import sys; travel.unpack(blobs[0]); print('cloudpickle' in sys.modules)"
    assert child(code, travel.pack_node("a", found.Scaler(3))) == "False"


class Colour(enum.Enum):
    RED = 1


def test_an_enum_by_value_comes_home_as_its_member(child):
    class Local(enum.Enum):
        RED = 1
        BLUE = 2

        def shown(self):
            return f"{self.name}!"

    shown = Local.shown
    packed = travel.pack_value([Local.BLUE, Colour.RED], "x")
    code = """
    one, two = travel.unpack(blobs[0])
    print(travel.pack_value([one, type(one).RED, one.shown(), two.name], "x").blob.header.hex())
    """
    home = travel.unpack(Blob(bytes.fromhex(child(code, packed)), []))
    assert home == [Local.BLUE, Local.RED, "BLUE!", "RED"]
    assert Local.shown is shown


def test_threads_may_pack_at_once(module, child):
    found, file = module("soma_travel_threads", SCALER)
    file.unlink()
    inside = threading.Barrier(4, timeout=60)

    class Waits:
        def __init__(self, inside, scaler):
            self.inside, self.scaler = inside, scaler

        def __getstate__(self):
            self.inside.wait()
            return {"scaler": self.scaler}

    nodes = [[found.Scaler(by), Waits(inside, found.Scaler(by))] for by in range(4)]
    made = {}

    def pack(by):
        made[by] = travel.pack_node("a", nodes[by])

    run_in_threads(pack, 4)
    code = "print(*(travel.unpack(one)[1].scaler.forward(1, None) for one in blobs))"
    assert child(code, *(made[by] for by in range(4))) == "0 10 20 30"


# --- what is refused -----------------------------------------------------------------------------


class Holder(Filter):
    def forward(self, x, state):
        return x


class Bad:
    """Cannot be pickled, and says why."""

    def __reduce__(self):
        raise ValueError("it is connected")


LOCK = threading.Lock()


def holder(**attributes):
    made = Holder()
    vars(made).update(attributes)
    return made


def refusal(node):
    with pytest.raises(NotSendable) as caught:
        travel.pack_node("a", node)
    return str(caught.value)


def test_the_message_says_it_all():
    assert refusal(holder(_pool=types.SimpleNamespace(lock=threading.Lock()))) == (
        "Node 'a' (Holder): self._pool.lock is a _thread.lock, which cannot travel to another "
        "process. Leave it out in __getstate__, make it when it is needed, or give the node "
        "target='local'"
    )


def test_locks_sockets_files_and_generators_are_named(tmp_path):
    (tmp_path / "file").write_text("text")
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "file").open() as text, (tmp_path / "file").open("rb") as raw:
        held = {
            "a _thread.lock": threading.Lock(),
            "a socket.socket": ours,
            "a _io.TextIOWrapper": text,
            "a _io.BufferedReader": raw,
            "a generator": (i for i in []),
            "a weakref.ReferenceType": weakref.ref(Holder),
            "a _thread._local": threading.local(),
        }
        for kind, one in held.items():
            assert refusal(holder(held={"k": [0, one]})).startswith(
                f"Node 'a' (Holder): self.held['k'][1] is {kind}, which cannot travel"
            )


def test_an_opaque_is_named():
    assert refusal(holder(model=(Opaque(1),))) == (
        "Node 'a' (Holder): self.model[0] is an Opaque, and exists only in the process that made "
        "it. Leave it out in __getstate__, make it when it is needed, or give the node "
        "target='local'"
    )


def test_what_a_class_of_the_user_says_is_told():
    assert "self.x is a " in refusal(holder(x=Bad()))
    assert ".Bad, which cannot travel to another process (ValueError: it is connected). " in (
        refusal(holder(x=Bad()))
    )


def test_the_nearest_path_is_named_and_cycles_end():
    made = holder(child=Holder())
    made.child.parent = made
    made.child.items = [made.child, made]
    made.lock = threading.Lock()
    assert "(Holder): self.lock is a _thread.lock" in refusal(made)


def path_of(node):
    return refusal(node).partition(": ")[2].partition(", which cannot")[0]


def test_paths_through_what_holds_things():
    class Slotted:
        __slots__ = ("inside",)

    class Listed(list):
        pass

    class Reduced:
        def __reduce__(self):
            return Listed, ([1, threading.Lock()],)

    class Kept:
        def __getstate__(self):
            return [threading.RLock()]

    slotted, listed = Slotted(), Listed([0, LOCK])
    slotted.inside = LOCK
    objects = np.array([[None, LOCK]], dtype=object)
    assert path_of(holder(s=slotted)) == "self.s.inside is a _thread.lock"
    assert path_of(holder(s=listed)) == "self.s[1] is a _thread.lock"
    assert path_of(holder(s=objects)) == "self.s.flat[1] is a _thread.lock"
    assert path_of(holder(s={LOCK: 1})) == "a key of self.s is a _thread.lock"
    assert path_of(holder(s={LOCK})) == "a member of self.s is a _thread.lock"
    assert path_of(holder(s=functools.partial(max, LOCK))) == "self.s.args[0] is a _thread.lock"
    assert path_of(holder(s=functools.partial(max, key=LOCK))) == (
        "self.s.keywords['key'] is a _thread.lock"
    )
    assert path_of(holder(s=Adder(LOCK).method)) == "self.s.__self__.by is a _thread.lock"
    assert path_of(holder(s=types.MappingProxyType({"k": LOCK}))) == "self.s['k'] is a _thread.lock"
    assert path_of(holder(s=Reduced())) == "self.s.__reduce__()[1][0][1] is a _thread.lock"
    assert path_of(holder(s=Kept())) == "self.s.__getstate__()[0] is a _thread.RLock"
    assert path_of(holder(s=ValueError(LOCK))) == ("self.s.__reduce__()[1][0] is a _thread.lock")
    assert path_of(holder(**{"no name": LOCK})) == "self['no name'] is a _thread.lock"


def test_paths_through_code_by_value():
    pool = types.SimpleNamespace(lock=LOCK)

    def closes(x):
        return pool, x

    def outer(x):
        return closes(x)

    def with_default(x, lock=LOCK):
        return x

    def with_attribute(x):
        return x

    with_attribute.pool = pool
    assert path_of(closes) == (
        "pool.lock, where pool is a variable that closes closes over, is a _thread.lock"
    )
    assert path_of(outer) == (
        "pool.lock, where pool is a variable that closes closes over, and closes is a variable "
        "that outer closes over, is a _thread.lock"
    )
    assert path_of(with_default) == "with_default.__defaults__[0] is a _thread.lock"
    assert path_of(with_attribute) == "with_attribute.pool.lock is a _thread.lock"
    assert path_of(holder(fn=closes)) == (
        "pool.lock, where pool is a variable that self.fn closes over, is a _thread.lock"
    )


def test_paths_through_classes_by_value():
    class Shared(Filter):
        pool = types.SimpleNamespace(lock=LOCK)

        def forward(self, x, state):
            return x

    class Derived(Shared):
        pass

    class Uses(Filter):
        @staticmethod
        def found():
            return Shared.pool

        def forward(self, x, state):
            return x

    assert path_of(Shared()) == "Shared.pool.lock is a _thread.lock"
    assert path_of(Derived()) == "Shared.pool.lock is a _thread.lock"
    assert path_of(Uses()) == (
        "Shared.pool.lock, where Shared is a variable that Uses.found closes over, is a "
        "_thread.lock"
    )


def test_globals_of_main_and_of_a_module_are_named(script, monkeypatch):
    assert script("""
        import threading
        from soma import Filter, NotSendable
        from soma.sessions import travel
        POOL = {"lock": threading.Lock()}

        class Scaler(Filter):
            @property
            def pool(self): return POOL
            def forward(self, x, state): return x

        def scale(x): return POOL

        for node in (Scaler(), scale, [Scaler]):
            try:
                travel.pack_node("a", node)
            except NotSendable as error:
                print(str(error).partition(", which")[0])
        """) == (
        "Node 'a' (Scaler): POOL['lock'], where POOL is a global that Scaler.pool uses, is a "
        "_thread.lock\n"
        "Node 'a': POOL['lock'], where POOL is a global that scale uses, is a _thread.lock\n"
        "Node 'a' (list): POOL['lock'], where POOL is a global that Scaler.pool uses, is a "
        "_thread.lock"
    )
    made = types.ModuleType("soma_travel_globals")
    made.LOCK = LOCK
    monkeypatch.setitem(sys.modules, made.__name__, made)

    def uses(x):
        return made.LOCK

    assert path_of(uses) == (
        "made.LOCK, where made is a variable that uses closes over, is a _thread.lock"
    )


def test_what_is_nested_too_deeply_is_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert refusal(holder(deep=deep)) == (
        "Node 'a' (Holder): it is nested too deeply to travel to another process"
    )


def test_functions_arguments_and_values_are_named():
    with pytest.raises(NotSendable) as caught:
        travel.pack_function(lambda: LOCK, "The function")
    assert str(caught.value) == (
        "The function: LOCK, where LOCK is a global that <lambda> uses, is a _thread.lock, which "
        "cannot travel to another process. Make it where it is used"
    )
    with pytest.raises(NotSendable, match=r"^The output: value\['x'\] is a _thread.lock"):
        travel.pack_value({"x": LOCK}, "The output")
    with pytest.raises(NotSendable, match=r"^Node 'b' \(Holder\): self.lock is a _thread.lock"):
        travel.pack_together({"a": holder(), "b": holder(lock=LOCK)})


def test_no_interrupt_is_swallowed():
    class Interrupts:
        def __getstate__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        travel.pack_node("a", Interrupts())


# --- codecs --------------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch):
    """Gives the codecs back as they were, and starts without any."""
    for name in ("_by_kind", "_by_type"):
        monkeypatch.setattr(codecs, name, {})
    codecs._resolved.clear()
    yield
    codecs._resolved.clear()


def test_there_may_be_no_codecs(table):
    assert travel.pack_codecs() is None


def test_codecs_travel_and_may_come_twice(table, child):
    class Reading:
        def __init__(self, value):
            self.value = value

    class Opted:
        pass

    class Large:
        def __init__(self, array):
            self.array = array

    codecs.codec("my.Reading", Reading, dump=lambda r: r.value, load=lambda raw: Reading(raw[:]))
    codecs.codec("my.Opted", Opted, pickle=True)
    codecs.codec(
        "my.Large",
        Large,
        dump_buffers=lambda one: (None, [memoryview(one.array).cast("B")]),
        load_buffers=lambda _, buffers: Large(np.frombuffer(buffers[0])),
    )
    packed = travel.pack_codecs()
    assert travel.pack_codecs().token == packed.token
    node = travel.pack_node("a", lambda x: [Reading(x), Large(np.arange(3.0)), Reading])
    code = """
    travel.register_codecs(blobs[0])
    travel.register_codecs(blobs[0])
    from soma.codecs import codecs_registered
    from soma.frame import decode_parts, encode
    *made, cls = travel.unpack(blobs[1])(b"abc")
    encoded = encode(made)
    one, two = decode_parts(encoded.header, encoded.buffers)
    print(codecs_registered(), one.value, type(one) is cls, two.array.tolist())
    """
    assert child(code, packed, node) == (
        "['my.Reading', 'my.Opted', 'my.Large'] b'abc' True [0.0, 1.0, 2.0]"
    )


def test_a_codec_that_cannot_travel_is_named(table):
    class Reading:
        pass

    codecs.codec("my.Reading", Reading, dump=lambda r: LOCK, load=lambda raw, kept=LOCK: raw)
    with pytest.raises(NotSendable) as caught:
        travel.pack_codecs()
    assert str(caught.value).startswith("Codec 'my.Reading': ")
    assert " is a _thread.lock, which cannot travel" in str(caught.value)
    with pytest.raises(NotSendable, match=r"^Codec 'my.Reading': "):
        travel.pack_together({"a": holder()})


def test_codecs_of_plugins_are_left_out(table):
    class Reading:
        pass

    row = codecs.RegisteredCodec(
        kind="p.Reading",
        type=Reading,
        type_name=codecs.full_name(Reading),
        dump=bytes,
        load=bytes,
        registered_by="soma-example 0.1.0",
    )
    codecs._by_kind["p.Reading"] = row
    assert travel.pack_codecs() is None
