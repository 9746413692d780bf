"""The ``soma cache`` command: a group, and one file for each thing to do."""

from __future__ import annotations
