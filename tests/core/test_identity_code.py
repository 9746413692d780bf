"""When two pieces of code are the same: other code never, the same in two processes always.

Each case is a module text; what is compared is the identity of its ``node``. The texts are executed
as modules of their own, and some as scripts in processes of their own.
"""

from __future__ import annotations

import sys
import types
from textwrap import dedent
from typing import ClassVar

import pytest

from soma.identity import NodeIdentity, differences, identify
from support.distributions import run_python

HEADER = "import functools\nfrom dataclasses import dataclass, field\nfrom soma import Filter\n"


@pytest.fixture
def module():
    """Return a function that executes a text as a module and returns it."""
    made = []

    def execute(text, name="user_code", file="<user>"):
        result = types.ModuleType(name)
        sys.modules[name] = result
        made.append(name)
        code = compile(HEADER + dedent(text), file, "exec", dont_inherit=True)
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
        for text in {texts!r}:
            module = sys.modules["user_code"] = types.ModuleType("user_code")
            exec({HEADER!r} + dedent(text), vars(module))
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
    class Tool:
        rate = 1
    class Scale(Filter):
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
        "soma: global LOCK of user_code, which user_code.Scale uses, does not count in its "
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
