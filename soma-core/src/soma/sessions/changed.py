"""What is said where the code of a node is not the same on both sides of a connection.

A child imports modules by their path, as they lie on disk. So it has other code than its client
where a file was edited after the client had imported it, and where a class was changed at run time.
"""

from __future__ import annotations

from soma.errors import SessionError
from soma.identity import Identity, differences

__all__ = ["ChangedCode"]


class ChangedCode(SessionError):
    """A class or function that both sides have imported is not the same on both.

    Its only argument is the message, so that it travels as it is.
    """

    @classmethod
    def between(cls, node: str, client: Identity, child: Identity) -> ChangedCode:
        """Return the error for a node.

        Args:
            node: its id.
            client: what it is where the graph is.
            child: what it is in the process that was asked to run it.
        """
        changed = ", ".join(differences(client, child)) or "its name or module"
        return cls(
            f"Node {node!r}: {child.name} is not the same in the process that shall run it "
            f"({changed}; code {child.code[:12]} there, {client.code[:12]} here). That "
            "process imports modules as they lie on disk. If the file was edited, reload the "
            "module here, or start Python again. What was changed at run time (a patched class, "
            "method or global) does not travel: make it an attribute of the filter, or let the "
            "node run here with target='local'"
        )
