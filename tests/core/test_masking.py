# ruff: noqa: S105, S106  # secrets, made up
from __future__ import annotations

import functools
import json
import re
import sys
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from soma import Filter, Graph, InvalidFilter
from soma.identity import identify
from soma.masking.argv import masked_argv
from soma.masking.declared import arguments_of
from soma.masking.mask import HIDDEN, Mask
from soma.masking.texts import secrets_of
from soma.plan import Plan
from soma.tracking.words import OWN_WORDS

TOKEN = "sk-Zq'9\"x\\y\nü\ud800!"


class Fetch(Filter):
    _secret = ("token",)

    def __init__(self, token, page=2, note=None):
        self.token = token
        self.page = page
        self.note = note

    def forward(self, x, state):
        return x


class Deeper(Fetch):
    _secret = ("password",)

    def __init__(self, token, password):
        super().__init__(token)
        self._password = password


class Duck:
    _secret = ("key",)

    def __init__(self, key, url):
        self.key = key
        self.url = url
        self._cache = "not shown"

    def forward(self, x, state):
        return x


class Slots:
    __slots__ = ("__hidden", "empty", "key", "url")
    _secret = ("key", "hidden")

    def __init__(self, key, hidden, url):
        self.key = key
        self.__hidden = hidden
        self.url = url

    def forward(self, x, state):
        return x


class MoreSlots(Slots):
    def __init__(self):
        super().__init__("the key", "the hidden one", "http://a")
        self.more = 3


class TestArguments:
    def test_what_is_secret_is_hidden_and_the_rest_is_there(self):
        assert arguments_of(Fetch("abc-123", page=3)) == {"token": HIDDEN, "page": 3, "note": None}

    def test_a_short_one_and_a_none_are_hidden_as_well(self):
        assert arguments_of(Fetch("a"))["token"] == HIDDEN
        assert arguments_of(Fetch(None))["token"] == HIDDEN

    def test_base_classes_count(self):
        made = Deeper("abc-123", "hunter2!")
        assert arguments_of(made) == {"token": HIDDEN, "password": HIDDEN}
        assert {"abc-123", "hunter2!"} <= secrets_of(made)

    def test_the_present_value_is_shown(self):
        made = Fetch("abc-123")
        made.page = 7
        assert arguments_of(made)["page"] == 7

    def test_duck_typed(self):
        assert arguments_of(Duck("abc-123", "http://a")) == {"key": HIDDEN, "url": "http://a"}
        assert "abc-123" in secrets_of(Duck("abc-123", "http://a"))

    def test_slots(self):
        made = MoreSlots()
        assert arguments_of(made) == {"key": HIDDEN, "url": "http://a", "more": 3}
        assert {"the key", "the hidden one"} <= secrets_of(made)
        assert arguments_of(Slots("k", "h", "u")) == {"key": HIDDEN, "url": "u"}

    def test_a_dataclass_with_slots(self):
        @dataclass(slots=True)
        class Data:
            token: str
            page: int = 1

            def forward(self, x, state):
                return x

        Data._secret = ("token",)
        assert arguments_of(Data("abc-123")) == {"token": HIDDEN, "page": 1}
        assert secrets_of(Data("abc-123")) == {"abc-123"}

    def test_partials(self):
        def fetch(x, token, page):
            return x

        bound = functools.partial(fetch, token="abc-123", page=2)
        assert arguments_of(bound) == {"token": "abc-123", "page": 2}
        fetch._secret = ("token",)
        assert arguments_of(bound) == {"token": HIDDEN, "page": 2}
        assert secrets_of(bound) == {"abc-123"}

    def test_a_class_may_learn_of_it_late(self):
        class Late(Fetch):
            pass

        made = Late("abc-123", note="hunter2!")
        assert arguments_of(made)["note"] == "hunter2!"
        Late._secret = ("note",)
        assert arguments_of(made) == {"token": HIDDEN, "page": 2, "note": HIDDEN}
        assert "hunter2!" in secrets_of(made)

    def test_an_object_may_name_more(self):
        made = Fetch("abc-123", note="hunter2!")
        made._secret = ("note",)
        assert arguments_of(made) == {"token": HIDDEN, "page": 2, "note": HIDDEN}
        assert {"abc-123", "hunter2!"} <= secrets_of(made)

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (1.5, 1.5),
            (True, True),
            ("x" * 201, "x" * 200 + "…"),
            ([1, "a", None], [1, "a", None]),
            ((1, 2), [1, 2]),
            ([[1]], "<list of 1>"),
            (list(range(21)), "<list of 21>"),
            ({"a": 1}, "<dict of 1>"),
            (b"abc", "<bytes of 3>"),
            (Duck, "<type>"),
            (object(), "<object>"),
        ],
    )
    def test_how_values_are_written(self, value, written):
        assert arguments_of(Fetch("t", note=value))["note"] == written


