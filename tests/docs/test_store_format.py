"""docs/formats/store.md and the code say the same, field by field and byte by byte.

The vectors were written once and never change. They are read here with json, base64 and blake3
alone, and written anew by the code: run this file as a script to add one that is not there.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from soma.contracts import ActionRecord
from soma.frame import decode, encode
from soma_cache import DiskStore, FolderTier, open_store
from soma_cache.files import put_file
from soma_cache.layout import FORMAT, INLINE_BYTES, blob_name, check_format, pin_file, record_name
from soma_cache.locks import KeyLocks
from soma_cache.records import dump_record, load_record, unpack_inline

FOLDER = Path(__file__).parents[2] / "docs" / "formats"
PAGE = (FOLDER / "store.md").read_text()
VECTORS = FOLDER / "store-vectors.json"

SMALL = {"mean": 2.0}
LARGE = (np.arange(300.0), np.arange(600, dtype="<i8").reshape(2, 300))
TYPES = {"text": str, "number": (int, float), "boolean": bool, "object": dict}


def digest_of(value: Any) -> str:
    return blake3(b"".join(map(bytes, encode(value).parts()))).hexdigest()


def key_of(text: str) -> str:
    return blake3(text.encode()).hexdigest()


def records() -> dict[str, tuple[ActionRecord, dict[str, bytes]]]:
    """Return name of the vector -> a record, and what lies in it."""
    small = encode(SMALL).to_bytes()
    inline = ActionRecord(
        key=key_of("inline"),
        name="pipeline.Center",
        outputs={"state": digest_of(SMALL)},
        bytes={"state": len(small)},
        compute_ms=0.125,
        origin={
            "host": "lab-1",
            "python": "3.11",
            "soma": "0.1.0",
            "node": "center",
            "run": "8c1f",
        },
        created_at=1796012100.25,
        parts={"attribute alpha": bytes.fromhex("0badcafe"), "method fit": bytes(4)},
    )
    blobs = ActionRecord(
        key=key_of("blobs"),
        name="pipeline.Größe",
        outputs={name: digest_of(value) for name, value in zip(("a", "b"), LARGE, strict=True)},
        bytes={name: encode(value).nbytes for name, value in zip(("a", "b"), LARGE, strict=True)},
        compute_ms=61250.5,
        effect="impure",
        expensive=True,
        pickled=True,
        origin={"host": "lab-2", "python": "3.12", "soma": "0.1.0"},
        created_at=1796012101.0,
    )
    return {
        "inline": (inline, {digest_of(SMALL): small}),
        "blobs": (blobs, {}),
    }


def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VECTORS.read_text())
    return found


def table(title: str) -> dict[str, str]:
    """Return field -> type, of the table whose first column has that title."""
    below = PAGE.partition(f"| {title} | type | what |\n| --- | --- | --- |\n")[2]
    rows = below.partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \| .+ \|$", rows, re.MULTILINE))


def check_types(found: dict[str, Any], types: dict[str, str]) -> None:
    for name, value in found.items():
        assert isinstance(value, TYPES[types[name]]), name
        assert isinstance(value, bool) == (types[name] == "boolean"), name


def read_by_hand(text: str) -> dict[str, Any]:
    """Return the members of a record, whose check is right, as the page says it is read."""
    raw = text.encode("ascii")
    begun = re.match(rb'\{"check":"([0-9a-f]{16})",', raw)
    assert begun is not None
    assert begun.end() == 28
    rest = raw[begun.end() :]
    assert rest.count(b"\n") == 1
    assert rest.endswith(b"}\n")
    assert blake3(rest).hexdigest()[:16].encode() == begun[1]
    found: dict[str, Any] = json.loads(b"{" + rest)
    return found


@pytest.mark.parametrize("name", ["inline", "blobs"])
def test_every_field_of_a_record_is_in_the_table_in_this_order_and_no_other(name):
    found = read_by_hand(vectors()["records"][name]["text"])
    types = table("record")
    assert list(found) == list(types)
    check_types(found, types)
    for output in found["outputs"].values():
        expected = list(table("output")) if name == "inline" else ["digest", "bytes"]
        assert list(output) == expected
        check_types(output, table("output"))


def test_what_the_code_knows_of_an_action_is_in_the_table():
    """A field that is added to records and not written down is noticed here."""
    known = {field.name for field in fields(ActionRecord)}
    assert known - {"bytes", "tier"} == set(table("record"))


@pytest.mark.parametrize("name", ["inline", "blobs"])
def test_a_record_is_the_vector_and_reads_as_it(name):
    record, inline = records()[name]
    vector = vectors()["records"][name]
    raw = vector["text"].encode("ascii")
    assert (
        vector["name"] == record_name(record.key) == f"actions/{record.key[:2]}/{record.key}.json"
    )
    assert dump_record(record, inline) == raw
    read = load_record(raw, record.key)
    assert read is not None
    assert read.record == record
    assert {one: unpack_inline(text, one) for one, text in read.inline.items()} == inline


def test_a_record_is_what_json_and_blake3_make_of_it():
    """Put together by hand, from the page, and not by the code."""
    frame = encode(SMALL).to_bytes()
    members = [
        ("key", key_of("inline")),
        ("name", "pipeline.Center"),
        (
            "outputs",
            {
                "state": {
                    "digest": blake3(frame).hexdigest(),
                    "bytes": len(frame),
                    "inline": base64.b64encode(frame).decode(),
                }
            },
        ),
        ("compute_ms", 0.125),
        ("effect", "pure"),
        ("expensive", False),
        ("pickled", False),
        ("created_at", 1796012100.25),
        (
            "origin",
            {"host": "lab-1", "python": "3.11", "soma": "0.1.0", "node": "center", "run": "8c1f"},
        ),
        ("parts", {"attribute alpha": "0badcafe", "method fit": "00000000"}),
    ]
    rest = json.dumps(dict(members), separators=(",", ":"))[1:] + "\n"
    check = blake3(rest.encode()).hexdigest()[:16]
    assert vectors()["records"]["inline"]["text"] == f'{{"check":"{check}",{rest}'


def test_blobs_are_frames_under_their_hash():
    found = vectors()
    outputs = read_by_hand(found["records"]["blobs"]["text"])["outputs"]
    assert len(found["blobs"]) == len(outputs)
    for output, value, blob in zip(outputs.values(), LARGE, found["blobs"], strict=True):
        raw = bytes.fromhex(blob["frame"])
        digest = blake3(raw).hexdigest()
        assert output == {"digest": digest, "bytes": len(raw)}
        assert blob["name"] == blob_name(digest) == f"cas/b3/{digest[:2]}/{digest}.bin"
        np.testing.assert_array_equal(decode(raw), value)


def lay_down(folder: Path) -> None:
    """Write all vectors as the files that they are."""
    found = vectors()
    files = {"format.json": found["format.json"].encode()}
    files |= {one["name"]: one["text"].encode() for one in found["records"].values()}
    files |= {one["name"]: bytes.fromhex(one["frame"]) for one in found["blobs"]}
    files[f"pins/{found['pin']['file']}"] = found["pin"]["text"].encode()
    for name, raw in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


def test_a_folder_of_vectors_is_a_cache(tmp_path):
    lay_down(tmp_path)
    store = open_store(tmp_path)
    assert isinstance(store, DiskStore)
    for record, _ in records().values():
        found = store.lookup(record.key)
        assert found == record
        assert found.tier == "Local"
    frame = store.read(digest_of(SMALL))
    assert frame is not None
    assert decode(b"".join((frame[0], *frame[1]))) == SMALL
    assert store.verify() == []
    assert store.stats()["pins"] == 1
    store.gc(max_bytes=0)
    assert store.read(digest_of(LARGE[0])) is not None  # its key is pinned
    store.unpin(vectors()["pin"]["name"])
    store.gc(max_bytes=0)
    assert not (tmp_path / blob_name(digest_of(LARGE[0]))).exists()


def test_what_the_code_writes_are_the_files_of_the_vectors(tmp_path):
    store = open_store(tmp_path / "cache")
    for value in (SMALL, *LARGE):
        written = encode(value)
        assert store.write((written.header, written.buffers)) == digest_of(value)
    for record, _ in records().values():
        store.commit(record)
    pin = vectors()["pin"]
    store.pin(pin["name"], key_of("blobs"))
    lay_down(tmp_path / "vectors")
    assert contents(tmp_path / "cache") == contents(tmp_path / "vectors")


def contents(folder: Path) -> dict[str, bytes]:
    """Return what is in a folder, but for what is made of the rest."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "index"
    }


