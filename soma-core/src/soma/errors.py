"""Every error that Soma raises, in one tree.

    SomaError
    ├── GraphError (ValueError)           a graph that cannot run as it is declared
    │   ├── CycleError                    … because its edges go round; the message draws the path
    │   └── SchemaMismatch                … because one node gives what the next does not take
    ├── InvalidFilter (TypeError)         an object that cannot be a node
    ├── UnknownNode (KeyError)            an id that is not in this graph
    ├── NotFittedError (RuntimeError)     forward before fit
    ├── CacheConfigError (TypeError)      something in a node has no hash; names node and attribute
    ├── InvalidInput (ValueError)         data or a parameter that the graph cannot take as it is
    ├── InvalidOutput (TypeError)         what a filter returned cannot go on: a generator, say
    ├── PlanError (ValueError)            a text that is not a plan
    ├── Unsettled (ValueError)            a cached node below one that may still learn
    ├── Nameless (ValueError)             a node without code or version: nothing says what it does
    ├── CodecError (ValueError)           a codec that is no codec, or that failed at its one job
    │   ├── MissingCodec                  nothing says how a value of this type is written down
    │   └── UnknownKind                   bytes of a kind that nobody here can read
    ├── FrameError (ValueError)           bytes that are not a whole, honest SOMA1 frame
    ├── SessionError (RuntimeError)       a session, or the process behind it, cannot do its work
    │   ├── SessionLost                   … because its process ended: it exited, or was killed
    │   │   └── MemoryExceeded (MemoryError)   … by us: it took more than its ``memory``
    │   ├── SessionTimeout (TimeoutError)  … because a call took longer than ``timeout_s``
    │   ├── SessionCancelled              … because somebody called ``cancel``
    │   └── MissingCapability             … because it is of a kind that cannot do that
    ├── NotSendable (TypeError)           what cannot travel to another process; it says where
    ├── RemoteError (RuntimeError)        an exception of another process that cannot travel itself
    ├── UnknownName (ValueError)          a name that neither core nor a plugin provides
    ├── MissingPackage (ModuleNotFoundError)   the package that provides it is not installed
    ├── BrokenPackage (ImportError)       it is installed and does not import
    └── PluginError (RuntimeError)        something is wrong with what a plugin offers
        ├── InvalidSpec (ValueError)      a description that no plugin may return
        └── NameConflict                  two plugins claim one name: neither gets it

Each class also derives from the built-in that a user would catch, so ``except KeyError`` works as
well as ``except SomaError``. A message says what happened, to which node, key, file or setting,
what was expected, and what to do about it; a missing package ends with its install line.
Exceptions from a user's own code are never wrapped: they keep their type and gain a note.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "BrokenPackage",
    "CacheConfigError",
    "CodecError",
    "CycleError",
    "FrameError",
    "GraphError",
    "IdentityWarning",
    "InvalidFilter",
    "InvalidInput",
    "InvalidOutput",
    "InvalidSpec",
    "MemoryExceeded",
    "MissingCapability",
    "MissingCodec",
    "MissingPackage",
    "NameConflict",
    "Nameless",
    "NotFittedError",
    "NotSendable",
    "PlanError",
    "PluginError",
    "RemoteError",
    "SchemaMismatch",
    "SessionCancelled",
    "SessionError",
    "SessionLost",
    "SessionTimeout",
    "SomaError",
    "SourceWarning",
    "StateWarning",
    "UnknownKind",
    "UnknownName",
    "UnknownNode",
    "Unsettled",
    "describe_error",
    "did_you_mean",
    "format_traceback",
    "shown",
]


_LISTED = 20
"""Known names that are listed where none is near."""


class SomaError(Exception):
    """The root of the tree. ``except SomaError`` catches whatever Soma itself refuses."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument, which would put our sentence in quotes.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class GraphError(SomaError, ValueError):
    """The graph cannot run as it is declared: no nodes, an id used twice, and so on."""


class CycleError(GraphError):
    """The edges go round in a circle. The message gives the path, node by node."""


class SchemaMismatch(GraphError):
    """One node says that it gives what the next says it does not take."""


class InvalidFilter(SomaError, TypeError):
    """The object cannot be a node: it has no ``forward``, say."""


class UnknownNode(SomaError, KeyError):
    """No node of this graph has that id."""


class NotFittedError(SomaError, RuntimeError):
    """``forward`` was called while a trainable node has no state yet."""


