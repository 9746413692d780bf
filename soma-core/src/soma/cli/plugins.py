"""``soma plugins list|show|check``: what is installed, what each gives, why one failed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import click
from packaging.utils import canonicalize_name

from soma._exports import exports_of
from soma.errors import describe_error, did_you_mean, format_traceback
from soma.plugins import PluginReport, builtin_report, reports
from soma.plugins.report import conflicts, name_claimants
from soma.registry import load_target
from soma.specs import SPECS

__all__ = ["plugins"]


@click.group()
def plugins() -> None:
    """List, show and check the plugins that are installed."""


@plugins.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per plugin.")
@click.option(
    "--hook", type=click.Choice(sorted(SPECS)), help="Only plugins that implement this hook."
)
@click.option("--all", "with_core", is_flag=True, help="Show what core itself offers as well.")
def list_(*, as_json: bool, hook: str | None, with_core: bool) -> None:
    """List the plugins that are installed, with what each provides."""
    found = _reports()
    rows = [
        _row(report, found)
        for report in (*((builtin_report(),) if with_core else ()), *found)
        if hook is None or hook in report.hooks
    ]
    if as_json:
        _print_json(rows)
    elif rows:
        _print_table(rows)
    else:
        click.echo("No plugin implements that hook." if hook else "No plugins are installed.")


@plugins.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(*, name: str, as_json: bool) -> None:
    """Show all that is known of the plugin NAME, its traceback included."""
    found = _reports()
    rows = [_row(report, found) for report in _named(name, found)]
    with redirect_stdout(sys.stderr):  # a plugin may print while it is imported
        for row in rows:
            row["broken"] = _broken_parts(row)
    if as_json:
        _print_json(rows)
        return
    for number, row in enumerate(rows):
        click.echo("\n" * (number > 0) + "\n".join(_lines(row)))


@plugins.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per check.")
def check(*, name: str | None, as_json: bool) -> None:
    """Load everything that the plugins offer and check it; all of them, or only NAME.

    Exits with 1 if a check fails, with 2 if there is no plugin NAME.
    """
    from soma.plugins.checks import iter_checks

    found = _reports()
    chosen = found if name is None else _named(name, found)
    results = []
    for dist in sorted({report.dist for report in chosen if name or report.status != "off"}):
        for one in iter_checks((builtin_report(), *found), dist):
            failure = ""
            try:
                with redirect_stdout(sys.stderr):  # a plugin may print while it is imported
                    one.run()
            except AssertionError as error:
                failure = str(error)
            results.append({"plugin": dist, "check": one.name, "failure": failure})
            if not as_json:
                click.echo(f"{dist}: {one.name}: {'ok' if not failure else f'FAILED: {failure}'}")
    failed = sum(bool(result["failure"]) for result in results)
    if as_json:
        _print_json(results)
    else:
        click.echo(f"{len(results)} check{'s' * (len(results) != 1)}, {failed} failed")
    click.get_current_context().exit(1 if failed else 0)


def _broken_parts(row: dict[str, Any]) -> list[dict[str, str]]:
    """Load what the plugin offers, and return what does not load, with its traceback."""
    import soma

    loaders = {
        f"{one['kind']} {one['name']}": partial(load_target, one["target"])
        for one in row["provides"]
    }
    loaders |= {f"soma.{name}": partial(getattr, soma, name) for name in row["exports"]}
    found = []
    for what, load in loaders.items():
        try:
            load()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # shown, whatever it is
            found.append(
                {
                    "what": what,
                    "error": describe_error(error),
                    "traceback": format_traceback(error),
                }
            )
    return found


def _reports() -> tuple[PluginReport, ...]:
    with redirect_stdout(sys.stderr):  # a plugin that prints may not spoil --json
        return reports()


def _print_json(rows: list[Any]) -> None:
    import json  # which a table does without

    click.echo(json.dumps(rows, indent=2))


def _named(name: str, found: tuple[PluginReport, ...]) -> tuple[PluginReport, ...]:
    everybody = (builtin_report(), *found)
    wanted = canonicalize_name(name)
    chosen = tuple(one for one in everybody if wanted == one.dist)
    chosen = chosen or tuple(one for one in everybody if name == one.entry_point)
    if not chosen:
        known = [report.dist for report in everybody]
        click.echo(f"There is no plugin {name!r}.{did_you_mean(wanted, known)}", err=True)
        click.get_current_context().exit(2)
    return chosen


def _row(report: PluginReport, found: tuple[PluginReport, ...]) -> dict[str, Any]:
    clashes = [
        f"{label} {name} is claimed by {name_claimants(who)}, so neither is used"
        for (label, name), who in conflicts(found).items()
        if report in who
    ]
    clash_fix = "offer it in one of them only, or remove the other" if clashes else ""
    return {
        "name": report.dist,
        "version": report.version,
        "status": "conflict" if clashes else report.status,
        "provides": [
            {
                "kind": offer.spec.label,
                "name": offer.spec.name,
                "target": offer.spec.target,
                "summary": offer.spec.summary,
            }
            for offer in report.offers
        ],
        "exports": exports_of(report.dist),
        "hooks": list(report.hooks),
        "entry_point": report.entry_point,
        "module": report.module,
        "file": report.file,
        "phase": report.phase,
        "error": "; ".join(clashes) or report.error,
        "fix": clash_fix or report.fix,
        "traceback": report.traceback,
    }


def _what(row: dict[str, Any]) -> str:
    """Return the last column: what it provides, or what is wrong and how to mend it."""
    if row["error"]:
        return f"{row['error']} -> {row['fix']}"
    if row["status"] == "off":
        return f"switched off -> {row['fix']}"
    provides = [f"{one['kind']} {one['name']}" for one in row["provides"]]
    return "; ".join([*provides, *(f"export {name}" for name in row["exports"])]) or "nothing"


def _print_table(rows: Iterable[dict[str, Any]]) -> None:
    table = [("NAME", "VERSION", "STATUS", "PROVIDES")]
    table += [(row["name"], row["version"], row["status"], _what(row)) for row in rows]
    widths = [max(len(line[column]) for line in table) for column in range(3)]
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        click.echo("  ".join((*cells, line[3])))


def _lines(row: dict[str, Any]) -> Iterable[str]:
    yield f"{row['name']} {row['version']}: {row['status']}"
    if row["entry_point"]:
        yield f"  entry point  {row['entry_point']} = {row['module']}"
        yield f"  file         {row['file'] or 'not found'}"
        unread = "none" if row["status"] == "ok" else "not read"
        yield f"  hooks        {', '.join(row['hooks']) or unread}"
    for one in row["provides"]:
        summary = f"  {one['summary']}" if one["summary"] else ""
        yield f"  provides     {one['kind']} {one['name']} ({one['target']}){summary}"
    for name in row["exports"]:
        yield f"  exports      soma.{name}"
    if row["error"]:
        yield f"  error        {row['error']}"
    if row["phase"]:
        yield f"  phase        {row['phase']}"
    if row["fix"]:
        yield f"  fix          {row['fix']}"
    if row["traceback"]:
        yield from _indented("traceback", row["traceback"])
    for one in row["broken"]:
        yield f"  broken       {one['what']}: {one['error']}"
        yield from _indented("traceback", one["traceback"])


def _indented(title: str, text: str) -> Iterable[str]:
    yield f"  {title}"
    yield from (f"    {line}" for line in text.rstrip().splitlines())