class TestChecks:
    def refused(self, node, match):
        with pytest.raises(InvalidFilter, match=match):
            Graph().node("a", node)

    def test_a_misspelt_name_is_refused_with_a_suggestion(self):
        class Wrong(Filter):
            _secret = ("tokn",)

            def __init__(self, token):
                self.token = token

            def forward(self, x, state):
                return x

        self.refused(Wrong("abc"), r"Wrong\._secret names 'tokn'.*Did you mean 'token'\?")

    def test_a_text_is_no_tuple(self):
        class Wrong(Fetch):
            _secret = "token"  # the fault

        self.refused(Wrong("abc"), r'Wrong\._secret is str and must be a tuple.*\("token",\)')

        class Below(Wrong):
            _secret = ("token",)

        self.refused(Below("abc"), r"Wrong\._secret is str")

    @pytest.mark.parametrize("stated", [None, 3, {"token"}, (3,), [None]])
    def test_what_is_no_tuple_of_names(self, stated):
        self.refused(type("Wrong", (Fetch,), {"_secret": stated})("abc"), r"must be a tuple")

    def test_attributes_and_any_keywords_are_names_as_well(self):
        class Private:
            _secret = ("key",)

            def __init__(self):
                self._key = "abc-123"

            def forward(self, x, state):
                return x

        class Anything(Filter):
            _secret = ("whatever",)

            def __init__(self, **settings):
                pass

            def forward(self, x, state):
                return x

        graph = Graph()
        graph.node(Private())
        graph.node(Anything(whatever="hunter2!"))
        assert secrets_of(Private()) == {"abc-123"}
        assert secrets_of(Anything(whatever="hunter2!")) >= {"hunter2!"}

    def test_it_is_no_part_of_what_a_node_is(self):
        def make(**attributes):
            space = {"__module__": __name__, "__qualname__": "Same", **attributes}
            return type("Same", (Fetch,), {**space, "forward": lambda self, x, state: x})

        plain, secret = make(), make(_secret=("page",))
        assert identify(plain("abc")) == identify(secret("abc"))
        keys = []
        for cls in (plain, secret):
            graph = Graph(cache="memory")
            graph.node("a", cls("abc"))
            graph.on_event(lambda event: keys.append(event["key"]) if "key" in event else None)
            graph.forward(1)
        assert len(keys) == 2
        assert keys[0] == keys[1]


