from __future__ import annotations

import pytest

import soma.testing
from soma_example.reading import Reading

test_plugin = soma.testing.plugin_checks("soma-example")


class TestReadingCodec(soma.testing.CodecSuite):
    @pytest.fixture
    def kind(self):
        return "soma_example.Reading"

    @pytest.fixture
    def examples(self):
        return [Reading(50.0, (1.0, -0.0)), Reading(50.0, ()), Reading(0.1, (1.5,) * 500)]
