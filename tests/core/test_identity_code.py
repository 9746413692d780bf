"""When two pieces of code are the same: other code never, the same in two processes always.

Each case is a module text; what is compared is the identity of its ``node``. The texts are executed
as modules of their own, and some as scripts in processes of their own.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import types
import weakref
from textwrap import dedent
from typing import ClassVar

import pytest

from soma.identity import NodeIdentity, differences, identify
from support.distributions import run_python

HEADER = "import functools\nfrom dataclasses import dataclass, field\nfrom soma import Filter\n"


LIBRARY = "def make(k):\n    def g(x): return x * k\n    return g\n"


@pytest.fixture
def module():
    """Return a function that executes a text as a module and returns it."""
    made = ["tests_library"]
    library = sys.modules["tests_library"] = types.ModuleType("tests_library")
    run_in(library, LIBRARY)

    def execute(text, name="user_code", file="<user>"):
        result = types.ModuleType(name)
        sys.modules[name] = result
        made.append(name)
        text = dedent(text)
        future = "from __future__ import annotations\n"
        header = future + HEADER if text.startswith(future) else HEADER
        code = compile(header + text.removeprefix(future), file, "exec", dont_inherit=True)
        exec(code, vars(result))  # noqa: S102  # its purpose
        return result

    yield execute
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def code_of(module):
    return lambda text, **kwargs: identify(module(text, **kwargs).node).code


SCALE = """
class Scale(Filter):
    {attributes}
    def forward(self, x, state):
        {body}
node = Scale()
"""


def run_in(module, text):
    """Run a text in a module, as a notebook cell would be."""
    exec(compile(text, "<cell>", "exec", dont_inherit=True), vars(module))  # noqa: S102  # its purpose


def scale(body="return x * 2", attributes="pass", before="", after=""):
    return dedent(before) + SCALE.format(body=body, attributes=attributes) + dedent(after)


HELPERS = "def helper(x):\n    return x {}\n"

SUPER = """
class B(Filter):
    def forward(self, x, state):
        return {}
class C(B):
    def forward(self, x, state):
        return super().forward(x, state)
node = C()
"""
CLOSURE = """
def factory(k):
    class C(Filter):
        def forward(self, x, state):
            return x * k
    return C
node = factory({})()
"""

BASES = """
class A:
    def forward(self, x, state): return 1
class B:
    def forward(self, x, state): return 2
class C({}):
    pass
node = C()
"""
TAKEN_OVER = "m = functools.wraps(sum)(lambda self: h(1))"
LOCKED = "class T:\n    lock = object()\n    def f(self, x): return {}\n"
DESCRIPTOR = """
class D:
    def __init__(self, k): self.k = k
    def __get__(self, owner, kind): return self.k
class C(Filter):
    _k = D({})
    def forward(self, x, state): return x * self._k
node = C()
"""
OVERLOADS = """
@functools.singledispatch
def helper(x): return 0
@helper.register
def _(x: int): return {}
class C(Filter):
    def forward(self, x, state): return helper(x)
node = C()
"""
METHOD_OVERLOADS = """
class C(Filter):
    @functools.singledispatchmethod
    def f(self, x): return 0
    @f.register
    def _(self, x: int): return {}
    @f.register
    def _(self, x: str): return 9
    def forward(self, x, state): return self.f(x)
node = C()
"""
DECORATOR = """
class Scaled:
    def __init__(self, f, k):
        functools.update_wrapper(self, f)
        self.f, self.k = f, k
    def __call__(self, *args): return {1}
def plain(x): return x
helper = Scaled(plain, {0})
class C(Filter):
    def forward(self, x, state): return helper(x)
node = C()
"""
CALLABLE = """
class Op:
    def __init__(self, k):
        self.k = k
        self.__name__ = "op"
    def __call__(self, x): return x * self.k
op = Op({})
"""
WRAPPED_INIT = """
def wrap(f):
    @functools.wraps(f)
    def wrapper(self, *args):
        f(self, *args)
        self.extra = {}
    return wrapper
@dataclass
class C(Filter):
    a: int = 1
    def forward(self, x, state): return x
C.__init__ = wrap(C.__init__)
node = C()
"""
DEPENDS = """
def helper(): return {}
def other(): return 9
class B(Filter):
    _cache_depends = (helper,)
class C(B):
    _cache_depends = (other,)
    def forward(self, x, state): return x
node = C()
"""
MODULE_VALUE = """
import types
m = types.ModuleType("m")
m.W = functools.partial(max, {})
class C(Filter):
    _cache_depends = (m,)
    def forward(self, x, state): return x
