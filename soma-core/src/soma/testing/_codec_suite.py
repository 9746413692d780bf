"""What every codec must do, as tests."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from soma.codecs import find_codec, full_name
from soma.errors import CodecError, FrameError
from soma.frame import decode, encode
from soma.frame.layout import build_header
from soma.frame.tokens import Code
from soma.testing._frames import assert_same_bytes
from soma.testing._suite import ConformanceSuite

__all__ = ["CodecSuite"]

_TIMEOUT_S = 120
_READ = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
for module in json.loads(sys.argv[2]):
    importlib.import_module(module)
how = json.loads(sys.argv[3])
from soma.frame import decode, encode
frames = []
for name in sys.argv[4:]:
    with open(name, "rb") as file:
        frames.append(file.read())
for raw in frames:  # once, so that whatever is imported for it is
    encode(decode(raw, allow_pickle="pickle" in how))
if "audited" in how:
    def refuse(event, arguments):
        if event in ("pickle.find_class", "exec", "compile"):
            raise RuntimeError(event)
    sys.addaudithook(refuse)
for raw in frames:
    print(encode(decode(raw, allow_pickle="pickle" in how)).digest)
"""


class CodecSuite(ConformanceSuite):
    """Derive from it and give the fixtures.

    - ``kind``: the kind of the codec;
    - ``examples``: objects that it writes, at least two that differ;
    - ``same``: ``same(a, b)`` says whether two objects are the same value;
    - ``allow_pickle``: True for a codec of ``codec(..., pickle=True)``;
    - ``imports``: names of modules that another process has to import before it can read the
      kind. Empty for the codec of a plugin, which is found by its kind alone.
    """

    @pytest.fixture
    def kind(self) -> str:
        """Give the kind of the codec."""
        pytest.fail(f"{type(self).__name__} has to give the fixture 'kind'")

    @pytest.fixture
    def examples(self) -> list[Any]:
        """Give objects that the codec writes."""
        pytest.fail(f"{type(self).__name__} has to give the fixture 'examples'")

    @pytest.fixture
    def same(self) -> Any:
        """Give a function that says whether two objects are the same value."""
        return lambda a, b: a == b

    @pytest.fixture
    def imports(self) -> tuple[str, ...]:
        """Give the modules that another process has to import first."""
        return ()

    @pytest.fixture
    def allow_pickle(self) -> bool:
        """Say that the codec is one of ``codec(..., pickle=True)``."""
        return False

    def test_there_are_examples_and_they_differ(self, examples: list[Any], same: Any) -> None:
        """One example, or many equal ones, would prove nothing."""
        assert len(examples) > 1
        assert not same(examples[0], examples[1])

    def test_it_writes_its_type(self, kind: str, examples: list[Any]) -> None:
        """An object in hand is written by the codec of its most derived class."""
        for example in examples:
            found = find_codec(type(example))
            assert found is not None, f"nothing writes a {full_name(type(example))}"
            assert found.kind == kind

    def test_the_kind_is_named_after_the_type(self, kind: str, examples: list[Any]) -> None:
        """The kind is all that somebody has who opens the bytes in two years."""
        names = {cls.__name__ for example in examples for cls in type(example).__mro__}
        assert any(name.casefold() in kind.casefold() for name in names), (
            f"the kind {kind!r} names none of {sorted(names)}"
        )

    def test_round_trip(self, examples: list[Any], same: Any, allow_pickle: bool) -> None:
        """What comes back is what went in."""
        for example in examples:
            back = _read(example, allow_pickle)
            assert type(back) is type(example)
            assert same(example, back)

    def test_equal_bytes_twice(self, examples: list[Any], allow_pickle: bool) -> None:
        """A key is a hash of these bytes: they may not hold an address, a time or an order."""
        for example in examples:
            first = encode(example).to_bytes()
            again = encode(_read(example, allow_pickle))
            assert_same_bytes(encode(example).to_bytes(), first, "the frame")
            assert_same_bytes(again.to_bytes(), first, "the frame of what was read")

    def test_different_values_have_different_bytes(self, examples: list[Any], same: Any) -> None:
        """Two values under one hash would be taken for each other."""
        for place, one in enumerate(examples):
            for other in examples[place + 1 :]:
                assert same(one, other) == (encode(one).digest == encode(other).digest)

    def test_another_process_reads_it_from_its_kind_alone(
        self, examples: list[Any], imports: tuple[str, ...], tmp_path: Path, allow_pickle: bool
    ) -> None:
        """A store is shared: whoever reads has another PYTHONHASHSEED and has imported nothing."""
        done = self._read_elsewhere(examples, imports, tmp_path, ["pickle"] if allow_pickle else [])
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [encode(example).digest for example in examples]

    def test_nothing_is_unpickled(
        self, examples: list[Any], imports: tuple[str, ...], tmp_path: Path, allow_pickle: bool
    ) -> None:
        """Bytes from a shared store are read without looking up classes or running text."""
        if allow_pickle:
            return  # it says that it does
        done = self._read_elsewhere(examples, imports, tmp_path, ["audited"])
        assert done.returncode == 0, f"the codec unpickles or runs what it reads: {done.stderr}"

    def _read_elsewhere(
        self, examples: list[Any], imports: tuple[str, ...], tmp_path: Path, how: list[str]
    ) -> subprocess.CompletedProcess[str]:
        names = []
        for place, example in enumerate(examples):
            file = tmp_path / f"{place}.bin"
            file.write_bytes(encode(example).to_bytes())
            names.append(str(file))
        path = json.dumps(list(map(os.fsdecode, sys.path)))
        return subprocess.run(  # noqa: S603  # our own interpreter, our own text
            [sys.executable, "-c", _READ, path, json.dumps(imports), json.dumps(how), *names],
            env=os.environ | {"PYTHONHASHSEED": "4321"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def test_damaged_bytes_are_an_error_or_a_value(self, kind: str, examples: list[Any]) -> None:
        """Truncated, changed and random bytes raise CodecError or FrameError, nothing else."""
        rng = random.Random(0)  # noqa: S311  # damage, not secrets
        for example in examples:
            whole = encode(example).to_bytes()
            damaged = [whole[:cut] for cut in range(0, len(whole), max(1, len(whole) // 50))]
            for _ in range(100):
                changed = bytearray(whole)
                changed[rng.randrange(len(changed))] = rng.randrange(256)
                damaged.append(bytes(changed))
            for raw in damaged:
                with suppress(CodecError, FrameError):
                    decode(raw)
        for length in (0, 1, 8, 1000):
            for raw in _frames_of(kind, rng.randbytes(length)):
                with suppress(CodecError, FrameError):
                    decode(raw)

    def test_a_hostile_pickle_is_not_run(self, kind: str, tmp_path: Path) -> None:
        """Bytes from a shared store are not to be trusted with running code."""
        mark = tmp_path / "ran"
        for raw in _frames_of(kind, pickle.dumps(_Hostile(str(mark)))):
            with suppress(CodecError, FrameError):
                decode(raw)
        assert not mark.exists(), "the codec ran a pickle"

    def test_what_comes_back_is_a_leaf(self, examples: list[Any], allow_pickle: bool) -> None:
        """Whatever graph made the value is gone: nothing flows back through what was kept."""
        for example in examples:
            back = _read(example, allow_pickle)
            assert getattr(back, "grad_fn", None) is None
            assert not getattr(back, "requires_grad", False)


def _read(example: Any, allow_pickle: bool) -> Any:  # a fixture's value
    return decode(encode(example).to_bytes(), allow_pickle=allow_pickle)


def _frames_of(kind: str, raw: bytes) -> list[bytes]:
    """Return frames that hold bytes of our choice under a kind, for dump and for dump_buffers."""
    plain = build_header([[int(Code.CODEC), kind, raw]], [], 0)
    buffered = build_header([[int(Code.CODEC_BUFFERS), kind, 1], None], [len(raw)], 0) + raw
    return [plain, buffered]


class _Hostile:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")
