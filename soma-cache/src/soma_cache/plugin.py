"""What this package offers to Soma."""

from __future__ import annotations

from collections.abc import Iterator

import soma


@soma.hookimpl
def soma_action_stores() -> Iterator[soma.ActionStoreSpec]:
    """Offer the store that every graph has by default."""
    yield soma.ActionStoreSpec(
        name="disk",
        target="soma_cache.opening:open_store",
        summary="Results in a folder of this machine, shared by all its processes.",
        shareable=True,
        checkup="soma_cache.checkup:checkup",
    )


@soma.hookimpl
def soma_cache_tiers() -> Iterator[soma.CacheTierSpec]:
    """Offer a folder that several machines see."""
    yield soma.CacheTierSpec(
        name="file",
        target="soma_cache.folder_tier:FolderTier",
        summary="A folder that several machines see, behind the cache of each.",
        order_ms=1.0,
    )


@soma.hookimpl
def soma_commands() -> Iterator[soma.CommandSpec]:
    """Offer the command that looks after the cache."""
    yield soma.CommandSpec(
        name="cache",
        target="soma_cache.cli.root:cache",
        summary="Look after the cache on disk: size, gc, pins, damage, and why it missed.",
    )
