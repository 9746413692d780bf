"""The version, as a literal: asking importlib.metadata for it would cost every import 45 ms."""

from __future__ import annotations

__version__ = "0.1.0"