node = C()
"""

DIFFERENT = {
    "another body": (scale("return x * 2"), scale("return x * 3")),
    "int and float": (scale("return x * 2"), scale("return x * 2.0")),
    "int and bool": (scale("return x * 1"), scale("return x * True")),
    "0.0 and -0.0": (scale("return x * 0.0"), scale("return x * -0.0")),
    "a helper": (
        scale("return helper(x)", before=HELPERS.format("+ 1")),
        scale("return helper(x)", before=HELPERS.format("+ 2")),
    ),
    "a helper's helper": (
        scale("return outer(x)", before=HELPERS.format("+ 1") + "outer = lambda x: helper(x)\n"),
        scale("return outer(x)", before=HELPERS.format("- 1") + "outer = lambda x: helper(x)\n"),
    ),
    "a helper in a nested function": (
        scale("return (lambda: [helper(v) for v in x])()", before=HELPERS.format("+ 1")),
        scale("return (lambda: [helper(v) for v in x])()", before=HELPERS.format("+ 2")),
    ),
    "a constant of the module": (
        scale("return x * RATE", before="RATE = 1\n"),
        scale("return x * RATE", before="RATE = 2\n"),
    ),
    "a list of the module": (
        scale("return x * RATES[0]", before="RATES = [1, {'a': 2}]\n"),
        scale("return x * RATES[0]", before="RATES = [1, {'a': 3}]\n"),
    ),
    "a name that is missing": (
        scale("return x * RATE"),
        scale("return x * RATE", before="RATE = 2\n"),
    ),
    "a name that hides a builtin": (
        scale("return sorted(x)"),
        scale("return sorted(x)", before="def sorted(x):\n    return x\n"),
    ),
    "stars": (
        "class C:\n    def forward(self, *x): return x\nnode = C()\n",
        "class C:\n    def forward(self, x): return x\nnode = C()\n",
    ),
    "keyword-only": (
        scale("return x", attributes="def f(self, *, a): return a"),
        scale("return x", attributes="def f(self, a): return a"),
    ),
    "positional-only": (
        scale("return x", attributes="def f(self, a, /): return a"),
        scale("return x", attributes="def f(self, a): return a"),
    ),
    "a default": (
        scale("return x", attributes="def f(self, a=1): return a"),
        scale("return x", attributes="def f(self, a=2): return a"),
    ),
    "a keyword default": (
        scale("return x", attributes="def f(self, *, a=1): return a"),
        scale("return x", attributes="def f(self, *, a=1.0): return a"),
    ),
    "a string in a comprehension": (
        scale('return ["a" for _ in x]'),
        scale('return ["b" for _ in x]'),
    ),
    "a string in a lambda": (scale('return (lambda: "a")'), scale('return (lambda: "b")')),
    "a set of constants": (scale("return x in {1, 2}"), scale("return x in {1, 3}")),
    "an exception handler": (
        scale("try:\n            return 1\n        except KeyError:\n            return 2"),
        scale("try:\n            return 1\n        except ValueError:\n            return 2"),
    ),
    "a private method": (
        scale("return self._f(x)", attributes="def _f(self, x): return x"),
        scale("return self._f(x)", attributes="def _f(self, x): return -x"),
    ),
    "a private constant": (scale(attributes="_k = 1"), scale(attributes="_k = 2")),
    "a private tuple": (scale(attributes="_k = (1, 'a')"), scale(attributes="_k = (1, 'b')")),
    "a public attribute": (scale(attributes="k = [1]"), scale(attributes="k = [2]")),
    "a property": (
        scale(attributes="p = property(lambda self: 1)"),
        scale(attributes="p = property(lambda self: 2)"),
    ),
    "a property's setter": (
        scale(attributes="p = property(lambda self: 1, lambda self, v: None)"),
        scale(attributes="p = property(lambda self: 1, lambda self, v: 0)"),
    ),
    "a cached property": (
        scale(attributes="p = functools.cached_property(lambda self: 1)"),
        scale(attributes="p = functools.cached_property(lambda self: 2)"),
    ),
    "a static method": (
        scale(attributes="s = staticmethod(lambda: 1)"),
        scale(attributes="s = staticmethod(lambda: 2)"),
    ),
    "static and class method": (
        scale(attributes="s = staticmethod(lambda a: 1)"),
        scale(attributes="s = classmethod(lambda a: 1)"),
    ),
    "an lru_cached method": (
        scale(attributes="@functools.lru_cache\n    def f(self): return 1"),
        scale(attributes="@functools.lru_cache\n    def f(self): return 2"),
    ),
    "a partial method": (
        scale(attributes="def f(self, a): return a\n    g = functools.partialmethod(f, 1)"),
        scale(attributes="def f(self, a): return a\n    g = functools.partialmethod(f, 2)"),
    ),
    "a decorator's own code": (
        scale(
            attributes="@decorate\n    def f(self): return 1",
            before="""
            def decorate(f):
                @functools.wraps(f)
                def wrapper(*args):
                    return f(*args) + 1
                return wrapper
            """,
        ),
        scale(
            attributes="@decorate\n    def f(self): return 1",
            before="""
            def decorate(f):
                @functools.wraps(f)
                def wrapper(*args):
                    return f(*args) + 2
                return wrapper
            """,
        ),
    ),
    "a base class": (
        (
            "class B(Filter):\n    def f(self): return 1\n"
            "class C(B):\n    def forward(self, x, state): return self.f()\nnode = C()\n"
        ),
        (
            "class B(Filter):\n    def f(self): return 2\n"
            "class C(B):\n    def forward(self, x, state): return self.f()\nnode = C()\n"
        ),
    ),
    "a base class of the same name": (
        (
            "class C(Filter):\n    def f(self): return 1\nB = C\n"
            "class C(B):\n    def forward(self, x, state): return self.f()\nnode = C()\n"
        ),
        (
            "class C(Filter):\n    def f(self): return 2\nB = C\n"
            "class C(B):\n    def forward(self, x, state): return self.f()\nnode = C()\n"
        ),
    ),
    "what super() calls": (
        SUPER.format(1),
        SUPER.format(2),
    ),
    "a metaclass": (
        (
            "class M(type):\n    def f(cls): return 1\n"
            "class C(Filter, metaclass=M):\n    def forward(self, x, state): return x\nnode = C()\n"
        ),
        (
            "class M(type):\n    def f(cls): return 2\n"
            "class C(Filter, metaclass=M):\n    def forward(self, x, state): return x\nnode = C()\n"
        ),
    ),
    "a class that it uses": (
        scale("return Tool().run(x)", before="class Tool:\n    def run(self, x): return x\n"),
        scale("return Tool().run(x)", before="class Tool:\n    def run(self, x): return -x\n"),
    ),
    "a class that it uses, without methods": (
        scale("return Tool.rate", before="class Tool:\n    rate = 1\n"),
        scale("return Tool.rate", before="class Tool:\n    rate = 2\n"),
    ),
    "an Enum that it uses": (
        scale("return Tool.A", before="import enum\nclass Tool(enum.Enum):\n    A = 1\n"),
        scale("return Tool.A", before="import enum\nclass Tool(enum.Enum):\n    A = 2\n"),
    ),
    "a function in a table of the module": (
        scale("return TABLE['f'](x)", before="TABLE = {'f': lambda x: x}\n"),
        scale("return TABLE['f'](x)", before="TABLE = {'f': lambda x: -x}\n"),
    ),
    "a dataclass field": (
        (
            "@dataclass\nclass C(Filter):\n    a: int = 1\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
        (
            "@dataclass\nclass C(Filter):\n    a: int = 1\n    b: int = 2\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
    ),
    "a default factory": (
        (
            "@dataclass\nclass C(Filter):\n    a: list = field(default_factory=lambda: [1])\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
        (
            "@dataclass\nclass C(Filter):\n    a: list = field(default_factory=lambda: [2])\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
    ),
    "a dataclass's own method": (
        (
            "@dataclass\nclass C(Filter):\n    a: int = 1\n    def __eq__(self, o): return True\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
        (
            "@dataclass\nclass C(Filter):\n    a: int = 1\n    def __eq__(self, o): return False\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
    ),
    "a special method": (
        scale(attributes="def __call__(self): return 1"),
        scale(attributes="def __call__(self): return 2"),
    ),
    "a closure": (
        "def factory(k):\n    def f(x, state): return x * k\n    return f\nnode = factory(2)\n",
        "def factory(k):\n    def f(x, state): return x * k\n    return f\nnode = factory(3)\n",
    ),
    "a closure of a class": (
        CLOSURE.format(2),
        CLOSURE.format(3),
    ),
    "functions that call each other": (
        scale(
            "return even(x)",
            before="def even(n):\n    return n == 0 or odd(n - 1)\n"
            "def odd(n):\n    return n != 0 and even(n - 1)\n",
        ),
        scale(
            "return even(x)",
            before="def even(n):\n    return n == 0 or odd(n - 1)\n"
            "def odd(n):\n    return n != 1 and even(n - 1)\n",
        ),
    ),
    "the order of bases": (BASES.format("A, B"), BASES.format("B, A")),
    "a value that is the docstring too": (
        scale('"""abc"""\n        return "abc"'),
        scale('"""xyz"""\n        return "xyz"'),
    ),
    "a docstring that is used": (
        scale('"""abc"""\n        return "abc"'),
        scale('"""abc"""\n        return None'),
    ),
    "a private partial": (
        scale(attributes="_f = functools.partial(max, 2)"),
        scale(attributes="_f = functools.partial(max, 3)"),
    ),
    "a private table of functions": (
        scale(attributes="_ops = {'a': lambda x: 1}"),
        scale(attributes="_ops = {'a': lambda x: 2}"),
    ),
    "a private nested class": (
        scale(attributes="class _C:\n        k = 1"),
        scale(attributes="class _C:\n        k = 2"),
    ),
    "a name between double underscores": (
        scale(attributes="__factor__ = 2"),
        scale(attributes="__factor__ = 3"),
    ),
    "an attribute of a helper": (
        scale("return helper.k", before=HELPERS.format("+ 1") + "helper.k = 2\n"),
        scale("return helper.k", before=HELPERS.format("+ 1") + "helper.k = 3\n"),
    ),
    "a helper beside something without a hash": (
        scale("return helper(x)", before="M = object()\ndef helper(x, m=M): return x * 2\n"),
        scale("return helper(x)", before="M = object()\ndef helper(x, m=M): return x * 3\n"),
    ),
    "a class beside something without a hash": (
        scale(
            "return T().f(x)",
            before=LOCKED.format(1),
        ),
        scale(
            "return T().f(x)",
            before=LOCKED.format(2),
        ),
    ),
    "an overload of a function": (OVERLOADS.format(1), OVERLOADS.format(2)),
    "an overload of a method": (
        METHOD_OVERLOADS.format(1),
        METHOD_OVERLOADS.format(2),
    ),
    "the state of a decorator that is a class": (
        DECORATOR.format(1, "self.f(*args) * self.k"),
        DECORATOR.format(2, "self.f(*args) * self.k"),
    ),
    "the code of a decorator that is a class": (
        DECORATOR.format(1, "self.f(*args) * self.k"),
        DECORATOR.format(1, "self.f(*args) + self.k"),
    ),
    "an object that can be called": (
        scale("return op(x)", before=CALLABLE.format(2)),
        scale("return op(x)", before=CALLABLE.format(3)),
    ),
    "a wrapped constructor of a dataclass": (WRAPPED_INIT.format(1), WRAPPED_INIT.format(2)),
    "a function made elsewhere": (
        scale("return g(x)", before="from tests_library import make\ng = make(2)\n"),
        scale("return g(x)", before="from tests_library import make\ng = make(3)\n"),
    ),
    "a bound method of C": (
        scale("return get(x)", before="get = {1: 2}.get\n"),
        scale("return get(x)", before="get = {1: 3}.get\n"),
    ),
    "a helper that took over another's name": (
        scale("return h(x)", before="@functools.wraps(sum)\ndef h(x): return 1\n"),
        scale("return h(x)", before="@functools.wraps(sum)\ndef h(x): return 2\n"),
    ),
    "a pattern": (
        scale("return P.match(x)", before="import re\nP = re.compile('a')\n"),
        scale("return P.match(x)", before="import re\nP = re.compile('b')\n"),
    ),
    "a getter": (
        scale("return G(x)", before="import operator\nG = operator.itemgetter(0)\n"),
        scale("return G(x)", before="import operator\nG = operator.itemgetter(1)\n"),
    ),
    "what a base depends on": (DEPENDS.format(1), DEPENDS.format(2)),
    "an instance in a module it depends on": (MODULE_VALUE.format(2), MODULE_VALUE.format(3)),
    "a private descriptor": (DESCRIPTOR.format(2), DESCRIPTOR.format(3)),
    "what a method names that took over another's name": (
        scale(
            "return 1", "m = functools.wraps(sum)(lambda self: h(1))", before="def h(x): return 1\n"
        ),
        scale(
            "return 1", "m = functools.wraps(sum)(lambda self: h(1))", before="def h(x): return 2\n"
        ),
    ),
    "an object of a class of the module": (
        scale("return cfg.k", before="class Cfg:\n    k = 1\ncfg = Cfg()\n"),
        scale("return cfg.k", before="class Cfg:\n    k = 2\ncfg = Cfg()\n"),
    ),
    "a version": (
        scale(attributes="_cache_version = '1'"),
        scale(attributes="_cache_version = '2'"),
    ),
    "a version's type": (
        scale(attributes="_cache_version = '1'"),
        scale(attributes="_cache_version = 1"),
    ),
    "an environment": (scale(), scale(attributes="_cache_env = ('click',)")),
    "a module it depends on": (
        scale(
            before="import types\nm = types.ModuleType('m')\nexec('def f(x): return 1', vars(m))\n",
            attributes="_cache_depends = (m,)",
        ),
        scale(
            before="import types\nm = types.ModuleType('m')\nexec('def f(x): return 2', vars(m))\n",
            attributes="_cache_depends = (m,)",
        ),
    ),
    "a function it depends on": (
        scale(before="def f(): return 1\n", attributes="_cache_depends = (f,)"),
        scale(before="def f(): return 2\n", attributes="_cache_depends = (f,)"),
    ),
    "another name": (scale(), scale().replace("Scale", "Scala")),
}

SAME = {
    "comments and blank lines": (scale(), "\n\n# hello\n" + scale("return x * 2  # twice")),
    "a docstring": (
        scale('"""One."""\n        return x * 2'),
        scale('"""Two, which is longer."""\n        return x * 2'),
    ),
    "a class docstring": (scale(attributes='"""One."""'), scale(attributes='"""Two."""')),
    "a docstring where there was none": (
        scale("return None"),
        scale('"""New."""\n        return None'),
    ),
    "how annotations are kept": (scale(), "from __future__ import annotations\n" + scale()),
    "annotations of a dataclass": (
        (
            "@dataclass\nclass C(Filter):\n    a: int = 1\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
        (
            "@dataclass\nclass C(Filter):\n    a: 'list[object]' = 1\n"
            "    def forward(self, x, state): return x\nnode = C()\n"
        ),
    ),
    "annotations": (
        scale(attributes="def f(self, a): return a"),
        scale(attributes="def f(self, a: 'int') -> 'int': return a"),
    ),
    "code that is not used": (scale(), scale(before="def unused(): return 1\n")),
    "a private object": (scale(attributes="_o = object()"), scale(attributes="_o = object()")),
    "under a version, the code": (
        scale("return x", attributes="_cache_version = '1'"),
        scale("return -x", attributes="_cache_version = '1'"),
    ),
    "a name that is only an attribute": (
        scale("return x.rate", before="rate = 1\n"),
        scale("return x.rate", before="rate = 2\n"),
    ),
    "helpers in another order": (
        scale("return f(x) + g(x)", before="def f(x): return 1\ndef g(x): return 2\n"),
        scale("return f(x) + g(x)", before="def g(x): return 2\ndef f(x): return 1\n"),
    ),
    "a nested class on another line": (
        scale("class A:\n            b = 1\n        return A"),
        scale("class A:\n            b = 1\n        return A", before="\n\n\n"),
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_different_code_has_different_identities(case, code_of):
    one, other = DIFFERENT[case]
    assert code_of(one) == code_of(one)
    assert code_of(one) != code_of(other)


@pytest.mark.parametrize("case", SAME)
def test_what_does_not_matter(case, code_of):
    one, other = SAME[case]
    assert code_of(one) == code_of(other)


def test_file_names_never_matter(code_of):
    assert code_of(scale(), file="/a/b.py") == code_of(scale(), file="/c/d.py")


def test_no_two_cases_share_an_identity(code_of):
    seen = {}
    for case, texts in DIFFERENT.items():
        for place, text in enumerate(texts):
            code = code_of(text)
            assert seen.setdefault(code, dedent(text)) == dedent(text), (case, place)


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_the_same_code_in_another_process_has_the_same_identity(hash_seed, module):
    texts = [text for pair in (*DIFFERENT.values(), *SAME.values()) for text in pair]
    here = [identify(module(text).node).code for text in texts]
    done = run_python(
        f"""
        import sys, types
        from textwrap import dedent
        from soma.identity import identify
        library = sys.modules["tests_library"] = types.ModuleType("tests_library")
        exec({LIBRARY!r}, vars(library))
        future = "from __future__ import annotations\\n"
        for text in map(dedent, {texts!r}):
            module = sys.modules["user_code"] = types.ModuleType("user_code")
            start = future if text.startswith(future) else ""
            exec(start + {HEADER!r} + text.removeprefix(future), vars(module))
            print(identify(module.node).code)
        """,
        PYTHONHASHSEED=hash_seed,
    )
    assert done.stdout.split() == here, done.stderr


def test_two_scripts_with_a_class_of_one_name_and_different_helpers(tmp_path):
    codes = []
    for body in ("x + 1", "x + 2", "x + 1"):
        done = run_python(
            f"""
            from soma import Filter
            from soma.identity import identify
            def helper(x):
                return {body}
            class Scale(Filter):
                def forward(self, x, state):
                    return helper(x)
            print(identify(Scale()).code)
            """
        )
        codes.append(done.stdout)
    assert codes[0] == codes[2] != codes[1]


def test_a_class_defined_twice_in_one_file_counts_as_it_is_loaded(tmp_path):
    text = (
        "from soma import Filter\n"
        "class Scale(Filter):\n    def forward(self, x, state): return 1\n"
        "first = Scale()\n"
        "class Scale(Filter):\n    def forward(self, x, state): return 2\n"
        "second = Scale()\n"
    )
    (tmp_path / "twice.py").write_text(text)
    done = run_python(
        """
        import twice
        from pathlib import Path
        from soma.identity import identify
        before = identify(twice.first).code, identify(twice.second).code
        Path(twice.__file__).write_text("a syntax error (")  # a file edited after import
        print(before[0] != before[1])
        print(before == (identify(twice.first).code, identify(twice.second).code))
        """,
        tmp_path,
    )
    assert done.stdout == "True\nTrue\n", done.stderr


@pytest.mark.parametrize("namespace", ["{}", "{'__name__': 'builtins'}", "{'__name__': 'json'}"])
def test_classes_and_functions_from_exec_count_by_their_code(namespace):
    done = run_python(
        f"""
        from soma.identity import identify
        codes = []
        for number in (1, 2, 1):
            names = {namespace}
            exec(f"class A:\\n    def forward(self, x, state): return {{number}}", names)
            exec(f"def f(x, state): return {{number}}", names)
            codes.append((identify(names["A"]()).code, identify(names["f"]).code))
        print(codes[0] == codes[2], codes[0][0] != codes[1][0], codes[0][1] != codes[1][1])
        """
    )
    assert done.stdout == "True True True\n", done.stderr


class TestChangesAtRunTime:
    """The memo notices what is rebound or changed after the first use."""

    TEXT = """
    RATES = [1, 2]
    def helper(x):
        return x + 1
    class Base: pass
    class Other(Base):
        def forward(self, x, state):
            return 0
    class Tool(Base):
        rate = 1
    class Scale(Filter):
        _cache_depends = [helper]
        public = {"a": 1}
        def __init__(self):
            self.k = 1
        def forward(self, x, state, *, mode="a"):
            return helper(x) * Tool.rate * RATES[0] * undefined_yet
    node = Scale()
    """

    @pytest.fixture
    def user(self, module):
        return module(self.TEXT)

    CHANGES: ClassVar = {
        "a helper is rebound": "def helper(x): return x + 2",
        "a helper gets other code": "helper.__code__ = (lambda x: x + 3).__code__",
        "a helper gets a default": "helper.__defaults__ = (1,)",
        "a method is replaced": "Scale.forward = lambda self, x, state: x",
        "a method is added": "Scale.extra = lambda self: 1",
        "a keyword default changes": "Scale.forward.__kwdefaults__['mode'] = 'b'",
        "a list of the module changes": "RATES.append(3)",
        "a public class attribute changes": "Scale.public['a'] = 2",
        "another class's attribute changes": "Tool.rate = 2",
        "a name appears": "undefined_yet = 5",
        "another class's bases change": "Tool.__bases__ = (Other,)",
        "the node gets another class": "node.__class__ = Other",
        "a helper gets an attribute": "helper.k = 1",
        "a helper is said to wrap another": "helper.__wrapped__ = lambda x: x",
        "a list of dependencies grows": "Scale._cache_depends.append(Other)",
    }

    @pytest.mark.parametrize("case", CHANGES)
    def test_a_change_counts_at_once(self, case, user):
        reader = NodeIdentity("node", user.node)
        before = reader.read()
        assert reader.read() is before
        run_in(user, self.CHANGES[case])
        after = reader.read()
        assert after.code != before.code
        assert after.config == before.config
        assert after == identify(user.node)
        assert reader.read() is after
        assert differences(before.parts, after.parts)

    def test_an_attribute_counts_at_once(self, user):
        reader = NodeIdentity("node", user.node)
        before = reader.read()
        user.node.k = 2
        assert differences(before.parts, reader.read().parts) == ["attribute k changed"]
        user.node.k = 1
        assert reader.read().config == before.config
        user.node.new = None
        assert differences(before.parts, reader.read().parts) == ["attribute new is new"]
        del user.node.k
        user.node.new = 1
        assert reader.read().config != before.config

    def test_a_notebook_cell_run_twice_changes_nothing(self, user):
        reader = NodeIdentity("node", user.node)
        before = reader.read()
        run_in(user, "def helper(x):\n        return x + 1")
        assert reader.read().code == before.code

    def test_differences_name_what_differs(self, user):
        before = identify(user.node)
        run_in(user, "def helper(x): return x\nRATES.append(1)")
        assert differences(before.parts, identify(user.node).parts) == [
            "global RATES changed",
            "global helper changed",
        ]
        assert differences(before.parts, before.parts) == []

    def test_parts_are_short(self, user):
        assert {len(digest) for digest in identify(user.node).parts.values()} == {4}


def test_many_threads_never_see_an_identity_that_is_past(module):
    user = module("def helper(x): return 0\ndef node(x, state): return helper(x)\n")
    reader = NodeIdentity("node", user.node)
    wrong = []

    def read():
        for _ in range(200):
            with lock:
                count[0] += 1
                run_in(user, f"def helper(x): return {count[0]}")
                expected = identify(user.node).code
                if reader.read().code != expected:
                    wrong.append(count[0])
            reader.read()

    lock, count = threading.Lock(), [0]
    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert count == [1200]


def test_a_value_that_is_gone_is_not_kept_alive(module):
    user = module("import numpy as np\nBIG = np.zeros(10)\ndef node(x, state): return BIG[0]\n")
    gone = weakref.ref(user.BIG)
    identify(user.node)
    user.BIG = None
    gc.collect()
    assert gone() is None


BY_VALUE = """
import cloudpickle, pickle, sys
from soma.identity import identify
{source}
nodes = [Plain(), WithHelper(), WithLambda(lambda x: CONSTANT * x), Data(3), factory(2), function]
if sys.argv[1:]:
    with open(sys.argv[1], "wb") as file:
        cloudpickle.dump(nodes, file)
