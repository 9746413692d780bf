"""The plugin author's kit: the checks and suites that Soma's own parts pass. Needs pytest.

import soma.testing
test_plugin = soma.testing.plugin_checks("my-plugin")
"""

from __future__ import annotations

from importlib.util import find_spec

from soma._hints import install_line
from soma.errors import MissingPackage

if find_spec("pytest") is None:
    raise MissingPackage(
        "soma.testing needs pytest, which is not installed. "
        f"Install it with: {install_line('soma-core[testing]')}",
        name="pytest",
    )

import pytest

# Before they are imported: without it an author would see a bare AssertionError.
pytest.register_assert_rewrite(
    "soma.testing._suite",
    "soma.testing._codec_suite",
    "soma.testing._session_base",
    "soma.testing._session_calls",
    "soma.testing._session_faults",
    "soma.testing._session_runs",
    "soma.testing._session_suite",
    "soma.testing._store_base",
    "soma.testing._store_claims",
    "soma.testing._store_frames",
    "soma.testing._store_keeping",
    "soma.testing._store_records",
    "soma.testing._store_suite",
    "soma.testing._threads",
    "soma.testing._tier_suite",
)

from soma.testing._codec_suite import CodecSuite
from soma.testing._plugins import plugin_checks
from soma.testing._session_suite import SessionSuite
from soma.testing._store_suite import ActionStoreSuite
from soma.testing._suite import ConformanceSuite
from soma.testing._tier_suite import CacheTierSuite

__all__ = [
    "ActionStoreSuite",
    "CacheTierSuite",
    "CodecSuite",
    "ConformanceSuite",
    "SessionSuite",
    "plugin_checks",
]
