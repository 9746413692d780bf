"""``soma codecs``: which types can be written down, under which kind, and who says so."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import click

from soma.codecs import registered
from soma.errors import describe_error
from soma.frame import NATIVE_TYPES
from soma.registry import default
from soma.specs import CodecSpec

__all__ = ["codecs"]


@click.command()
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import this module first, so that the codecs it registers are shown. Repeatable.",
)
@click.option("--all", "with_native", is_flag=True, help="Show what frames write natively as well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per codec.")
def codecs(*, modules: tuple[str, ...], with_native: bool, as_json: bool) -> None:
    """List the codecs: kind, type, and who registered it."""
    sys.path.insert(0, "")
    for module in modules:
        try:
            import_module(module)
        except Exception as error:
            why = describe_error(error)
            if module.endswith(".py"):
                why = f"give the name of a module: --import {module.removesuffix('.py')}"
            raise click.ClickException(f"{module} does not import: {why}") from error
    rows = _rows(with_native=with_native)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif not rows:
        click.echo("No codecs are registered here. --all shows what needs none.")
    else:
        table = [("KIND", "TYPE", "REGISTERED BY")]
        table += [(row["kind"], row["type"], row["registered_by"]) for row in rows]
        widths = [max(len(line[column]) for line in table) for column in range(2)]
        for line in table:
            click.echo(f"{line[0]:{widths[0]}}  {line[1]:{widths[1]}}  {line[2]}")


def _rows(*, with_native: bool) -> list[dict[str, str]]:
    native = [
        {"kind": "-", "type": name, "registered_by": "soma-core, natively"}
        for name in (NATIVE_TYPES if with_native else ())
    ]
    here = [
        {"kind": one.kind, "type": one.type_name, "registered_by": one.registered_by}
        for one in registered()
    ]
    known = {row["kind"] for row in here}
    offered = [
        {
            "kind": offer.spec.name,
            "type": ", ".join(offer.spec.aliases),
            "registered_by": f"{offer.dist} {offer.version}",
        }
        for offer in default().offers(CodecSpec)
        if offer.spec.name not in known
    ]
    return [*native, *here, *offered]
