"""A run as one HTML page that needs nothing else, for a colleague, a mail, a talk.

    RunView ──► run_page ──► "<!doctype html>..."

No script, no font, no picture from elsewhere: the page says so to the browser itself, so that
whatever stands in a run can neither run nor phone home. The page of a run that has ended is the
same each time it is written.
"""

from __future__ import annotations

from soma.tracking.report.page import run_page, write_page

__all__ = ["run_page", "write_page"]
