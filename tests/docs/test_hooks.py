"""Every hook is documented in five parts, its example runs, and the page names them all."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from textwrap import dedent

import pytest

import soma
from soma import contracts, hookspecs
from soma.specs import SPECS, Spec

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "plugins.md").read_text()


def test_the_specs_and_the_hookspecs_are_the_same_ten():
    hooks = {name for name in vars(hookspecs) if name.startswith("soma_")}
    assert hooks == set(SPECS)


@pytest.mark.parametrize("hook", SPECS)
def test_a_hook_takes_nothing_and_returns_its_specs(hook):
    signature = inspect.signature(getattr(hookspecs, hook))
    assert not signature.parameters
    assert signature.return_annotation == f"Iterable[{SPECS[hook].__name__}]"


@pytest.mark.parametrize("hook", SPECS)
def test_the_docstring_has_the_five_parts_in_order(hook):
    text = inspect.getdoc(getattr(hookspecs, hook))
    assert re.match(r"[A-Z][^\n]+\.\n\n", text)
    parts = re.findall(r"^(Name|Target|If it raises|Example):", text, flags=re.MULTILINE)
    assert parts == ["Name", "Target", "If it raises", "Example"]
    assert "soma plugins check" in text


@pytest.mark.parametrize("hook", SPECS)
def test_the_example_runs_and_gives_its_spec(hook):
    text = inspect.getdoc(getattr(hookspecs, hook))
    namespace = {"soma": soma}
    exec(dedent(text.partition("Example:\n")[2]), namespace)  # noqa: S102  # its purpose
    specs = list(namespace[hook]())
    assert [type(spec) for spec in specs] == [SPECS[hook]]


@pytest.mark.parametrize("hook", SPECS)
def test_the_page_lists_the_hook_with_the_fields_of_its_spec_and_their_defaults(hook):
    (row,) = re.findall(rf"^\| `{hook}` \| `(\w+\(.*?\))` \|", TABLE, flags=re.MULTILINE)
    shared = {field.name for field in dataclasses.fields(Spec)}
    own = [field for field in dataclasses.fields(SPECS[hook]) if field.name not in shared]
    written = [
        field.name
        if field.default is dataclasses.MISSING
        else f"{field.name}={field.default!r}".replace("'", '"')
        for field in own
    ]
    assert row == f"{SPECS[hook].__name__}({', '.join(written)})"


@pytest.mark.parametrize("name", contracts.__all__)
def test_every_contract_is_documented_down_to_its_methods(name):
    contract = getattr(contracts, name)
    assert name == "Frame" or contract.__doc__
    for attribute, value in vars(contract).items():
        if inspect.isfunction(value) and not attribute.startswith("_"):
            assert value.__doc__, f"{name}.{attribute}"