class TestSecrets:
    def test_in_what_a_filter_holds(self):
        class Holder(Filter):
            def __init__(self, **parts):
                self.parts = parts
                self.inner = [parts["a"]]
                self.one = parts["b"]

            def forward(self, x, state):
                return x

        held = {"a": Fetch("first one"), "b": Fetch("second one"), "c": Fetch("third one")}
        assert {"first one", "second one", "third one"} <= secrets_of(Holder(**held))

    def test_in_itself(self):
        made = Fetch("abc-123")
        made.note = made
        other = Fetch("hunter2!", note=made)
        made.page = other
        assert {"abc-123", "hunter2!"} <= secrets_of(made)

    def test_containers_and_bytes_and_numbers(self):
        class Any(Fetch):
            pass

        rounds = ["inside!!"]
        rounds.append(rounds)
        for value, texts in (
            ({"Authorization": "Bearer abc"}, {"Bearer abc"}),
            (["one thing", ("other", {"third": "thing"})], {"one thing", "other", "thing"}),
            (b"ab\xffcd", {"ab\xffcd", r"ab\xffcd", "6162ff6364"}),
            ("häuser".encode(), {"häuser"}),
            (12345678, {"12345678"}),
            (rounds, {"inside!!"}),
        ):
            assert texts <= secrets_of(Any(value)), value

    def test_what_cannot_be_shown_is_no_trouble(self):
        class Shy:
            def __str__(self):
                raise RuntimeError("no")

        for value in (Shy(), 10**5000, True, None, ""):
            assert {one for one in secrets_of(Fetch(value)) if "NotPlain" not in one} <= {""}

    def test_mangled_names(self):
        class _Odd(Filter):
            _secret = ("token",)

            def __init__(self, token):
                self.__token = [token]

            def forward(self, x, state):
                return x

        made = _Odd(object())
        made._Odd__token = "changed later"
        assert "changed later" in secrets_of(made)

    def test_a_property_is_not_asked(self):
        class Costly(Duck):
            _secret = ("key", "url")

            def __init__(self):
                pass

            @property
            def key(self):
                raise AssertionError

            @property
            def url(self):
                raise AssertionError

        assert secrets_of(Costly()) == set()