def test_files_are_nobodys_to_write_and_the_folder_is_its_owners(tmp_path):
    test_what_the_code_writes_are_the_files_of_the_vectors(tmp_path)
    folder = tmp_path / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in contents(folder):
        assert (folder / name).stat().st_mode & 0o333 == 0


def test_a_shared_folder_has_the_same_files_without_pins_and_locks(tmp_path):
    tier = FolderTier((tmp_path / "shared").as_uri())
    found = vectors()
    for one in found["records"].values():
        tier.put(one["name"], (one["text"].encode(), []))
    for one in found["blobs"]:
        tier.put(one["name"], (b"", [memoryview(bytes.fromhex(one["frame"]))]))
    lay_down(tmp_path / "vectors")
    expected = contents(tmp_path / "vectors")
    assert contents(tmp_path / "shared") == {
        name: raw for name, raw in expected.items() if not name.startswith("pins/")
    }


def test_the_format_is_what_the_page_says(tmp_path):
    text = FORMAT.decode()
    assert vectors()["format.json"] == text
    assert f"\n    {text}" in PAGE
    types = table("format")
    assert list(json.loads(text)) == list(types) == ["version", "hash", "features"]
    (tmp_path / "format.json").write_text(text)
    assert check_format(str(tmp_path))


@pytest.mark.parametrize(
    "changed", [{"version": 1}, {"version": 3}, {"hash": "b2"}, {"features": ["x"]}]
)
def test_another_format_is_left_as_it_is(tmp_path, changed):
    lay_down(tmp_path)
    text = json.dumps(json.loads(FORMAT) | changed)
    (tmp_path / "format.json").write_text(text)
    before = contents(tmp_path)
    store = open_store(tmp_path)
    assert store.lookup(key_of("inline")) is None
    store.commit(records()["inline"][0])
    assert contents(tmp_path) == before


