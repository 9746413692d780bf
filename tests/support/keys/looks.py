"""How the code is written, where it does the same: each case is two texts of one module."""

from __future__ import annotations

from support.keys.lab import Keys, Lab, row
from support.keys.sources import edited, text

Pair = tuple[Keys, Keys]

NESTED = "class Part:\n            {}\n            k = 1"
MANY = "; ".join(f"a = {1000 + one}" for one in range(255))


@row("comments and blank lines")
def _(lab: Lab) -> Pair:
    return lab.texts(
        text(), "\n\n# hello\n" + text(forward="# hello\n\n        pass") + "\n# bye\n"
    )


@row("annotations")
def _(lab: Lab) -> Pair:
    return edited(lab, {"default": ", factor=1"}, default=": int, factor: float = 1")


@row("the text of a docstring")
def _(lab: Lab) -> Pair:
    return edited(lab, {"forward": '"""One."""'}, forward='"""Two, and longer."""')


@row("a first docstring, of a class")
def _(lab: Lab) -> Pair:
    return edited(lab, attributes='"""New."""')


@row("a first docstring, of a method or function: constants move")
def _(lab: Lab) -> Pair:
    before = "def helper(x):\n    {}return None, x"
    uses = {"forward": "k = None, helper(x)"}
    documented = {"forward": '"""New."""\n        k = None, helper(x)'}
    one = text(**uses, before=before.format(""))
    return lab.texts(one, text(**documented, before=before.format('"""New."""; ')))


@row("the same in a function with more than 255 constants: its instructions get longer")
def _(lab: Lab) -> Pair:
    many = f"{MANY}\n        k = None"
    return edited(lab, {"forward": many}, forward=f'"""New."""\n        {many}')


@row("a docstring of a class inside a method")
def _(lab: Lab) -> Pair:
    return edited(lab, {"forward": NESTED.format('"One."')}, forward=NESTED.format('"Two."'))


@row("the name of a local variable")
def _(lab: Lab) -> Pair:
    return edited(lab, {"forward": "one = x"}, forward="two = x")


@row("where lines are broken; quotes, brackets, `1_000` for `1000`")
def _(lab: Lab) -> Pair:
    before = "if x is None: return dict(a=1000, b='c')"
    after = 'if (\n            x is None\n        ):\n            return dict(a=1_000,\n b="c")'
    return edited(lab, {"forward": before}, forward=after)


@row("a line of its own for what does nothing by itself: `pass`, `while True:`, `try:`")
def _(lab: Lab) -> Pair:
    pairs = [
        ("with x: pass", "with x:\n            pass"),
        ("while True: x()", "while True:\n            x()"),
        ("try: x()\n        finally: x(1)", "try:\n            x()\n        finally: x(1)"),
    ]
    method = "def part(self, x):\n        {}"
    cases = [
        edited(lab, {"attributes": method.format(was)}, attributes=method.format(now))
        for was, now in pairs
    ]
    assert all(before.fit != after.fit for before, after in cases)
    return cases[0]


@row("code that does the same in another way: `x + x` for `2 * x`")
def _(lab: Lab) -> Pair:
    return edited(lab, {"forward": "x = 2 * x"}, forward="x = x + x")


@row("what Python works out beforehand: `60 * 60` for `3600`")
def _(lab: Lab) -> Pair:
    return edited(lab, {"forward": "x = x + 3600"}, forward="x = x + 60 * 60")