def texts_in(value):
    """Yield every text in plain data, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from texts_in(name)
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)


SECRET_TEXTS = st.text(st.characters(codec=None), min_size=4, max_size=12)
PIECES = st.sampled_from(["*", "**", "***", "a", "ab", "…", "...", " ", "\\", "'", '"'])


class TestMask:
    def test_without_secrets_the_very_same_comes_back(self):
        data = {"a": [1]}
        assert Mask()(data) is data
        assert Mask(["abc"])(data) is data  # too short to be looked for
        assert not Mask()
        assert Mask(["abcd"])

    def test_names_and_values_at_every_depth(self):
        mask = Mask(["abcd"])
        assert mask({"x abcd": ["abcd", ("abcdabcd", 1, None)], "n": 2.5}) == {
            "x ***": ["***", ["******", 1, None]],
            "n": 2.5,
        }

    def test_the_longest_first(self):
        assert Mask(["abcd", "abcdef"])("abcdef abcd") == "*** ***"

    def test_later_ones_count_from_then_on(self):
        mask = Mask(["abcd"])
        mask.add(["efgh"])
        assert mask("abcd efgh") == "*** ***"

    def test_what_stands_in_every_record_stays_whole(self):
        mask = Mask(["node"])
        mask.keep(["node_id", "node"])
        data = {"node_id": "node_1", "node": "a node", "nodes": "node"}
        assert mask(data) == {"node_id": "***_1", "node": "a ***", "***s": "node"}

    @pytest.mark.parametrize(
        ("text", "masked"),
        [
            ("not 'sk-1234...' (str)", "not '***...' (str)"),
            ("Bearer sk-12345…", "Bearer ***…"),
            ("sk-1...", "***..."),
            ("sk-...", "sk-..."),
            ("sk-1 is not it...", "sk-1 is not it..."),
            ("sk-12... and sk-123456789", "***... and ***"),
            ("sk-1sk-12...", "sk-1***..."),
        ],
    )
    def test_the_start_of_one_where_a_text_is_cut(self, text, masked):
        assert Mask(["sk-123456789"])(text) == masked

    def test_as_messages_show_it(self):
        made = Fetch(TOKEN)
        mask = Mask(secrets_of(made))
        shown = {
            "as it is": TOKEN,
            "repr": repr(TOKEN),
            "in a longer text": repr(f"it's {TOKEN}"),
            "ascii": ascii(TOKEN),
            "json": json.dumps({"token": TOKEN}),
            "json, not ASCII": json.dumps(TOKEN, ensure_ascii=False),
            "printable": TOKEN.encode("utf-8", "backslashreplace").decode(),
            "path": urllib.parse.quote(TOKEN, errors="surrogatepass"),
            "query": urllib.parse.urlencode({"token": TOKEN}, errors="surrogatepass"),
            "KeyError": str(KeyError(TOKEN)),
        }
        for how, text in shown.items():
            masked = mask(f"before {text} after")
            assert "Zq" not in masked, how
            assert masked.startswith("before "), how
            assert masked.endswith(" after"), how

    def test_a_single_quote_in_a_longer_text(self):
        mask = Mask(secrets_of(Fetch("it's mine")))
        assert "mine" not in mask(repr('"it\'s mine" was "refused"'))

    def test_one_that_was_read_from_a_file_with_its_newline(self):
        mask = Mask(secrets_of(Fetch("  hunter2!\n")))
        assert mask("401: hunter2!") == "401: ***"

    @given(
        st.lists(SECRET_TEXTS | st.lists(PIECES, min_size=4).map("".join), min_size=1, max_size=3),
        st.lists(st.lists(st.integers(0, 2) | PIECES, max_size=6), min_size=4, max_size=4),
    )
    @settings(max_examples=150, deadline=None)
    def test_no_secret_is_left_in_anything(self, secrets, made):
        one, two, three, four = (
            "".join(
                part if isinstance(part, str) else secrets[part % len(secrets)] for part in text
            )
            for text in made
        )
        for text in texts_in(Mask(secrets)({one: [two, {three: (four, 1)}]})):
            assert not [secret for secret in secrets if len(secret) >= 4 and secret in text]


@pytest.mark.parametrize(
    ("argv", "written"),
    [
        (["--token", "abc", "x"], ["--token", "***", "x"]),
        (["--token=abc", "--lr=0.1"], ["--token=***", "--lr=0.1"]),
        (["--api-key", "abc"], ["--api-key", "***"]),
        (["--api_key=a=b"], ["--api_key=***"]),
        (["--apiKey", "abc", "--APIKEY", "abc"], ["--apiKey", "***", "--APIKEY", "***"]),
        (["--accessToken", "abc"], ["--accessToken", "***"]),
        (["--pwd", "abc"], ["--pwd", "***"]),
        (["--password", "-begins-so"], ["--password", "***"]),
        (["--with-token", "--password", "abc"], ["--with-token", "***", "***"]),
        (["api.token=abc", "+db.password=abc"], ["api.token=***", "+db.password=***"]),
        (["AWS_SECRET_ACCESS_KEY=abc"], ["AWS_SECRET_ACCESS_KEY=***"]),
        (["--max-tokens", "5", "--key", "a", "--monkey=b"],) * 2,
        (["token", "abc", "my-secret-project/train.py"],) * 2,
        (["--token"], ["--token"]),
        ([], []),
    ],
)
def test_command_lines(argv, written):
    assert masked_argv(argv) == written


def record_of(run):
    """Return what is in the files of a run: text by name, and everything that was parsed."""
    texts = {path.name: path.read_text(encoding="ascii") for path in run.path.iterdir()}
    assert set(texts) <= {
        "manifest.json",
        "status.json",
        "graph.json",
        "events.jsonl",
        "metrics.jsonl",
    }
    return texts, {
        name: [json.loads(line) for line in text.splitlines()] for name, text in texts.items()
    }


class Leak(Filter):
    """Says its secret wherever it can."""

    _secret = ("token",)

    def __init__(self, token, note):
        self.token = token
        self.note = note

    def forward(self, x, state):
        one = self.token
        raise ValueError(f"{one} {one!r} {one!a} {json.dumps(one)} '\"{one}\"' {[one * 2]!r}")


def run_that_leaks(root, secret, monkeypatch=None):
    graph = Graph(cache="off")
    graph.node(f"n{secret}", Leak(secret, [secret, f"a {secret}"]))
    graph.node("plain", lambda x: x)
    graph.edge("plain", f"n{secret}")
    tags, params = [f"t{secret}"], {secret: [f"{secret}{secret}"], "a": secret}
    with (
        suppress(ValueError),
        graph.track_run(f"run {secret}", root, tags=tags, params=params) as run,
    ):
        run.log(f"loss {secret}", 0.5, step=1)
        graph.emit(f"mine {secret}", **{f"f{secret}": {secret: [secret]}})
        graph.forward(1)
    return run


STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class TestRuns:
    @pytest.fixture(autouse=True)
    def _patch_argv(self, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1"])

    @given(
        secret=SECRET_TEXTS
        | st.text(st.sampled_from("*ab\"'\\\n\tü\ud800…. "), min_size=4, max_size=9)
    )
    @settings(max_examples=40, deadline=None)
    def test_no_secret_is_in_any_file(self, secret, tmp_path_factory):
        assume(not set(secret) <= set("0123456789abcdef.:-+TZ"))  # ids and times have such
        assume(secret not in OWN_WORDS)  # which every record has
        root = tmp_path_factory.getbasetemp() / "secrets"
        _, other = record_of(run_that_leaks(root, "<§Qx>"))
        assume(not any(secret in text for text in texts_in(other)))
        sys.argv[1:] = [secret, f"--x={secret}"]
        texts, parsed = record_of(run_that_leaks(root, secret))
        for name, records in parsed.items():
            assert not [text for text in texts_in(records) if secret in text], name
            raw = STRING.findall(texts[name])
            assert not [token for token in raw if json.dumps(secret)[1:-1] in token], name
        (started,) = [one for one in parsed["events.jsonl"] if one["event_type"] == "RunStarted"]
        assert started["phase"] == "forward"
        assert parsed["status.json"][0]["state"] == "failed"

    def test_where_it_was_put(self, tmp_path):
        sys.argv[1:] = ["--x", "sk-12345", "--token", "other"]
        _, parsed = record_of(run_that_leaks(tmp_path, "sk-12345"))
        (manifest,) = parsed["manifest.json"]
        assert manifest["name"] == "run ***"
        assert manifest["tags"] == ["t***"]
        assert manifest["params"] == {"***": ["******"], "a": "***"}
        assert manifest["argv"] == ["train.py", "--x", "***", "--token", "***"]
        assert manifest["graph"]["node_ids"] == ["n***", "plain"]
        (graph,) = parsed["graph.json"]
        assert graph["nodes"][0]["id"] == "n***"
        assert graph["nodes"][0]["params"] == {"token": "***", "note": ["***", "a ***"]}
        assert graph["edges"] == [["plain", "n***"]]
        assert parsed["status.json"][0]["error"].startswith("ValueError: *** '***' '***' \"***\"")
        (metric,) = parsed["metrics.jsonl"]
        assert (metric["name"], metric["value"], metric["step"]) == ("loss ***", 0.5, 1)
        events = parsed["events.jsonl"]
        assert events[1]["event_type"] == "mine ***"
        assert events[1]["f***"] == {"***": ["***"]}

    def test_one_that_has_changed(self, tmp_path):
        class Rotates(Fetch):
            def forward(self, x, state):
                if x == "rotate":
                    self.token = "third-one"
                raise ValueError(f"bad {self.token}")

        made = Rotates("first-one")
        graph = Graph(cache="off")
        graph.node("a", made)
        said = []
        with graph.track_run("a", tmp_path) as run:
            for token, x in (("first-one", 1), ("second-one", 1), ("second-one", "rotate")):
                made.token = token
                with pytest.raises(ValueError, match="bad"):
                    graph.forward(x)
            made.token = "fourth-one"
            run.finish(ValueError("fourth-one and first-one"))
        texts, parsed = record_of(run)
        said = [one["error"] for one in parsed["events.jsonl"] if "error" in one]
        assert said == ["ValueError: bad ***"] * 6
        assert parsed["status.json"][0]["error"] == "ValueError: *** and ***"
        assert "-one" not in "".join(texts.values())

    def test_in_what_describes_an_output(self, tmp_path):
        class Told(Fetch):
            def forward(self, x, state):
                return type(self.token, (), {})()

        graph = Graph(cache="off")
        graph.node("a", Told("HunterTwo"))
        with graph.track_run("a", tmp_path) as run:
            graph.forward(1)
        _, parsed = record_of(run)
        (done,) = [e for e in parsed["events.jsonl"] if e["event_type"] == "NodeCompleted"]
        assert done["output_summary"] == "***"

    def test_the_start_of_a_long_one(self, tmp_path):
        token = "eyJhbGciOi" + "".join(f"{number:04x}" for number in range(0x1000, 0x1080))
        graph = Graph(cache="off")
        graph.node("a", Fetch(token, note=f"{'x' * 150} {token}"))
        with graph.track_run("a", tmp_path) as run:
            run.finish(ValueError(f"not {token[:56]}... (str)"))
        texts, parsed = record_of(run)
        assert parsed["graph.json"][0]["nodes"][0]["params"]["note"] == f"{'x' * 150} ***…"
        assert parsed["status.json"][0]["error"] == "ValueError: not ***... (str)"
        assert "eyJh" not in "".join(texts.values())


class Learns(Filter):
    def fit(self, x, y=None):
        return x

    def forward(self, x, state):
        return x + 1


def run_of_everything(root, secret=None):
    """Track a graph that has a node of every kind, and events of many."""
    graph = Graph(cache="memory")
    graph.node("sec", Fetch(secret))
    graph.node("up", Learns(), target="local")
    graph.edge("sec", "up")
    graph.branch("fork", lambda x: "odd", {"odd": Learns(), "default": lambda x: x})
    graph.edge("up", "fork")
    graph.loop("round", Learns(), False, 2)
    graph.edge("fork", "round")

    def broken(x):
        raise ValueError("no")

    with graph.track_run("all", root, params={"lr": 1}) as run:
        graph.fit(1)
        graph.fit(1)
        graph.forward(1)
        graph.node("bad", broken)
        graph.edge("round", "bad")
        with pytest.raises(ValueError, match="no"):
            graph.forward(1)
        run.log("loss", 0.5, step=1)
        graph.emit("EpochCompleted", run_id="r", epoch=1, metrics={"f1": 0.5})
        graph.emit("NodeProgress", run_id="r", node_id="sec", progress=0.5)
    return run


CHOICES = {"event_type", "phase", "what", "kind", "outcome", "tier", "type", "state"}


def shape_of(value, name=""):
    """Return names, and the values that are one of few; of the user's own data nothing."""
    if isinstance(value, dict):
        if name in ("params", "versions"):
            return {}
        return {key: shape_of(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [shape_of(one, name) for one in value if isinstance(one, dict)]
    return value if name in CHOICES else type(value).__name__


def words_in(value):
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            if name in CHOICES and isinstance(one, str):
                yield one
            if name not in ("params", "versions"):
                yield from words_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from words_in(one)


def test_a_secret_like_a_word_of_the_record_breaks_no_record(tmp_path):
    _, plain = record_of(run_of_everything(tmp_path))
    wanted = shape_of(plain)
    words = {one for one in words_in(list(plain.values())) if len(one) >= 4}
    assert {"node_id", "NodeCacheHit", "metric", "value", "Sequence", "trainable"} <= words
    parts = ["Node", "node_", "_id", "Comp", "true", "null", "tive", "able", "2", "20", ".json"]
    for secrets in (sorted(words), parts, "event_type", "metric", "value"):
        run = run_of_everything(tmp_path, secrets)
        _, parsed = record_of(run)
        assert shape_of(parsed) == wanted, secrets
        Plan.from_json(json.dumps(parsed["graph.json"][0]["plan"]))
        (manifest,) = parsed["manifest.json"]
        assert manifest["run_id"] == run.path.name
        assert [one["seq"] for one in parsed["events.jsonl"]] == list(
            range(1, len(parsed["events.jsonl"]) + 1)
        )