class CacheConfigError(SomaError, TypeError):
    """Something that a node is made of cannot be hashed. The message names node and attribute."""


class InvalidInput(SomaError, ValueError):
    """Data, a seed, a state or a parameter that the graph cannot take as it is."""


class InvalidOutput(SomaError, TypeError):
    """What a filter returned cannot go on: a generator, which can be read only once."""


class PlanError(SomaError, ValueError):
    """The text is not a plan, or one that no compiler made."""


class Unsettled(SomaError, ValueError):
    """A node under ``.cached()`` may change: it, or one above it, learns and is not frozen."""


class Nameless(SomaError, ValueError):
    """Nothing says what the node does: it has no code, no version and no distribution."""


class CodecError(SomaError, ValueError):
    """A codec is not what a codec has to be, or failed to write or read a value."""


class MissingCodec(CodecError):
    """Nothing says how a value of this type is written down. The message says where it stands."""


class UnknownKind(CodecError):
    """The bytes were written by a codec that is not registered here."""


class FrameError(SomaError, ValueError):
    """The bytes are not a SOMA1 frame, or one that was cut, damaged or made up."""


class SessionError(SomaError, RuntimeError):
    """A session, or the process behind it, cannot do what it was asked for."""


class SessionLost(SessionError):
    """The process behind a session has ended. The message says how, and during what."""


class MemoryExceeded(SessionLost, MemoryError):
    """The process behind a session took more memory than it was given, and was killed for it."""


class SessionTimeout(SessionError, TimeoutError):
    """A call took longer than ``timeout_s``."""


class SessionCancelled(SessionError):
    """A call was cancelled."""


class MissingCapability(SessionError):
    """A session is of a kind that cannot do this. The message names what it lacks."""


class NotSendable(SomaError, TypeError):
    """Something cannot travel to another process. The message names it by its attribute path."""


class RemoteError(SomaError, RuntimeError):
    """Stands for an exception of another process that cannot be pickled."""


class UnknownName(SomaError, ValueError):
    """Neither core nor an installed plugin provides that name."""


class MissingPackage(SomaError, ModuleNotFoundError):
    """The package that provides the name is not installed. The message ends with how to get it."""


class BrokenPackage(SomaError, ImportError):
    """The package that provides the name is installed, and its code failed to import."""


class PluginError(SomaError, RuntimeError):
    """A plugin breaks a rule of the extension points."""


class InvalidSpec(PluginError, ValueError):
    """A description returned by a hook has a field of the wrong type or form."""


class NameConflict(PluginError):
    """Two plugins claim one name; using it is refused until one of them is gone."""


class IdentityWarning(UserWarning):
    """A node counts by less than its code: by name and version."""


class StateWarning(UserWarning):
    """States that were loaded with ``strict=False`` and do not fit the graph exactly."""


class SourceWarning(UserWarning):
    """The source text of a node is not at hand."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest of ``known``, or the list of all of them.

    The one place where suggestions are worded. The result starts with a space so that it can be
    appended to a sentence; it is empty when nothing is known.
    """
    from difflib import get_close_matches

    candidates = sorted(set(known))
    folded = {candidate.casefold(): candidate for candidate in candidates}
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f" Did you mean {folded[close[0]]!r}?"
    if not candidates:
        return ""
    listed = ", ".join(repr(candidate) for candidate in candidates[:_LISTED])
    more = f" and {len(candidates) - _LISTED} more" if len(candidates) > _LISTED else ""
    return f" Known: {listed}{more}."


def describe_error(error: BaseException) -> str:
    """Return ``ValueError: what it says``, whatever the exception's own methods do."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # somebody else's __str__
        text = "(its message cannot be shown)"
    return _printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def shown(value: object, limit: int = 60) -> str:
    """Return the repr of a value, cut, whatever its own methods do."""
    try:
        text = repr(value)
    except (Exception, RecursionError):  # noqa: BLE001  # somebody else's __repr__, or a huge int
        text = f"<{type(value).__name__}>"
    return _printable(text if len(text) <= limit else f"{text[:limit]}...")


def format_traceback(error: BaseException) -> str:
    """Return the traceback as text that any terminal takes."""
    import traceback

    try:
        return _printable("".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001  # somebody else's __str__
        return f"The traceback of a {type(error).__name__} cannot be shown.\n"


def _printable(text: str) -> str:
    """Write out what no encoding holds, such as the half of a pair in an undecodable file name."""
    return text.encode("utf-8", "backslashreplace").decode()
