"""``soma cache show``, ``rm``, ``pin``, ``unpin`` and ``pins``, and every way to write a KEY."""

from __future__ import annotations

import json
import os
import time

import pytest

from support.cache_cli import keep, new_store, soma_cache
from support.cache_folders import blobs_of, everything, records_of
from support.cache_records import rewritten
from support.run_dirs import event, write_run

NO_KEY = " is no key: that is 64 hexadecimal digits, or their beginning, 4 at least."
EXPENSIVE = "expensive: gc takes others first"
PICKLED = "written with pickle: it stays on this machine"
TAKES_KEY = (["show"], ["rm", "-y"], ["pin", "best"])


@pytest.fixture
def store(folder):
    return new_store(folder)


def record_path(folder, key):
    return folder / "actions" / key[:2] / f"{key}.json"


class TestKeys:
    @pytest.mark.parametrize("words", TAKES_KEY, ids=lambda words: words[0])
    @pytest.mark.parametrize(
        "text",
        ["", " ", "abc", "xyz0", "a" * 65, "ab/../cd", "*", "\x1b[31mabcd", "ключ", "0x12ab"],
    )
    def test_what_is_no_key(self, words, text, store, folder):
        before = everything(folder)
        done = soma_cache(*words, "--", text)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("Error: ")
        assert NO_KEY in done.err
        assert "\x1b" not in done.err
        assert everything(folder) == before

    @pytest.mark.parametrize("words", TAKES_KEY, ids=lambda words: words[0])
    def test_a_key_that_is_not_there(self, words, store, folder):
        kept = keep(store, "a")
        for text, named in (
            ("ab" * 32, f"the key {'ab' * 32}"),
            ("0000", "a key that begins with 0000"),
        ):
            done = soma_cache(*words, text)
            assert done == (2, "", f"Error: There is no record of {named} in {folder}.\n")
        done = soma_cache(*words, kept.digest)
        assert done.status == 2
        assert f"{kept.digest} is the hash of a result in {folder}, not a key" in done.err
        assert kept.path.exists()

    def test_beginnings_and_upper_case(self, store):
        kept = keep(store, "a")
        for text in (kept.key[:4], kept.key[:11], kept.key, kept.key.upper(), f" {kept.key} "):
            assert json.loads(soma_cache("show", text, "--json").out)["key"] == kept.key

    def test_a_beginning_of_several_says_which(self, store, folder):
        same = "abcd12345678901234"
        keys = [same + digit * (64 - len(same)) for digit in "0123456"]
        for digit, key in zip("0123456", keys, strict=True):
            keep(store, f"node {digit}", key=key)
        record_path(folder, keys[1]).unlink()
        record_path(folder, keys[1]).write_bytes(b"damaged")
        done = soma_cache("show", "abcd")
        assert (done.status, done.out) == (2, "")
        assert done.err == (
            f"Error: abcd may be any of: {same}0 node 0 output (work.Step), {same}1 damaged, "
            f"{same}2 node 2 output (work.Step), {same}3 node 3 output (work.Step), "
            f"{same}4 node 4 output (work.Step), and 2 more. Give more of its digits.\n"
        )
        assert soma_cache("show", f"{same}0").status == 0

    def test_names_of_others_are_passed_over(self, store, folder):
        kept = keep(store, "a", key="abcd" + "0" * 60)
        for name in ("abcd.json", "abcd" + "0" * 60 + ".json~", "ABCD" + "1" * 60 + ".json"):
            (folder / "actions" / "ab" / name).write_text("")
        assert soma_cache("show", "abcd").status == 0
        assert kept.key in soma_cache("show", "abcd").out


@pytest.mark.parametrize("words", TAKES_KEY, ids=lambda words: words[0])
def test_a_folder_in_place_of_a_record_is_none(words, store, folder):
    kept = keep(store, "a")
    record_path(folder, kept.key).unlink()
    record_path(folder, kept.key).mkdir()
    done = soma_cache(*words, kept.key)
    assert done == (2, "", f"Error: There is no record of the key {kept.key} in {folder}.\n")
    assert soma_cache("verify").status == 0
    assert record_path(folder, kept.key).is_dir()


