"""``module:attribute`` on a command line: an object of the user's own, from the present folder."""

from __future__ import annotations

import inspect
import sys
import traceback
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from soma.errors import describe_error, did_you_mean

__all__ = ["load_object"]


def load_object(target: str) -> Any:
    """Return what a module holds under a name; of a function, what it returns.

    The present folder is looked in first. What the user's code prints goes to stderr.

    Args:
        target: ``"module:attribute"``; both may have dots.

    Raises:
        click.ClickException: there is no such thing, or the user's code raised; it says where.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise click.UsageError(
            f"{target!r} is not module:attribute, such as pipeline:g for the graph g in pipeline.py"
        )
    if module_name.endswith(".py") or "/" in module_name:
        raise click.UsageError(
            f"{module_name!r} is a file. Give the name of the module, from the folder it lies in: "
            f"{module_name.rsplit('/', 1)[-1].removesuffix('.py')}:{attribute}"
        )
    sys.path.insert(0, "")
    with redirect_stdout(sys.stderr):
        return _called(target, _attribute(_module(module_name), module_name, attribute))


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and not _is_there(name):
            raise click.ClickException(
                f"There is no module {name!r}, neither in this folder nor installed"
            ) from error
        raise click.ClickException(f"{name} does not import: {_told(error)}") from error


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except Exception:  # noqa: BLE001  # a package around it does not import, or is no package
        return False


def _attribute(module: Any, module_name: str, attribute: str) -> Any:
    found = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            names = [one for one in dir(found) if not one.startswith("_")]
            near = did_you_mean(name, names) if names else ""
            raise click.ClickException(
                f"The module {module_name!r} has no {attribute!r}.{near}"
            ) from None
    return found


def _called(target: str, found: Any) -> Any:
    if not inspect.isroutine(found):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError:
        raise click.ClickException(
            f"{target} takes {inspect.signature(found)}, and is called without arguments. Give a "
            "function that needs none, or the object itself"
        ) from None
    except ValueError:  # written in C
        pass
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise click.ClickException(f"{target}() failed: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """Return the error and the line of the user's code that it came from."""
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith("<") and one.filename != __file__
    ]
    own = [one for one in frames if "importlib" not in one.filename]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{describe_error(error)}{where}"
