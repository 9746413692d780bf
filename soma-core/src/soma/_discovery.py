"""Where the registry asks for plugins; the front door of the package fills it in.

The registry is a room near the ground and the plugin loader one near the roof. So that the lower
never imports the upper, ``soma/__init__.py`` (which every import passes through) puts the loader's
door here, as functions that import it when they are called.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing alone would cost `import soma` 8 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

builtins: Callable[[], Any]
"""Return the ``soma.registry.Catalog`` of what core itself offers; scans nothing."""

installed: Callable[[], Any]
"""Return the ``soma.registry.Catalog`` of the installed plugins; scans once per process."""