class TestShow:
    def test_all_that_is_known(self, store, folder, monkeypatch):
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        kept = keep(
            store,
            "scaler",
            compute_ms=65_000.0,
            name="pipeline.Scaler",
            origin={"node": "scaler", "run": "c7", "host": "there", "python": "3.13", "soma": "9"},
            created_at=1_800_000_000.0,
            effect="impure",
            expensive=True,
            pickled=True,
            parts={"method fit": b"\1\2\3\4", "attribute alpha": b"\xff\0\0\0"},
        )
        store.pin("best", kept.key)
        store.pin("a b", kept.key)
        done = soma_cache("show", kept.key)
        assert (done.status, done.err) == (0, "")
        assert [line.split(None, 1) for line in done.out.splitlines()[:13]] == [
            ["key", kept.key],
            ["class", "pipeline.Scaler"],
            ["node", "scaler"],
            ["call", "c7"],
            ["host", "there"],
            ["python", "3.13"],
            ["soma", "9"],
            ["made", "2027-01-15 08:00:00"],
            ["took", "1 min 05 s"],
            ["kind", f"impure: no function of its input; {EXPENSIVE}; {PICKLED}"],
            ["output", f"9.8 KiB, {kept.path}"],
            ["pins", "a b, best"],
            ["made", "of  attribute alpha, method fit"],
        ]

    def test_as_json(self, store, folder):
        kept = keep(store, "a", parts={"method fit": b"\1\2\3\4"}, created_at=5.0, compute_ms=2.0)
        found = json.loads(soma_cache("show", kept.key, "--json").out)
        assert found.pop("origin").items() >= {"node": "a", "run": "c1"}.items()
        assert found == {
            "key": kept.key,
            "name": "work.Step",
            "created_at": 5.0,
            "compute_ms": 2.0,
            "effect": "pure",
            "expensive": False,
            "pickled": False,
            "outputs": {
                "output": {
                    "digest": kept.digest,
                    "bytes": kept.nbytes,
                    "where": "blob",
                    "path": str(kept.path),
                }
            },
            "pins": [],
            "parts": {"method fit": "01020304"},
            "path": str(record_path(folder, kept.key)),
            "tracked_run": None,
        }

    def test_the_tracked_run_of_its_call(self, store, tmp_path):
        write_run(tmp_path, "run_20261130T041500Z_aaaa", events=[event("RunStarted", "c1")])
        write_run(tmp_path, "run_20261130T041500Z_bbbb", events=[event("RunStarted", "c7")])
        write_run(tmp_path, "run_20261130T041500Z_cccc", events=[event("RunStarted", "c77")])
        (tmp_path / "runs" / "run_no").mkdir()
        began = 1796012100.125  # which these runs say
        for call, made_at, found in (
            ("c7", began + 1, "run_20261130T041500Z_bbbb"),
            ("c7", began - 1, None),  # it was not yet there
            ("7", began + 1, None),
            ("", began + 1, None),
        ):
            origin, word = {"node": "a", "run": call}, f"{call} {made_at}"
            kept = keep(store, word, origin=origin, created_at=made_at)
            done = soma_cache("show", kept.key, "--root", tmp_path, "--json")
            assert json.loads(done.out)["tracked_run"] == found
            said = soma_cache("show", kept.key, "--root", tmp_path).out
            assert (f"tracked run  {found}" in said) == (found is not None)

    def test_where_its_value_is(self, store):
        small, gone = keep(store, "small", nbytes=5), keep(store, "gone")
        gone.path.unlink()
        for kept, where, said in (
            (small, "record", f"in the record (hash {small.digest})"),
            (gone, "gone", f"not here now (hash {gone.digest}): made again where it is needed"),
        ):
            output = json.loads(soma_cache("show", kept.key, "--json").out)["outputs"]["output"]
            assert (output["where"], output["path"]) == (where, None)
            assert said in soma_cache("show", kept.key).out

    def test_a_damaged_record(self, store, folder):
        kept = keep(store, "a")
        path = record_path(folder, kept.key)
        raw = path.read_bytes()
        path.unlink()
        path.write_bytes(raw[:-9])
        done = soma_cache("show", kept.key)
        assert (done.status, done.out) == (1, "")
        assert (
            f"actions/{kept.key[:2]}/{kept.key}.json is damaged, and counts as absent" in done.err
        )
        done = soma_cache("pin", "best", kept.key)
        assert (done.status, "is damaged" in done.err) == (1, True)

    def test_a_record_of_somebody_elses_making(self, store, folder):
        kept = keep(store, "a")

        def change(fields):
            fields["name"] = "\x1b[31mred\n" + "x" * 1000
            fields["origin"] = {"node": "\x1b]0;title\x07", "run": "\n", "host": "\u202e"}
            fields["outputs"] = {"\r\n\x1b": fields["outputs"]["output"]}
            fields["parts"] = {f"\x1b{number}": "00" for number in range(100)}
            fields["compute_ms"] = fields["created_at"] = 1e300

        path = record_path(folder, kept.key)
        raw = rewritten(path.read_bytes(), change)
        path.unlink()
        path.write_bytes(raw)
        store.pin("it", kept.key)
        for words in (["show", kept.key], ["pins"], ["pin", "again", kept.key]):
            done = soma_cache(*words)
            assert (done.status, done.err) == (0, "")
            assert all(one.isprintable() or one == "\n" for one in done.out)
            assert max(map(len, done.out.splitlines())) < 2500
        assert json.loads(soma_cache("show", kept.key, "--json").out)["created_at"] == 1e300
        done = soma_cache("rm", kept.key, stdin="n\n")
        assert all(one.isprintable() or one == "\n" for one in done.err)


