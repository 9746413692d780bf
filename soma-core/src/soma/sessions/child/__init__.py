"""What runs in the process behind a session."""

from __future__ import annotations
