"""``soma cache`` on folders of every kind: none, empty, ours, another version, the first format."""

from __future__ import annotations

import dataclasses
import errno
import json
import os

import pytest

from soma.plugins import reports
from soma_cache.folder import Folder
from soma_cache.survey import Survey, survey
from support.cache_cli import keep, new_store, soma_cache
from support.cache_folders import everything, records_of


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partly(Survey):
    """Of a folder of which not everything could be read."""

    unreadable: tuple[tuple[str, str], ...] = ()


COMMANDS = (
    *(["stats"], ["gc", "--max-size", "1"], ["verify"], ["pin", "a", "abcd"], ["unpin", "a"]),
    *(["pins"], ["rm", "abcd", "-y"], ["show", "abcd"]),
)


@pytest.fixture
def store(folder):
    return new_store(folder)


def test_it_is_offered_as_a_command():
    (report,) = [one for one in reports() if one.dist == "soma-cache"]
    assert "soma_commands" in report.hooks
    assert soma_cache("--help").status == 0


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_folder_that_is_not_there_is_not_made(words, folder):
    done = soma_cache(*words)
    assert not folder.exists()
    sentence = f"There is no cache in {folder} yet."
    if words[0] in ("stats", "pins"):
        assert done == (0, f"{sentence}\n", "")
    else:
        assert (done.status, done.out, done.err) == (2, "", f"Error: {sentence}\n")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_folder_of_something_else_is_left_alone(words, folder):
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    before = everything(folder)
    done = soma_cache(*words)
    assert done.status == (0 if words[0] in ("stats", "pins") else 2)
    assert "it has no format.json, so what lies there is something else" in done.out + done.err
    assert everything(folder) == before


@pytest.mark.parametrize("version", ["1", "3", '"2"', "null"])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_another_version_is_said_and_left_alone(words, version, folder):
    folder.mkdir()
    (folder / "format.json").write_text(f'{{"version": {version}}}')
    before = everything(folder)
    done = soma_cache(*words)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"Error: the cache in {folder} has format version ")
    assert "Nothing there was touched" in done.err
    for text in ("the first format", "soma cache purge-v1"):
        assert (text in done.err) == (version == "1")
    assert everything(folder) == before


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_file_in_its_place(words, folder):
    folder.write_text("x")
    assert soma_cache(*words) == (2, "", f"Error: {folder} is no folder\n")
    assert folder.read_text() == "x"


@pytest.mark.parametrize("words", [*COMMANDS, ["purge-v1"]], ids=lambda words: words[0])
def test_a_folder_in_place_of_its_format(words, folder):
    (folder / "format.json").mkdir(parents=True)
    done = soma_cache(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"Error: {folder}/format.json is a folder, so that nothing says ")