class TestPins:
    def test_pin_list_and_unpin(self, store, folder):
        first, second = keep(store, "a"), keep(store, "b", nbytes=5)
        done = soma_cache("pin", "best", first.key[:8])
        assert done == (0, f"pinned best: {first.key[:12]} a output (work.Step)\n", "")
        assert (folder / "pins" / "best").read_text() == f"{first.key}\n"
        assert soma_cache("pin", "größe/. \n", second.key).status == 0
        lines = soma_cache("pins").out.splitlines()
        assert lines[0].split() == ["PIN", "KEY", "SIZE", "WHAT"]
        assert lines[1] == f"best          {first.key[:12]}  9.8 KiB  a output (work.Step)"
        assert lines[2].startswith(f"'größe/. \\n'  {second.key[:12]}  ")
        done = soma_cache("unpin", "größe/. \n")
        assert done == (0, f"unpinned 'größe/. \\n': {second.key[:12]}\n", "")
        assert soma_cache("unpin", "best", "--json").status == 0
        assert soma_cache("pins") == (0, f"No pins in {folder}.\n", "")
        assert soma_cache("pins", "--json").out == "[]\n"
        assert first.path.exists()

    def test_a_pin_is_moved(self, store):
        first, second = keep(store, "a"), keep(store, "b")
        soma_cache("pin", "best", first.key)
        done = soma_cache("pin", "best", second.key)
        assert done.out.endswith(f"(it was on {first.key[:12]})\n")
        assert json.loads(soma_cache("pin", "best", first.key, "--json").out) == {
            "name": "best",
            "key": first.key,
            "before": second.key,
        }
        (row,) = json.loads(soma_cache("pins", "--json").out)
        assert row == {
            "name": "best",
            "key": first.key,
            "state": "kept",
            "bytes": first.nbytes,
            "what": "a output (work.Step)",
        }

    def test_what_has_nothing_to_keep_now(self, store, folder):
        gone, unknown = keep(store, "a"), keep(store, "b")
        gone.path.unlink()
        done = soma_cache("pin", "gone", gone.key)
        assert "Once it is computed again, it stays." in done.out
        soma_cache("pin", "unknown", unknown.key)
        record_path(folder, unknown.key).unlink()
        out = soma_cache("pins").out
        assert "a output (work.Step), not in the folder now\n" in out
        assert "there is no record of that key now\n" in out
        rows = json.loads(soma_cache("pins", "--json").out)
        assert [row["state"] for row in rows] == ["gone", "unknown"]

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [("", "The name of the pin is empty"), ("x" * 256, "the name of a pin is too long")],
    )
    def test_names_that_cannot_be(self, name, sentence, store):
        done = soma_cache("pin", name, keep(store, "a").key)
        assert (done.status, sentence in done.err) == (2, True)

    def test_a_pin_that_is_not_there(self, store):
        soma_cache("pin", "best", keep(store, "a").key)
        done = soma_cache("unpin", "bets")
        assert done == (2, "", "Error: There is no pin 'bets'. Did you mean 'best'?\n")

    def test_one_that_says_no_key(self, store, folder):
        keep(store, "a")
        (folder / "pins").mkdir()
        (folder / "pins" / "best").write_bytes(b"\x1b[31m" * 13)
        assert soma_cache("pins").out.splitlines()[1].split()[0] == "best"
        (row,) = json.loads(soma_cache("pins", "--json").out)
        assert (row["name"], row["key"], row["state"]) == ("best", "", "unclear")
        done = soma_cache("gc", "--max-size", "0")
        assert done.status == 1
        assert "pins/best does not say what the pin 'best' keeps" in done.err
        assert len(blobs_of(folder)) == 1
        done = soma_cache("verify")
        assert done.status == 1
        assert "pins/best" in done.out
        assert "gc removes nothing" in done.out
        assert soma_cache("unpin", "best") == (0, "unpinned best: it said no key\n", "")
        assert soma_cache("gc", "--max-size", "0").status == 0


