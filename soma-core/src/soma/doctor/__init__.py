"""What ``soma doctor`` looks at: whether this installation works, and what to do where not.

    examine() ──► (section, Finding), one after another, as they are found

    installation   versions, Python, system, what core requires
    plugins        each one: loaded, or why not
    cache          which one a graph has, and what that says of itself (``ActionStoreSpec.checkup``)
    environment    variables, limits, threads
    children       a session child is started, and answers

The surprise: whatever is broken ends in a finding, never in a traceback. A check that raises has
found something, and so has one that does not answer; what it had found before is told as well.
Nothing of what is looked at is changed, and no folder is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from soma.contracts import Finding
from soma.doctor.cache import look_at_cache
from soma.doctor.children import look_at_children
from soma.doctor.environment import look_at_environment
from soma.doctor.guarded import Check, guarded
from soma.doctor.installation import look_at_installation
from soma.doctor.plugins import look_at_plugins
from soma.doctor.torch_threads import TorchThreads

__all__ = ["examine"]


def examine() -> Iterator[tuple[str, Finding]]:
    """Look at everything.

    Returns:
        (section, finding), in the order of the sections.
    """
    torch = TorchThreads()  # which takes a while, and is asked meanwhile
    sections: tuple[tuple[str, Check], ...] = (
        ("installation", look_at_installation),
        ("plugins", look_at_plugins),
        ("cache", look_at_cache),
        ("environment", look_at_environment),
        ("environment", torch.look),
        ("children", look_at_children),
    )
    try:
        for section, check in sections:
            for finding in guarded(section, check):
                yield section, finding
    finally:
        torch.close()