@pytest.mark.parametrize("words", [*COMMANDS, ["path"], ["purge-v1"]], ids=lambda words: words[0])
def test_where_the_working_folder_is_gone(words, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for before in (["--dir", "there"], []):
        done = soma_cache(*before, *words)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("Error: 'there' counts from the working folder, and that has ")
        monkeypatch.setenv("SOMA_CACHE_DIR", "there")


class TestOptions:
    def test_they_may_stand_before_the_command(self, store, folder, tmp_path):
        other = new_store(tmp_path / "other")
        keep(other, "a")
        assert json.loads(soma_cache("--dir", other.path, "--json", "stats").out)["records"] == 1
        assert json.loads(soma_cache("stats", "--dir", other.path, "--json").out)["records"] == 1
        assert json.loads(soma_cache("stats", "--json").out)["records"] == 0
        assert soma_cache("--dir", "nowhere", "path", "--dir", other.path).out == f"{other.path}\n"

    def test_by_itself_it_says_what_is_there(self, store):
        assert soma_cache() == soma_cache("stats")
        assert soma_cache("--json").out == soma_cache("stats", "--json").out

    def test_an_empty_name(self):
        done = soma_cache("stats", "--dir", "")
        assert (done.status, "--dir is empty" in done.err) == (2, True)

    def test_unknown_commands_and_options(self):
        assert soma_cache("cleanup").status == 2
        assert soma_cache("stats", "--nope").status == 2


class TestPath:
    def test_it_is_printed_be_it_there_or_not(self, folder):
        assert soma_cache("path") == (0, f"{folder}\n", "")
        assert json.loads(soma_cache("path", "--json").out) == {"path": str(folder), "there": False}
        new_store(folder)
        assert json.loads(soma_cache("path", "--json").out)["there"] is True
        assert not (folder / "index").exists()

    def test_a_relative_one_becomes_absolute(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert soma_cache("path", "--dir", "some/cache").out == f"{tmp_path}/some/cache\n"
        monkeypatch.setenv("HOME", str(tmp_path))
        assert soma_cache("path", "--dir", "~/c").out == f"{tmp_path}/c\n"
        monkeypatch.delenv("SOMA_CACHE_DIR")
        assert soma_cache("path").out == f"{tmp_path}/.soma/cache\n"

    def test_another_version_is_printed_and_said(self, folder):
        folder.mkdir()
        (folder / "format.json").write_text('{"version": 9}')
        done = soma_cache("path")
        assert (done.status, done.out) == (1, f"{folder}\n")
        assert "has format version 9" in done.err


class TestStats:
    def test_what_is_there(self, store, monkeypatch):
        first = keep(store, "a", nbytes=50_000, compute_ms=7_200_000.0)
        keep(store, "small", nbytes=10, compute_ms=60_000.0)
        gone = keep(store, "gone", compute_ms=125_000.0)
        gone.path.unlink()
        store.pin("best", first.key)
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "20G")
        done = soma_cache("stats")
        assert (done.status, done.err) == (0, "")
        rows = dict(line.split("  ", 1) for line in done.out.splitlines())
        said = {name: text.strip() for name, text in rows.items()}
        record_bytes = said.pop("records")
        assert record_bytes.startswith("3 (")
        assert said == {
            "folder": store.path,
            "blobs": "1 (48.9 KiB)",
            "compute banked": "2 h 01 min in 2 results",
            "compute gone": "2 min 05 s in 1 result, made again where needed",
            "pins": "1",
            "limit": "20.0 GiB (SOMA_CACHE_MAX_SIZE)",
        }

    def test_as_json(self, store, folder):
        kept = keep(store, "a", compute_ms=12.5)
        (folder / "tmp" / "otherhost-1-1").write_bytes(b"x" * 100)
        found = json.loads(soma_cache("stats", "--json").out)
        (record,) = records_of(folder)
        assert found.pop("record_bytes") == record.stat().st_size
        assert found == {
            "path": store.path,
            "there": True,
            "records": 1,
            "blobs": 1,
            "bytes": kept.nbytes,
            "pins": 0,
            "compute_ms": 12.5,
            "banked": 1,
            "recorded_ms": 12.5,
            "unfinished": 1,
            "unfinished_bytes": 100,
            "unreadable": [],
        }

    def test_what_could_not_be_read_is_said(self, store, monkeypatch):
        told = (("actions/ab\x1b", "PermissionError:\nno"), ("cas/b3/cd", "no"))
        there = survey(Folder(store.path))
        part = Partly(**dataclasses.asdict(there) | {"unreadable": told})
        monkeypatch.setattr("soma_cache.cli.stats.survey", lambda *_, **__: part)
        assert "not read        'actions/ab\\x1b': PermissionError: no, and 1 more" in (
            soma_cache("stats").out
        )
        found = json.loads(soma_cache("stats", "--json").out)["unreadable"]
        assert found == [{"name": name, "why": why} for name, why in told]

    def test_where_there_is_none_all_is_zero(self, folder):
        found = json.loads(soma_cache("stats", "--json").out)
        assert (found.pop("path"), found.pop("there")) == (str(folder), False)
        assert found.pop("unreadable") == []
        assert set(found.values()) == {0}

    def test_a_record_that_took_for_ever(self, store):
        keep(store, "a", compute_ms=1e300)
        done = soma_cache("stats")
        assert done.status == 0
        assert max(map(len, done.out.splitlines())) < 200

    def test_a_limit_that_makes_no_sense(self, store, monkeypatch):
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "much")
        done = soma_cache("stats")
        assert done.status == 0
        assert "limit           SOMA_CACHE_MAX_SIZE is a size" in done.out


