"""``somatize`` is ``soma``: the same module under the name of the original.

Importing it puts ``soma`` in its place; submodules go through the finder that ``soma`` installs.
"""

from __future__ import annotations

import sys

import soma

sys.modules[__name__] = soma
