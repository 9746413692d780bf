from __future__ import annotations

import soma.testing

test_plugin = soma.testing.plugin_checks("soma-example")