class TestPurgeV1:
    def test_nothing_there(self, folder):
        done = soma_cache("purge-v1")
        assert done == (
            0,
            f"There is nothing in {folder}, and so nothing of the first format.\n",
            "",
        )
        folder.mkdir()
        assert soma_cache("purge-v1") == done

    def test_ours(self, store):
        before = everything(store.path)
        done = soma_cache("purge-v1")
        assert done.status == 0
        assert "is of format 2, and holds nothing of the first format" in done.out
        assert everything(store.path) == before

    @pytest.mark.parametrize(
        ("file", "text", "holds", "sentence"),
        [
            ("format.json", '{"version": 1}', "first format", "is of the first format, which this"),
            (
                "ab12.pkl",
                "x",
                "no format",
                "it may be a store of the first Soma, or something else",
            ),
        ],
    )
    def test_what_may_be_of_the_first_format(self, file, text, holds, sentence, tmp_path):
        folder = tmp_path / "an old one"
        folder.mkdir()
        (folder / file).write_text(text)
        before = everything(folder)
        done = soma_cache("purge-v1", "--dir", folder)
        assert (done.status, done.err) == (1, "")
        assert sentence in done.out
        assert "Nothing there was touched" in done.out
        assert done.out.endswith(f": rm -r '{folder}'\n")
        assert json.loads(soma_cache("purge-v1", "--dir", folder, "--json").out) == {
            "path": str(folder),
            "holds": holds,
        }
        assert everything(folder) == before

    @pytest.mark.parametrize("text", ['{"version": 7}', '{"version": 2, "features": ["new"]}'])
    def test_another_version_is_not_the_first(self, text, folder):
        folder.mkdir()
        (folder / "format.json").write_text(text)
        done = soma_cache("purge-v1")
        assert (done.status, done.err) == (0, "")
        assert "is of another format than the first one" in done.out
        assert "there is nothing to purge" in done.out

    @pytest.mark.parametrize("text", ['{"version": "1"}', '{"version": true}', "[]", "no", ""])
    def test_a_format_that_is_damaged_may_be_anything(self, text, folder):
        folder.mkdir()
        (folder / "format.json").write_text(text)
        done = soma_cache("purge-v1")
        assert (done.status, done.err) == (1, "")
        assert "does not say what lies there" in done.out
        assert json.loads(soma_cache("purge-v1", "--json").out)["holds"] == "unknown format"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_cannot_write_everything(encoding, store):
    kept = keep(store, "größer 🎉")
    store.pin("bést\n🎉\x1b[31m", kept.key)
    for words in (["stats"], ["pins"], ["show", kept.key], ["show", "größer"]):
        done = soma_cache(*words, encoding=encoding)
        assert (done.status, bool(done.err)) in ((0, False), (2, True))
        assert "\x1b" not in done.out + done.err


class TestReadOnly:
    """``os.access`` is what says so; a superuser may write anywhere, so it is told here."""

    @pytest.fixture
    def cannot_write(self, monkeypatch):
        monkeypatch.setattr("soma_cache.cli.places._may_write", lambda root: False)

    @pytest.mark.usefixtures("cannot_write")
    def test_looking_works_and_changes_nothing(self, store, folder):
        kept = keep(store, "a")
        store.pin("best", kept.key)
        before = everything(folder)
        for words in (["stats"], ["show", kept.key], ["verify"], ["pins"], ["path"]):
            assert soma_cache(*words).status == 0
        assert soma_cache("gc", "--max-size", "20K", "--dry-run").status == 0
        assert everything(folder) == before

    @pytest.mark.usefixtures("cannot_write")
    @pytest.mark.parametrize(
        "words",
        [["gc", "--max-size", "0"], ["pin", "a", "abcd"], ["unpin", "best"], ["rm", "abcd", "-y"]],
        ids=lambda words: words[0],
    )
    def test_changing_is_refused(self, words, store, folder):
        kept = keep(store, "a", key="abcd" * 16)
        store.pin("best", kept.key)
        before = everything(folder)
        done = soma_cache(*words)
        assert (done.status, done.out) == (1, "")
        assert f"the cache in {folder} cannot be written from here" in done.err
        assert everything(folder) == before


class TestEnds:
    def test_ctrl_c(self, store, monkeypatch):
        def pressed(*args, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr("soma_cache.cli.verify.verify_folder", pressed)
        assert soma_cache("verify").status == 130

    def test_what_the_system_refuses_is_a_sentence(self, store, folder, monkeypatch):
        def refused(*args, **options):
            raise OSError(errno.EIO, os.strerror(errno.EIO), f"{folder}/index")

        monkeypatch.setattr("soma_cache.cli.stats.survey", refused)
        done = soma_cache("stats")
        assert done == (1, "", f"Error: {folder}/index: Input/output error\n")
