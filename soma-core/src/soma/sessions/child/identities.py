"""Identities of nodes as the client has computed them, in a process that has its own view of them.

    config here as it was when it came ──► the client's identity, so that keys are the same anywhere
    config here has changed since      ──► the client's code with the config as it is here

A class that this process has imported by its path may be another than the client's: a file that was
edited after the client imported it, say. Its results would be kept under a key that lies, so such a
class is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import FunctionType
from typing import Any

from blake3 import blake3

from soma.errors import CacheConfigError, IdentityWarning, Nameless, SessionError
from soma.identity import Identity, NodeIdentity, differences
from soma.identity.names import is_reachable

__all__ = ["SentIdentity", "pack_identity"]

_ERRORS: dict[str, type[Exception]] = {
    "CacheConfigError": CacheConfigError,
    "Nameless": Nameless,
}


def pack_identity(identity: NodeIdentity) -> dict[str, Any]:
    """Return what a node is, or why that cannot be said, as plain data. For the client."""
    try:
        found = identity.read()
    except (CacheConfigError, Nameless) as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {
        "name": found.name,
        "code": found.code,
        "config": found.config,
        "parts": dict(found.parts),
    }


class SentIdentity(NodeIdentity):
    """What a node is by its client.

    Args:
        id_: the id of the node.
        node: the filter or function, as it came.
        sent: what ``pack_identity`` has returned.

    Raises:
        SessionError: its class is another here than at the client.
    """

    def __init__(self, id_: str, node: Any, sent: Mapping[str, Any]) -> None:
        super().__init__(id_, node)
        self._error = sent.get("error")
        self._text = sent.get("text", "")
        self._first: Identity | None = None
        if self._error is None:
            self._sent = Identity(**sent)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IdentityWarning)  # the client has heard it
                self._look(id_, node)

    def _look(self, id_: str, node: Any) -> None:
        try:
            own = super().read()
        except (CacheConfigError, Nameless):
            return  # what the client knows has to do
        root = node if isinstance(node, FunctionType) else type(node)
        if own.code != self._sent.code and is_reachable(root):
            changed = ", ".join(differences(self._sent, own)) or "its name or module"
            raise SessionError(
                f"Node {id_!r}: {own.name}, which this process has imported, is not what the "
                f"client has (code {own.code[:12]} here, {self._sent.code[:12]} there; "
                f"{changed}). If its file was edited, restart the client, or reload the module and "
                "open the program again"
            )
        self._first = own

    def read(self) -> Identity:
        """Return the client's identity, or a new one where the config has changed here.

        Raises:
            CacheConfigError: something cannot be hashed, here or at the client.
            Nameless: nothing says what the node does.
        """
        if self._error is not None:
            raise _ERRORS[self._error](self._text)
        first = self._first
        if first is None:
            return self._sent
        own = super().read()
        if own.config == first.config:
            return self._sent
        parts = {name: one for name, one in self._sent.parts.items() if not _is_config(name)}
        parts |= {name: one for name, one in own.parts.items() if _is_config(name)}
        config = own.config
        if first.config != self._sent.config:  # what came by value is written another way here
            config = blake3(f"{self._sent.config} {own.config}".encode()).hexdigest()
        return replace(self._sent, config=config, parts=parts)


def _is_config(part: str) -> bool:
    return part.startswith("attribute ")
