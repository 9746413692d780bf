"""Identities of nodes as the client has computed them, in a process that has its own view of them.

    all here as it was when it came ──► the client's identity, so that keys are the same anywhere
    changed by a call since then    ──► the client's, with what is new here
    changed between two calls       ──► refused: its class came once more, with other code

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
from soma.identity import Identity, NodeIdentity
from soma.identity.names import is_reachable
from soma.sessions.changed import ChangedCode

__all__ = ["SentIdentity", "check_code", "pack_identity"]

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


def check_code(id_: str, node: Any, sent: Mapping[str, Any]) -> None:
    """Refuse a node whose code this process has imported, and which the client has another of.

    Args:
        id_: the id of the node.
        node: the filter or function, as it came.
        sent: what ``pack_identity`` has returned.

    Raises:
        ChangedCode: it is another here.
    """
    if "error" not in sent:
        _own(NodeIdentity(id_, node), id_, node, Identity(**sent))


def _own(identity: NodeIdentity, id_: str, node: Any, sent: Identity) -> Identity | None:
    """Return what a node is here; None where only the client can say it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentityWarning)  # the client has heard it
            own = NodeIdentity.read(identity)
    except (CacheConfigError, Nameless):
        return None  # what the client knows has to do
    root = node if isinstance(node, FunctionType) else type(node)
    if own.code != sent.code and is_reachable(root):
        raise ChangedCode.between(id_, sent, own)
    return own


class SentIdentity(NodeIdentity):
    """What a node is by its client.

    Args:
        id_: the id of the node.
        node: the filter or function, as it came.
        sent: what ``pack_identity`` has returned.

    Raises:
        ChangedCode: its class is another here than at the client.
    """

    def __init__(self, id_: str, node: Any, sent: Mapping[str, Any]) -> None:
        super().__init__(id_, node)
        self._id = id_
        self._error = sent.get("error")
        self._text = sent.get("text", "")
        self._first: Identity | None = None
        if self._error is None:
            self._sent = Identity(**sent)
            self._first = _own(self, id_, node, self._sent)
        self._code = "" if self._first is None else self._first.code

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
        if own == first:
            return self._sent
        parts = {name: one for name, one in self._sent.parts.items() if not _is_config(name)}
        parts |= {name: one for name, one in own.parts.items() if _is_config(name)}
        code, config = self._sent.code, self._sent.config
        if own.config != first.config:
            # What came by value is written another way here.
            config = own.config if first.config == config else _joined(config, own.config)
        if own.code != first.code:  # a global that the code names was set by the code itself
            code = _joined(code, own.code)
        return replace(self._sent, code=code, config=config, parts=parts)

    def check(self) -> None:
        """Refuse to go on with code that somebody else has changed. Before each call.

        Raises:
            SessionError: its class came once more since the last call, and has other code now.
        """
        now = self._code_now()
        if now != self._code:
            raise SessionError(
                f"Node {self._id!r} has other code in its process than when this program was "
                "opened: its class was sent there again after something in it had changed, and a "
                "process has each class once. Open the program again: runner.open(g.program())"
            )

    def settle(self) -> None:
        """Take the code as it is now for the node's own. After each call."""
        self._code = self._code_now()

    def _code_now(self) -> str:
        if self._first is None:
            return ""
        try:
            return super().read().code
        except (CacheConfigError, Nameless):
            return ""  # a run says what is wrong with it


def _joined(sent: str, own: str) -> str:
    return blake3(f"{sent} {own}".encode()).hexdigest()


def _is_config(part: str) -> bool:
    return part.startswith("attribute ")
