"""The tree at the top of errors.py is the tree, and suggestions are worded in one place."""

from __future__ import annotations

import builtins
import pickle
import re

import pytest

from soma import errors
from soma._hints import EXPORTS, MODULES, NAMES, install_line
from soma.errors import SomaError, UnknownNode, did_you_mean

CLASSES = [
    getattr(errors, name)
    for name in errors.__all__
    if name[0].isupper() and not name.endswith("Warning")
]


def drawn() -> dict[str, tuple[str, str]]:
    """Return class -> (parent, built-in) as the drawing at the top of the file has them."""
    found, above = {}, {-1: "Exception"}
    pattern = r"^( *)(?:[│ ]*)(?:[├└]── )?([A-Z]\w+)(?: \((\w+)\))?(?:\s{2,}|$)"
    for line in errors.__doc__.splitlines()[2:]:
        if not line.strip() or not line.startswith("    "):
            break
        match = re.match(pattern, line)
        depth = (line.index(match.group(2)) - 4) // 4
        above[depth] = match.group(2)
        found[match.group(2)] = (above[depth - 1], match.group(3))
    return found


def test_the_drawing_is_the_tree():
    tree = drawn()
    assert set(tree) == {cls.__name__ for cls in CLASSES}
    for cls in CLASSES:
        parent, builtin = tree[cls.__name__]
        assert cls.__mro__[1].__name__ == parent
        if builtin:
            assert getattr(builtins, builtin) in cls.__mro__


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_its_sentence_and_survives_a_pickle(cls):
    error = cls('it\'s not "there"')
    assert str(error) == 'it\'s not "there"'
    assert isinstance(error, SomaError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(again) is cls
    assert str(again) == str(error)


def test_a_key_error_is_not_printed_in_quotes():
    assert str(UnknownNode("no node 'x'")) == "no node 'x'"


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [
        ("scalar", ["scaler", "pca"], " Did you mean 'scaler'?"),
        ("SCALER", ["Scaler"], " Did you mean 'Scaler'?"),
        ("zzz", ["b", "a", "a"], " Known: 'a', 'b'."),
        ("zzz", [], ""),
        ("", ["a"], " Known: 'a'."),
        (
            "zzz",
            [f"n{number:02}" for number in range(22)],
            f" Known: {', '.join(repr(f'n{number:02}') for number in range(20))} and 2 more.",
        ),
    ],
)
def test_suggestions(name, known, sentence):
    assert did_you_mean(name, known) == sentence


@pytest.mark.parametrize(
    ("requirement", "line"),
    [
        ("soma-study", 'pip install "soma-core[study]"'),
        ("soma-torch", 'pip install "soma-core[torch]"'),
        ("s3fs", "pip install s3fs"),
        ("s3fs>=2", 'pip install "s3fs>=2"'),
        ("soma-core[testing]", 'pip install "soma-core[testing]"'),
        ("soma-example", "pip install soma-example"),
    ],
)
def test_install_lines(requirement, line):
    assert install_line(requirement) == line


def test_every_hinted_package_is_a_member_of_the_family():
    family = {*EXPORTS.values(), *MODULES.values()}
    assert set(NAMES.values()) <= family
    assert all(name.startswith("soma-") for name in family)


class Awkward(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (OSError("caf\udce9"), "OSError: caf\\udce9"),
        (Awkward(), "Awkward: (its message cannot be shown)"),
        (KeyError("k"), "KeyError: 'k'"),
    ],
)
def test_any_exception_can_be_described(error, text):
    assert errors.describe_error(error) == text
    errors.format_traceback(error).encode()
