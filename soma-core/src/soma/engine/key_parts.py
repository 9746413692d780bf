"""What a record says of its key: four bytes of hash for each thing that went into it.

    attribute factor, method forward, global K, python      what the node is (soma.identity)
    input                                                   what it was given
    input from left, input from right                       the same, of a fan-in
    labels, initial state, option epochs                    what else a fit was given
    state                                                   what a forward knows
    seed

Enough to say which of them differs between two records, too short to tell what any of them was.
What is absent from a key has no part. What is secret has none either, nor has an attribute that
holds something with secrets of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from blake3 import blake3

from soma.engine.node_keys import NodeKey, options_of
from soma.engine.run import Run
from soma.frame import content_hash
from soma.masking.declared import attributes_of, holds_secrets, secret_names

__all__ = ["INPUT", "INPUT_FROM", "key_parts"]

INPUT = "input"
INPUT_FROM = "input from "
_ATTRIBUTE = "attribute "
_SHORT = 4
"""As the digests of an identity."""


def key_parts(run: Run, at: int, what: str, found: NodeKey) -> dict[str, bytes]:
    """Return part -> the first four bytes of its hash.

    Args:
        run: the run.
        at: the node.
        what: ``"state"`` or ``"output"``.
        found: the key.
    """
    place = run.node[at]
    identity = {} if found.identity is None else found.identity.parts
    parts = dict(_openly(run.program.filters[place], identity))
    for name, text in found.made_of.items():
        if text is not None:
            parts[name] = _short_of(text)
    sources = run.before[at]
    if len(sources) > 1:
        del parts[INPUT]
        parts.update(_inputs(run, at, sources))
    if what == "state":
        for name, value in options_of(run, place).items():
            parts[f"option {name}"] = _short_of(content_hash(value))
    return parts


def _inputs(run: Run, at: int, sources: tuple[int, ...]) -> Iterator[tuple[str, bytes]]:
    for name, source in zip(run.names[at], sources, strict=True):
        yield f"{INPUT_FROM}{name}", _short_of(run.outputs[source].hash())


def _short_of(text: str) -> bytes:
    return blake3(text.encode("utf-8", "surrogatepass")).digest(_SHORT)


def _openly(node: Any, parts: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Leave out what is secret: four bytes of hash are enough to find a short text by trying."""
    secret = secret_names(node)
    own = dict(attributes_of(node))  # another thread may set one meanwhile
    hidden = {f"{_ATTRIBUTE}{name}" for name, value in own.items() if holds_secrets(value)}
    for name in secret:
        hidden |= {f"{_ATTRIBUTE}{name}", f"{_ATTRIBUTE}_{name}", f"class attribute {name}"}
    if secret and type(node) is partial:
        hidden.add(f"{_ATTRIBUTE}value")  # what it binds, all in one
    if not hidden:
        return parts
    return {name: digest for name, digest in parts.items() if _of_own(name) not in hidden}


def _of_own(part: str) -> str:
    """Return what a part would be called if it were of the class itself, and not of a base."""
    return part.partition(" of ")[0] if part.startswith("class attribute ") else part
