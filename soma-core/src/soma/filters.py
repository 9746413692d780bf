"""The filter: a node that learns and transforms.

    fit(x, y) -> state            what was learned, returned, never kept on the object
    forward(x, state) -> value    the same input and state give the same value

Learning into the return value is what lets Soma keep, send and restore what was learned. Class
attributes say how the engine may treat it; what it was constructed with is remembered, whether or
not its ``__init__`` calls ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from soma.arguments import NotPlain, bound, capture
from soma.dsl import Composable

__all__ = ["Filter"]


class Filter(Composable):
    """Base class for nodes: gives ``>>`` and ``|``. Any object that defines the methods will do.

    A subclass defines ``forward(self, x, state)``, and ``fit(self, x, y=None)`` if it learns.
    ``fit`` returns the state, which ``forward`` is handed; ``{}`` means that nothing was learned.
    Without ``fit`` the state is None. A method that names more arguments is given them: ``rng`` (a
    ``numpy.random.Generator``, the same for the same node, input and seed); in ``fit`` also
    ``state`` (what to go on from, or None) and ``epochs``, ``batch_size`` and ``shuffle``.

    Keywords given to this constructor become attributes, and are what ``kwargs()`` returns.
    """

    _kind: ClassVar[str | None] = None
    """``"trainable"`` or ``"stateless"``; unset, a class with ``fit`` or ``build_module`` is
    trainable."""
    _cacheable: ClassVar[bool] = True
    """False: outputs are never kept, and forward runs every time."""
    _deterministic: ClassVar[bool] = True
    """False: the same input may give another output, so that one is kept only under a seed."""
    _differentiable: ClassVar[bool | None] = None
    """Whether gradients flow through it; unset, a class that says ``_kind = "trainable"`` and has
    no ``fit`` is differentiable."""
    _stream_mode: ClassVar[str] = "fixed_state"
    """What a stream does with a chunk: ``"fixed_state"`` (or ``"fixed"``), ``"evolving"`` or
    ``"barrier"``."""
    _uses_seed: ClassVar[bool] = True
    """False: no seed changes what it does, so that results of other seeds serve as well."""
    _cache_version: ClassVar[str | int | None] = None
    """Stands for the code of the class, which then does not count."""
    _cache_depends: ClassVar[tuple[Any, ...]] = ()
    """Functions, classes and modules elsewhere that its code leads to and that count with it."""
    _cache_env: ClassVar[tuple[str, ...]] = ()
    """Distributions whose installed versions count."""
    _input_schema: ClassVar[str | Mapping[str, Any] | None] = None
    """What it takes: ``"text"``, ``"json"``, ``"messages"``, ``"bytes"``, or ``{"dtype": ...,
    "shape": (None, 64)}`` with None for a free axis. Unset: anything."""
    _output_schema: ClassVar[str | Mapping[str, Any] | None] = None
    """What it gives, in the same words."""
    _secret: ClassVar[tuple[str, ...]] = ()
    """Constructor arguments that are written down nowhere; those of base classes are as well."""
    class_version: ClassVar[int] = 1
    """Raise it when constructor arguments or states of older releases do not fit any more."""

    _soma_captures = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Remember what the object is constructed with."""
        made: Any = super().__new__
        instance = made(cls) if made is object.__new__ else made(cls, *args, **kwargs)
        if isinstance(instance, cls):
            capture(instance, args, kwargs)
        return instance

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.__dict__["_soma_kwargs"] = dict(kwargs)

    def kwargs(self) -> dict[str, Any]:
        """Return what the object was made with.

        That is what ``super().__init__(**kwargs)`` was given, or else the constructor's plain
        arguments, defaults filled in.

        Override it to leave out what a saved graph cannot carry, such as a callback.
        """
        given = self.__dict__.get("_soma_kwargs")
        if given:
            return dict(given)
        return {name: one for name, one in bound(self).items() if not isinstance(one, NotPlain)}

    kwargs._soma_default = True  # type: ignore[attr-defined]  # noqa: SLF001  # tells it from an override