def test_small_frames_lie_in_records_up_to_the_size_on_the_page(tmp_path):
    (size,) = re.findall(r"Frames of up to ([\d,]+) bytes have no file", PAGE)
    assert int(size.replace(",", "")) == INLINE_BYTES
    store = open_store(tmp_path)
    around = len(encode(b"x" * 2000).to_bytes()) - 2000
    for more, lies_in_a_file in ((0, False), (1, True)):
        written = encode(b"x" * (INLINE_BYTES - around + more))
        assert written.nbytes == INLINE_BYTES + more
        digest = store.write((written.header, written.buffers))
        store.commit(
            ActionRecord(
                key=key_of(str(more)),
                outputs={"output": digest},
                bytes={"output": written.nbytes},
                compute_ms=0.0,
            )
        )
        assert (tmp_path / blob_name(digest)).exists() == lies_in_a_file


def test_a_pin_is_the_vector():
    pin = vectors()["pin"]
    assert pin_file(pin["name"]) == pin["file"]
    plain = re.compile(r"[A-Za-z0-9_~-]")
    by_hand = "".join(
        one if plain.fullmatch(one) else "".join(f"%{byte:02X}" for byte in one.encode())
        for one in pin["name"]
    )
    assert pin["file"] == by_hand
    assert pin["text"] == key_of("blobs") + "\n"


def test_a_name_in_tmp_is_host_process_and_number(tmp_path):
    names = []
    (tmp_path / "tmp").mkdir()

    def pieces():
        names.extend(path.name for path in (tmp_path / "tmp").iterdir())
        yield b"x"

    put_file(str(tmp_path), "file", pieces(), durable=False)
    (name,) = names
    assert re.fullmatch(rf"[\w.-]+-{os.getpid()}-\d+", name)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_key_locks_the_byte_of_the_vector(tmp_path):
    lock = vectors()["lock"]
    assert int(lock["key"][:15], 16) == lock["byte"]
    locks = KeyLocks(tmp_path / "locks")
    assert locks.lock(lock["key"])
    assert (tmp_path / "locks").stat().st_size == 0  # opening it here would let go
    tried = subprocess.run(
        [
            sys.executable,
            "-c",
            dedent(f"""
                import fcntl
                file = open({str(tmp_path / "locks")!r}, "r+b")
                for at in range({lock["byte"]} - 1, {lock["byte"]} + 2):
                    try:
                        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                        print("free")
                    except OSError:
                        print("locked")
            """),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert tried.stdout.split() == ["free", "locked", "free"]
    locks.unlock(lock["key"])


def main() -> None:
    found = vectors() if VECTORS.exists() else {}
    added: dict[str, Any] = {
        "format.json": FORMAT.decode(),
        "records": {
            name: {
                "name": record_name(record.key),
                "text": dump_record(record, inline).decode("ascii"),
            }
            for name, (record, inline) in records().items()
        },
        "blobs": [
            {"name": blob_name(digest_of(value)), "frame": encode(value).to_bytes().hex()}
            for value in LARGE
        ],
        "pin": {
            "name": "baseline v1.2/ä~_-",
            "file": pin_file("baseline v1.2/ä~_-"),
            "text": key_of("blobs") + "\n",
        },
        "lock": {"key": key_of("inline"), "byte": int(key_of("inline")[:15], 16)},
    }
    VECTORS.write_text(json.dumps(added | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
