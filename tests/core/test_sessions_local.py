"""Sessions in child processes pass the suite that every runner has to pass."""

from __future__ import annotations

import pytest

from soma.sessions import LocalRunner
from soma.testing import SessionSuite


@pytest.fixture(scope="module")
def two_children():
    with LocalRunner(count=2) as runner:
        yield runner


class TestLocalRunner(SessionSuite):
    @pytest.fixture
    def runner(self, two_children):
        return two_children
