"""The checks of ``soma plugins check`` as a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from packaging.utils import canonicalize_name

from soma.errors import UnknownName, did_you_mean
from soma.plugins import reports
from soma.plugins.checks import Check, iter_checks

__all__ = ["plugin_checks"]


def plugin_checks(dist: str) -> Callable[[Check], None]:
    """Return a test function with one case per check of the plugin.

    Args:
        dist: the distribution, installed in the environment that runs the tests.

    Raises:
        UnknownName: no plugin of that name is installed.
    """
    found = reports()
    checks = list(iter_checks(found, canonicalize_name(dist)))
    if not checks:
        known = [report.dist for report in found]
        raise UnknownName(
            f"There is no plugin {dist!r} in this environment.{did_you_mean(dist, known)} "
            "Install it first: pip install -e ."
        )

    @pytest.mark.parametrize("check", [pytest.param(one, id=one.name) for one in checks])
    def test_plugin(check: Check) -> None:
        check.run()

    return test_plugin
