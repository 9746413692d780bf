"""``import soma.torch`` and ``import somatize.graph``: second names for modules that exist.

    soma.<export>[.more]  ──►  the plugin's own module, soma_<export>[.more]
    somatize.<anything>   ──►  soma.<anything>

The very same module object is given under both names, whichever was imported first. The finder
stands first in ``sys.meta_path``: after the path finder it would be too late, since ``soma_torch``
has a ``__path__`` and its submodules would be found, and run, a second time. The surprise is in the
loader: the import system writes its own ``__spec__`` on whatever a loader creates, so the module's
own is put back before anybody sees it.
"""

from __future__ import annotations

import sys

from soma._hints import MODULES

TYPE_CHECKING = False  # typing alone would cost `import soma` 8 ms
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["install"]


class _AliasLoader:
    """Gives a module that exists under one more name."""

    def __init__(self, real: str) -> None:
        self.real = real
        """The name under which the module is its own."""
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002  # loader protocol
        from importlib import import_module

        module = import_module(self.real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002  # loader protocol
        """Return the code of the module, for ``python -m somatize``."""
        from importlib.util import find_spec

        spec: Any = find_spec(self.real)
        return spec.loader.get_code(self.real)


class _AliasFinder:
    """Answers ``soma.<export>`` and ``somatize.*``, and nothing else."""

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG003  # finder protocol
        target: ModuleType | None = None,  # noqa: ARG003  # finder protocol
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package == "somatize" and rest:
            return _alias(fullname, f"soma.{rest}")
        export, _, below = rest.partition(".")
        if package == "soma" and export in MODULES:
            from soma._exports import module_behind

            real = module_behind(export)
            return _alias(fullname, f"{real}.{below}" if below else real)
        return None


def _alias(fullname: str, real: str) -> ModuleSpec:
    from importlib.machinery import ModuleSpec

    return ModuleSpec(fullname, _AliasLoader(real))  # type: ignore[arg-type]  # a loader by duck


def install() -> None:
    """Put the finder first, once."""
    if _AliasFinder not in sys.meta_path:
        sys.meta_path.insert(0, _AliasFinder)