class TestRm:
    def test_what_was_used_within_the_hour_is_left_to_gc(self, store, folder):
        kept = keep(store, "a")
        os.utime(kept.path)
        done = soma_cache("rm", kept.key, "-y")
        assert done.out.endswith("; 1 blob left to gc\n")
        assert blobs_of(folder) == [kept.path]

    def test_a_record_and_what_only_it_names_go(self, store, folder):
        first, second = keep(store, "a"), keep(store, "b", nbytes=5)
        done = soma_cache("rm", first.key[:9], second.key, "-y")
        assert done.err == ""
        assert done.out.splitlines()[0].startswith(f"removed {first.key[:12]} and 1 blob (")
        assert done.out.splitlines()[1].startswith(f"removed {second.key[:12]} (")
        assert (records_of(folder), blobs_of(folder)) == ([], [])

    def test_what_another_names_stays(self, store, folder):
        first = keep(store, "a")
        other = keep(store, "a", key="0" * 64)
        assert other.digest == first.digest
        (row,) = json.loads(soma_cache("rm", "0000", "-y", "--json").out)
        assert (row["removed"], row["blobs"], row["error"]) == (True, [], "")
        assert first.path.exists()
        (row,) = json.loads(soma_cache("rm", first.key, "-y", "--json").out)
        assert row["blobs"] == [first.digest]

    def test_it_asks(self, store, folder):
        kept = keep(store, "a")
        done = soma_cache("rm", kept.key, stdin="n\n")
        assert done.status == 1
        assert f"{kept.key[:12]}  9.8 KiB  a output (work.Step)" in done.err
        assert "Remove 1 record for good?" in done.err
        assert soma_cache("rm", kept.key).status == 1  # nobody answers
        assert kept.path.exists()
        assert soma_cache("rm", kept.key, kept.key, stdin="y\n").status == 0
        assert not kept.path.exists()

    def test_a_pinned_one_is_refused_and_the_others_go(self, store, folder):
        first, second = keep(store, "a"), keep(store, "b")
        store.pin("best", first.key)
        done = soma_cache("rm", first.key, second.key, "-y")
        assert done.status == 1
        assert "best" in done.err
        assert "soma cache unpin" in done.err
        assert done.out.startswith(f"removed {second.key[:12]}")
        assert first.path.exists()
        assert not second.path.exists()

    def test_one_that_is_not_there_and_none_goes(self, store, folder):
        kept = keep(store, "a")
        done = soma_cache("rm", kept.key, "0" * 64, "-y")
        assert (done.status, kept.path.exists()) == (2, True)

    def test_a_damaged_one_goes(self, store, folder):
        kept = keep(store, "a")
        path = record_path(folder, kept.key)
        path.unlink()
        path.write_bytes(b"no record")
        assert soma_cache("rm", kept.key, "-y").status == 0
        assert not path.exists()
