"""The code of a node, and what it names: each case is two texts of one module."""

from __future__ import annotations

from support.keys.lab import Keys, Lab, keys, row

Pair = tuple[Keys, Keys]

PIPELINE = """
{before}
class Base(Filter):
    def shared(self, x):
        return x{base}
class Node(Base):
    {attributes}
    def __init__(self, k=1):
        self.k = k
    def fit(self, x, y=None):
        {fit}
        return 0
    def forward(self, x, state{default}):
        {forward}
        return x
    def _helper(self, x):
        return x{helper}
node = Node({arguments})
"""
PLAIN = {
    **dict.fromkeys(("before", "base", "default", "helper", "arguments"), ""),
    **dict.fromkeys(("attributes", "fit", "forward"), "pass"),
}


def text(**parts: str) -> str:
    return PIPELINE.format(**(PLAIN | parts))


def edited(lab: Lab, was: dict[str, str] | None = None, /, **now: str) -> Pair:
    """Return the keys with some parts of the text, and with others."""
    return lab.texts(text(**(was or {})), text(**now))


@row("the code of `forward`")
def _(lab: Lab) -> Pair:
    return edited(lab, forward="x = x * 1")


@row("the code of `fit`")
def _(lab: Lab) -> Pair:
    return edited(lab, fit="x = x * 1")


@row("the code of a private method, called or not")
def _(lab: Lab) -> Pair:
    return edited(lab, helper=" * 1")


@row("the code of a class that it derives from")
def _(lab: Lab) -> Pair:
    return edited(lab, base=" * 1")


@row("a default argument")
def _(lab: Lab) -> Pair:
    return edited(lab, {"default": ", factor=1"}, default=", factor=2")


@row("a class attribute")
def _(lab: Lab) -> Pair:
    return edited(lab, {"attributes": "rate = 1"}, attributes="rate = 2")


@row("a private class attribute that is a list, an array or a lock")
def _(lab: Lab) -> Pair:
    return edited(lab, {"attributes": "_memo = [1]"}, attributes="_memo = [2]")


@row("the order of its methods")
def _(lab: Lab) -> Pair:
    first = text(attributes="def a(self): return 1\n    def b(self): return 2")
    return lab.texts(first, text(attributes="def b(self): return 2\n    def a(self): return 1"))


@row("its code, the same, run again: a notebook cell")
def _(lab: Lab) -> Pair:
    return edited(lab)


@row("a number or list of its module that the code names")
def _(lab: Lab) -> Pair:
    lists = [text(before=f"RATES = [{one}]", forward="x = x * RATES[0]") for one in (1, 2)]
    assert len(set(lab.texts(*lists))) == len(lists)
    uses = {"forward": "x = x * RATE"}
    return edited(lab, {"before": "RATE = 1", **uses}, before="RATE = 2", **uses)


@row("one of its module that the code does not name")
def _(lab: Lab) -> Pair:
    return edited(lab, {"before": "RATE = 1"}, before="RATE = 2")


@row("the code of a function or class of its module that the code names")
def _(lab: Lab) -> Pair:
    classes = [
        text(before=f"class Tool:\n    def run(self, x): return {one}", forward="x = Tool().run(x)")
        for one in (1, 2)
    ]
    assert len(set(lab.texts(*classes))) == len(classes)
    uses = {"forward": "x = helper(x)"}
    functions = [f"def helper(x): return {one}" for one in (1, 2)]
    return edited(lab, {"before": functions[0], **uses}, before=functions[1], **uses)


@row("of a function or class that those name in turn")
def _(lab: Lab) -> Pair:
    uses = "def helper(x): return inner(x)\ndef inner(x): return {}"
    before = {"before": uses.format(1), "forward": "x = helper(x)"}
    return edited(lab, before, before=uses.format(2), forward="x = helper(x)")


def other_module(lab: Lab, imports: str, uses: str, attributes: str = "pass") -> Pair:
    """Return the keys before another module is edited, and after."""
    found = []
    for one in (1, 2):
        lab.module(f"RATE = {one}\ndef helper(x): return {one}", name="elsewhere")
        found.append(text(before=imports, forward=uses, attributes=attributes))
        found[-1] = keys(lab.module(found[-1]).node)
    return found[0], found[1]


@row("the code of a function of another module: `from elsewhere import helper`")
def _(lab: Lab) -> Pair:
    return other_module(lab, "from elsewhere import helper", "x = helper(x)")


@row("the same, with `_cache_depends = (helper,)`")
def _(lab: Lab) -> Pair:
    depends = "_cache_depends = (helper,)"
    return other_module(lab, "from elsewhere import helper", "x = helper(x)", depends)


@row("anything in another module, with `_cache_depends = (elsewhere,)`")
def _(lab: Lab) -> Pair:
    depends = "_cache_depends = (elsewhere,)"
    return other_module(lab, "import elsewhere", "pass", depends)


@row("a value of another module: `from elsewhere import RATE`")
def _(lab: Lab) -> Pair:
    return other_module(lab, "from elsewhere import RATE", "x = x * RATE")


@row("a value of another module: `elsewhere.RATE`")
def _(lab: Lab) -> Pair:
    return other_module(lab, "import elsewhere", "x = x * elsewhere.RATE")


@row("the name of the class")
def _(lab: Lab) -> Pair:
    return lab.texts(text(), text().replace("Node", "Other"))


@row("the module of the class: `__main__` in a script, its name where it is imported")
def _(lab: Lab) -> Pair:
    return keys(lab.module(text()).node), keys(lab.module(text(), name="__main__").node)


@row("`_cache_version`")
def _(lab: Lab) -> Pair:
    return edited(lab, {"attributes": "_cache_version = 1"}, attributes="_cache_version = 2")


@row("all of the code, in a class that states `_cache_version`")
def _(lab: Lab) -> Pair:
    same = {"attributes": "_cache_version = 1"}
    return edited(lab, same, **same, forward="x = x * 1", base=" * 1", helper=" * 1")


@row("the public attributes of such a class")
def _(lab: Lab) -> Pair:
    same = {"attributes": "_cache_version = 1", "arguments": "1"}
    return edited(lab, same, **(same | {"arguments": "2"}))


@row("the code of a class that derives from such a class")
def _(lab: Lab) -> Pair:
    base = text(attributes="_cache_version = 1")
    derived = base + "class D(Node):\n    def extra(self): return {}\nnode = D()"
    return lab.texts(derived.format(1), derived.format(2))


@row("`_cacheable`, `_deterministic`, `_uses_seed` without a seed, the schemas, `_secret`")
def _(lab: Lab) -> Pair:
    marks = "_deterministic = True; _uses_seed = False; _cacheable = True; _secret = ('k',)"
    return edited(lab, attributes=marks)