for node in nodes:
    one = identify(node)
    print(one.name, one.code, one.config)
"""
SOURCE = """
from dataclasses import dataclass, field
from soma import Filter
CONSTANT = 3
def helper(x): return x + CONSTANT
class Plain(Filter):
    def forward(self, x, state): return x
class WithHelper(Filter):
    def forward(self, x, state): return helper(x)
class WithLambda(Filter):
    def __init__(self, f): self.f = f
    def forward(self, x, state): return self.f(x)
@dataclass
class Data(Filter):
    k: int
    names: list = field(default_factory=lambda: [1])
    def forward(self, x, state): return x * self.k
def factory(k):
    class Made(Filter):
        def forward(self, x, state): return helper(x) * k
    return Made()
def function(x, state): return helper(x)
"""


def test_code_that_travels_by_value_keeps_its_identity(tmp_path):
    """A filter of a script, sent with cloudpickle, is the same filter where it arrives."""
    script = tmp_path / "script.py"
    script.write_text(BY_VALUE.format(source=SOURCE))
    command = [sys.executable, str(script), str(tmp_path / "nodes")]
    sent = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    received = run_python(
        f"""
        import pickle
        from soma.identity import identify
        with open({str(tmp_path / "nodes")!r}, "rb") as file:
            for node in pickle.load(file):
                one = identify(node)
                print(one.name, one.code, one.config)
        """
    )
    assert received.stdout == sent.stdout, received.stderr
    assert len(set(sent.stdout.splitlines())) == 6


def test_a_spawned_process_sees_the_same_filters(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        SOURCE
        + dedent(
            """
            import enum, multiprocessing
            from soma.frame import content_hash
            from soma.identity import identify
            class Colour(enum.Enum):
                RED = 1
            def look():
                return identify(WithHelper()).code, content_hash(Colour.RED)
            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.apply(look) == look())
            """
        )
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True\n"


def test_installed_packages_count_by_name_and_version(module, monkeypatch):
    user = module(
        """
        import numpy as np
        class C(Filter):
            def __init__(self): self.agg, self.kind = np.mean, np.float32
            def forward(self, x, state): return self.agg(x)
        node = C()
        """
    )
    before = identify(user.node)
    monkeypatch.setattr("numpy.__version__", "0.0.1")
    from soma.identity import code

    code.version_of.cache_clear()
    try:
        after = identify(user.node)
    finally:
        monkeypatch.undo()
        code.version_of.cache_clear()
    assert differences(before, after) == ["attribute agg changed", "attribute kind changed"]


def test_what_a_cached_property_keeps_is_no_config(module):
    user = module(
        """
        class C(Filter):
            @functools.cached_property
            def table(self): return [1]
            def forward(self, x, state): return self.table
        node = C()
        """
    )
    before = identify(user.node)
    assert user.node.table == [1]
    assert identify(user.node) == before


def test_a_version_holds_for_a_nested_filter_and_a_base(module):
    text = """
    class Inner(Filter):
        _cache_version = "{}"
        def forward(self, x, state): return {}
    class Base(Filter):
        _cache_version = "{}"
        def helper(self): return {}
    class Outer(Base):
        def __init__(self): self.inner = Inner()
        def forward(self, x, state): return self.inner.forward(x, state)
    node = Outer()
    """
    one = identify(module(text.format(1, 1, 1, 1)).node)
    assert identify(module(text.format(1, 2, 1, 2)).node) == one
    assert identify(module(text.format(2, 1, 1, 1)).node).config != one.config
    assert identify(module(text.format(1, 1, 2, 1)).node).code != one.code


def test_a_global_that_fails_while_it_is_read_is_passed_over_and_the_rest_counts(module):
    text = """
    class Broken:
        __slots__ = ("a",)
        def __soma_config__(self): raise OSError("not now")
    TABLE = {{"bad": {{Broken(): 1}}, "good": {}}}
    def node(x, state): return TABLE
    """
    one, again, other = (identify(module(text.format(good)).node).code for good in (1, 1, 2))
    assert one == again != other


def test_an_unhashable_global_is_told_once_by_name(tmp_path):
    (tmp_path / "user_code.py").write_text(
        "import threading\nfrom soma import Filter\nLOCK = threading.Lock()\n"
        "class Scale(Filter):\n"
        "    def forward(self, x, state):\n        with LOCK:\n            return x\n"
    )
    done = run_python(
        """
        import user_code
        from soma.identity import identify
        print(identify(user_code.Scale()).code == identify(user_code.Scale()).code)
        """,
        tmp_path,
    )
    assert done.stdout == "True\n"
    assert done.stderr == (
        "soma: global LOCK in user_code, which user_code.Scale uses, does not count in its "
        "identity: it is a _thread.lock, which has no hash\n"
    )


def test_modules_and_loggers_count_by_name_and_other_modules_are_not_followed(code_of):
    by_name = scale("return json.dumps(x)", before="import json\nimport logging\n")
    assert code_of(by_name) == code_of(by_name)
    logger = "import logging\nLOG = logging.getLogger('{}')\n"
    one = scale("LOG.info(x)", before=logger.format("a"))
    other = scale("LOG.info(x)", before=logger.format("b"))
    assert code_of(one) != code_of(other)


def test_code_of_other_modules_counts_when_it_is_declared(module, code_of):
    def with_helper(body, attributes):
        module(f"def helper(x): return {body}", name="helpers")
        return code_of(scale("return helper(x)", attributes, before="from helpers import helper\n"))

    assert with_helper("1", "pass") == with_helper("2", "pass")
    declared = "_cache_depends = (helper,)"
    assert with_helper("1", declared) != with_helper("2", declared)


def test_values_with_code_in_the_config_count_by_their_code(module):
    text = """
    def other(x): return {}
    def helper(x): return other(x)
    class Inner(Filter):
        def __init__(self, k): self.k = k
        def forward(self, x, state): return other(x)
    class Outer(Filter):
        def __init__(self, part): self.part = part
        def forward(self, x, state): return x
    node = Outer({})
    """
    configs = {}
    for part in (
        "helper",
        "functools.partial(helper, 1)",
        "functools.partial(helper, 2)",
        "lambda x: 1",
        "lambda x: 2",
        "Inner(1)",
        "Inner(2)",
        "Inner",
        "[Inner(1)]",
        "Inner(1).forward",
    ):
        for body in (1, 2):
            identity = identify(module(text.format(body, part)).node)
            assert identity == identify(module(text.format(body, part)).node)
            configs[part, body] = identity.config
    without_other = {"lambda x: 1", "lambda x: 2"}
    distinct = {key: value for key, value in configs.items() if key[0] not in without_other}
    assert len(set(distinct.values())) == len(distinct)
    assert configs["lambda x: 1", 1] == configs["lambda x: 1", 2] != configs["lambda x: 2", 1]


def test_a_rebound_helper_of_a_function_in_the_config_counts_at_once(module):
    user = module(
        """
        def other(x): return 1
        def helper(x): return other(x)
        class Outer(Filter):
            def __init__(self): self.part = helper
            def forward(self, x, state): return x
        node = Outer()
        """
    )
    reader = NodeIdentity("node", user.node)
    before = reader.read()
    assert reader.read().config == before.config
    run_in(user, "def other(x): return 2")
    assert reader.read().config != before.config


class TestTheLadder:
    def test_a_function_from_c_counts_by_name_and_version_with_a_warning(self):
        done = run_python(
            """
            import warnings, cbor2
            from soma.identity import identify
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                one, other = identify(cbor2.dumps), identify(cbor2.loads)
                assert one.code != other.code
            print(len(caught), issubclass(caught[0].category, UserWarning))
            print(caught[0].message)
            """
        )
        count, message = done.stdout.splitlines()
        assert count == "2 True"
        assert "dumps has no Python code; its identity is its name and the version" in message

    def test_a_dynamic_class_without_code_has_no_identity(self):
        done = run_python(
            """
            from soma import Nameless
            from soma.identity import identify
            try:
                identify(type("Ghost", (), {})(), "ghost")
            except Nameless as error:
                print(error)
            """
        )
        assert done.stdout.startswith(
            "Node 'ghost': __main__.Ghost has no Python code and belongs to no installed"
        ), done.stderr

    @pytest.mark.parametrize("version", ["1.5", "None and 1 or [1]", "('1',)"])
    def test_a_version_is_a_text_or_a_number(self, version, module):
        user = module(scale(attributes=f"_cache_version = {version}"))
        with pytest.raises(TypeError, match="_cache_version of user_code"):
            identify(user.node)

    def test_a_function_has_a_version_as_well(self, module):
        user = module("def node(x, state): return x\n")
        reader = NodeIdentity("node", user.node)
        seen = [reader.read().code]
        for version in ("1", "2"):
            user.node._cache_version = version
            seen.append(reader.read().code)
        run_in(user, "node.__code__ = (lambda x, state: -x).__code__")
        assert reader.read().code == seen[2]
        assert len(set(seen)) == 3

    def test_a_version_is_the_class_s_own(self, module):
        text = """
        class Base(Filter):
            _cache_version = "1"
        class Derived(Base):
            def forward(self, x, state): return {}
        node = Derived()
        """
        assert identify(module(text.format(1)).node) != identify(module(text.format(2)).node)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ("lock = threading.Lock()", "class attribute lock cannot be hashed: it is a _thread.lock"),
        ("def f(self, a=threading.Lock()): pass", "method f.__defaults__[0] cannot be hashed"),
        ("_cache_depends = ('json',)", "_cache_depends of Scale holds 'json'; it takes functions"),
        ("_cache_depends = 3", "_cache_depends must be a tuple of functions"),
        ("_cache_env = 'numpy'", "_cache_env must be a tuple of distribution names"),
    ],
)
def test_what_cannot_be_hashed_is_named(attributes, sentence, module):
    user = module(scale(before="import threading\n", attributes=attributes))
    with pytest.raises(TypeError) as caught:
        identify(user.node, "scaler")
    assert sentence in str(caught.value)


def test_a_lock_in_a_closure_is_named(module):
    user = module(
        """
        import threading
        def factory():
            lock = threading.Lock()
            def f(x, state):
                with lock:
                    return x
            return f
        node = factory()
        """
    )
    with pytest.raises(TypeError, match=r"Node 'n': .* \(variable lock\) cannot be hashed"):
        identify(user.node, "n")
