"""The pickler of what travels: by path what the other process can import, by value what it cannot.

    class of an importable module           "pkg.mod.Scaler", and its instances' state
    in __main__, local, made by exec        by value: cloudpickle
    of a module that no finder finds        by value as well

cloudpickle takes a module for importable once it is in ``sys.modules``. Here its finders are asked:
a file may have been deleted since, or the module never had one. Such modules are registered with
cloudpickle as by value for as long as a pickle is written.

It remembers what it reduced last: where pickling fails, that is what cannot be pickled.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from pickle import PickleBuffer
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import list_registry_pickle_by_value

from soma.identity.names import is_foreign, is_reachable

__all__ = ["Pickler"]

_DEFINITIONS = (FunctionType, type, ModuleType)
_LruCache = type(lru_cache(len))
_NOWHERE = "<dynamic-code>"
"""What cloudpickle calls every file."""

_memo: dict[tuple[str, ...], dict[str, Any]] = {}
"""Working folder and ``sys.path`` -> modules that were found there; of the latest alone."""
_lock = threading.Lock()
_lent: Counter[str] = Counter()
"""Name of a module -> how many pickles that are being written send it by value."""


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # a thread that did not come along may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """Writes one pickle of protocol 5, its buffers apart from it."""

    def __init__(self, file: io.BytesIO, buffers: Callable[[PickleBuffer], None]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers)
        self.last: Any = None
        """What was reduced last."""
        self.by_value: dict[int, Any] = {}
        """Functions, classes and modules that went by value, by their id."""
        self._importable: dict[str, bool] = {}
        self._found = _found_before()
        self._borrowed: list[ModuleType] = []

    def dump(self, obj: Any) -> None:
        """Write an object.

        Raises:
            Exception: whatever refuses to be pickled raises.
        """
        try:
            super().dump(obj)
        finally:
            for module in self._borrowed:
                _give_back(module)
            self._borrowed.clear()

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is written; NotImplemented for the usual way."""
        self.last = obj
        cls = type(obj)
        if issubclass(cls, _DEFINITIONS):
            self._borrow(obj)
        elif obj is sys.stdout or obj is sys.stderr:
            return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
        elif issubclass(cls, io.TextIOWrapper):  # cloudpickle would send what is in the file
            raise TypeError(f"cannot pickle {cls.__name__!r} object")
        reduced = self._wrapper(obj)
        if reduced is not NotImplemented:
            return reduced
        reduced = super().reducer_override(obj)
        if reduced is not NotImplemented:
            self.by_value[id(obj)] = obj
            if issubclass(cls, type) and "__slots__" in vars(obj):
                return _with_slots(obj, reduced)
        return reduced

    def _wrapper(self, obj: Any) -> Any:
        """Return how what wraps a function is written, where that goes by value."""
        cls = type(obj)
        if cls is CodeType:  # with the file that it came from, which tracebacks show
            kind, parts = self.dispatch_table[cls](obj)
            return kind, tuple(obj.co_filename if one == _NOWHERE else one for one in parts)
        if cls is cached_property:
            return make_cached_property, (obj.func, obj.attrname)
        if cls is _LruCache and not self._goes_by_path(obj):
            settings = obj.cache_parameters()
            return make_lru_cache, (obj.__wrapped__, settings["maxsize"], settings["typed"])
        return NotImplemented

    def _goes_by_path(self, obj: Any) -> bool:
        module = getattr(obj, "__module__", None)
        if type(module) is not str or module == "__main__" or not is_reachable(obj):
            return False
        return self._is_importable(module)

    def _borrow(self, obj: Any) -> None:
        """Have what lies in a module that the other process cannot import go by value."""
        is_module = issubclass(type(obj), ModuleType)
        name = obj.__name__ if is_module else getattr(obj, "__module__", None)
        if type(name) is not str:
            return
        module = sys.modules.get(name)
        if module is not None and not self._is_importable(name):
            if module not in self._borrowed and _lend(module):
                self._borrowed.append(module)
        elif module is not None:
            return
        if is_module:
            self.by_value[id(obj)] = obj

    def _is_importable(self, name: str) -> bool:
        found = self._importable.get(name)
        if found is None:
            found = name == "__main__" or is_foreign(name) or self._is_there(name)
            self._importable[name] = found
        return found

    def _is_there(self, name: str) -> bool:
        module = sys.modules.get(name)
        if self._found.get(name, name) is module and _has_file(module):
            return True
        found = self._can_be_found(name)
        if found:
            self._found[name] = module
        return found

    def _can_be_found(self, name: str) -> bool:
        """Ask the finders, as an interpreter does that has not imported the module yet."""
        module, parent = sys.modules.get(name), name.rpartition(".")[0]
        path = None
        if parent:
            if not self._is_importable(parent):
                return False
            path = getattr(sys.modules.get(parent), "__path__", None)
        spec = _find(name, path) if path is not None or not parent else None
        if spec is None:  # six.moves: made by its package, without a file, when that is imported
            return bool(parent) and getattr(module, "__file__", None) is None
        return _is_same(module, spec)


def make_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001  # as pickle calls it
    """Return a function with an empty cache around it."""
    return lru_cache(maxsize, typed)(function)


def make_cached_property(function: Any, name: str | None) -> Any:
    """Return the property that a class has under a name."""
    made: Any = cached_property(function)
    made.attrname = name
    return made


def _with_slots(cls: type, reduced: Any) -> Any:
    """Have a class made again with its slots, which cloudpickle leaves to ``__dict__``."""
    make, arguments, *rest = reduced
    if getattr(make, "__name__", "") != "_make_skeleton_class":
        return reduced
    kind, name, bases, given, *others = arguments
    given = {**given, "__slots__": vars(cls)["__slots__"]}
    return (make, (kind, name, bases, given, *others), *rest)


def _found_before() -> dict[str, Any]:
    try:
        here = os.getcwd()  # noqa: PTH109  # asked for every pickle: it must be quick
    except OSError:  # it was removed
        here = ""
    place = (here, *map(str, sys.path))
    found = _memo.get(place)
    if found is None:
        _memo.clear()
        found = _memo[place] = {}
    return found


def _has_file(module: Any) -> bool:
    """Say whether the file that a module came from is still there."""
    file = getattr(module, "__file__", None)
    return type(file) is not str or os.access(file, os.F_OK)


def _find(name: str, path: Any) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        if getattr(finder, "__module__", None) == "__main__":
            continue  # the other process does not have it
        with suppress(Exception):  # somebody else's finder
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
    return None


def _is_same(module: Any, spec: ModuleSpec) -> bool:
    """Say whether what would be imported lies where the module here came from."""
    file = getattr(module, "__file__", None)
    if type(file) is not str or not file:
        return True
    if spec.loader is None:  # a folder that is left of a package
        return False
    if not spec.has_location or spec.origin is None or spec.origin == file:
        return True
    try:
        return Path(spec.origin).samefile(file)
    except OSError:
        return False


def _lend(module: ModuleType) -> bool:
    name = module.__name__
    with _lock:
        if not _lent[name]:
            if name in list_registry_pickle_by_value():
                return False  # the user's own doing, and it stays
            try:
                cloudpickle.register_pickle_by_value(module)
            except ValueError:  # no module, or one under another name
                return False
        _lent[name] += 1
        return True


def _give_back(module: ModuleType) -> None:
    name = module.__name__
    with _lock:
        _lent[name] -= 1
        if _lent[name] <= 0:
            del _lent[name]
            with suppress(ValueError):
                cloudpickle.unregister_pickle_by_value(module)
