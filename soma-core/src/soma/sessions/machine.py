"""What this machine and this process have to offer, asked of the system and never measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from soma.contracts import WorkerInfo
from soma.plugins import reports

__all__ = ["this_machine"]

_NVIDIA = Path("/proc/driver/nvidia/gpus")


def this_machine(
    name: str,
    *,
    capabilities: frozenset[str],
    tags: Iterable[str] = (),
    memory_bytes: int | None = None,
) -> WorkerInfo:
    """Return what a runner says of a place on this machine.

    Args:
        name: what the place is called.
        capabilities: what its sessions can do.
        tags: further names of it.
        memory_bytes: what it may take; None for all that the machine has.
    """
    return WorkerInfo(
        name=name,
        tags=tuple(tags),
        cpus=_cpus(),
        memory_bytes=_memory_bytes() if memory_bytes is None else memory_bytes,
        gpus=_gpus(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        plugins={one.dist: one.version for one in reports() if one.status == "ok"},
        capabilities=capabilities,
    )


def _cpus() -> int:
    """Return on how many CPUs this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    """Return the physical memory of the machine; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def _gpus() -> int:
    """Return how many devices CUDA would show here; what else there may be is not counted."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        try:
            return len(list(_NVIDIA.iterdir()))
        except OSError:
            return 0
    count = 0
    for one in visible.split(","):
        device = one.strip()
        if not device or device.startswith("-"):
            break  # as CUDA does: what stands behind it is not seen either
        count += 1
    return count
