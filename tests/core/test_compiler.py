from __future__ import annotations

import json
from itertools import pairwise

import pytest

from soma import CycleError, Filter, Graph, GraphError, PlanError, SchemaMismatch
from soma.plan import Composite, Execute, Parallel, Plan, Sequence


class Pass(Filter):
    def forward(self, x, state):
        return x


class Learns(Filter):
    def fit(self, x, y=None):
        return {}

    def forward(self, x, state):
        return x


class Smooth(Pass):
    _differentiable = True


class Encoder(Filter):
    """Says that it learns and has no fit: it learns by gradient."""

    _kind = "trainable"

    def forward(self, x, state):
        return x


def graph(edges, **kinds):
    """``graph("ab bc", b=Smooth)``: the nodes that the edges name, all Pass but for those."""
    g = Graph(cache="off")
    for id_ in dict.fromkeys("".join(edges.split())):
        g.node(id_, kinds.get(id_, Pass)())
    for source, target in edges.split():
        g.edge(source, target)
    return g


def blocks(g):
    return [
        "".join(node.node for node in entry.nodes)
        for entry in g.compile().entries
        if isinstance(entry, Composite)
    ]


class TestOrder:
    def test_each_comes_after_what_it_waits_for(self):
        plan = graph("ad bd dc ce be").compile()
        assert {node.node: node.waits_for for node in plan.nodes} == {
            "a": (),
            "b": (),
            "d": ("a", "b"),
            "c": ("d",),
            "e": ("b", "c"),
        }
        place = {node.node: number for number, node in enumerate(plan.nodes)}
        assert all(place[one] < place[n.node] for n in plan.nodes for one in n.waits_for)
        assert plan.leaves == ("e",)

    def test_what_runs_side_by_side(self):
        plan = graph("sa ab sc cd bj dj jz").compile()
        shape = [
            [len(one.steps) if isinstance(one, Sequence) else 1 for one in step.branches]
            if isinstance(step, Parallel)
            else step.node
            for step in plan.root.steps
        ]
        assert shape == ["s", [2, 2], "j", "z"]
        assert plan.parallel_branches == 2
        assert graph("ab bc").compile().parallel_branches == 1

    def test_an_empty_graph_and_a_circle_are_refused(self):
        with pytest.raises(GraphError, match="The graph is empty"):
            Graph().compile()
        with pytest.raises(CycleError, match="round in a circle"):
            graph("ab bc ca").compile()

    def test_a_plan_is_compiled_anew_when_the_graph_grows(self):
        g = graph("ab")
        plan = g.compile()
        assert g.compile() is plan
        g.node("c", Pass())
        g.edge("b", "c")
        assert [node.node for node in g.compile().nodes] == ["a", "b", "c"]

    @pytest.mark.parametrize("fan_out", [False, True])
    def test_ten_thousand_nodes(self, fan_out):
        g = Graph(cache="off")
        ids = [g.node(Pass()) for _ in range(10_000)]
        for source, target in pairwise(ids):
            g.edge(ids[0] if fan_out else source, target)
        plan = g.compile()
        assert len(plan.nodes) == 10_000
        assert Plan.from_json(plan.to_json()) == plan
        assert len(g.to_text().splitlines()) == (10_001 if fan_out else 10_000)
        result = g.forward(1)
        assert result == (dict.fromkeys(ids[1:], 1) if fan_out else 1)

    def test_a_graph_of_one_node_has_no_warnings_and_a_node_without_edges_has_one(self):
        assert graph("ab").compile().diagnostics == ()
        g = graph("ab")
        g.node("alone", Pass())
        (found,) = g.compile().diagnostics
        assert (found.node, found.level) == ("alone", "warning")
        assert "'alone' has no edges" in found.message


class TestSchemas:
    def made(self, given, taken):
        g = Graph(cache="off")
        g.node("a", type("Gives", (Pass,), {"_output_schema": given})())
        g.node("b", type("Takes", (Pass,), {"_input_schema": taken})())
        g.edge("a", "b")
        return g

    @pytest.mark.parametrize(
        ("given", "taken"),
        [
            ("text", "text"),
            (None, "text"),
            ("json", None),
            ({"dtype": "float32"}, {"dtype": "<f4", "shape": (None, 3)}),
            ({"shape": (None, 3)}, {"shape": (5, 3)}),
            ({"shape": (5, 3)}, {"shape": (5, None), "dtype": "int8"}),
            ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        ],
    )
    def test_what_may_fit_compiles(self, given, taken):
        assert len(self.made(given, taken).compile().nodes) == 2

    @pytest.mark.parametrize(
        ("given", "taken", "sentence"),
        [
            ("text", "json", "it gives 'text' and 'json' is taken"),
            ("text", {"dtype": "int8"}, "it gives 'text' and {'dtype': 'int8'} is taken"),
            ({"dtype": "float32"}, {"dtype": "float64"}, "it gives float32 and float64 is taken"),
            ({"shape": (2, 3)}, {"shape": (2,)}, "it gives 2 axes"),
            ({"shape": (None, 3)}, {"shape": (None, 4)}, "axis 1 has length 3"),
            ({"dtype": "bfloat16"}, {"dtype": "float16"}, "bfloat16 and float16"),
        ],
    )
    @pytest.mark.parametrize("verb", ["compile", "fit", "forward"])
    def test_what_cannot_fit_names_both_nodes(self, given, taken, sentence, verb):
        g = self.made(given, taken)
        with pytest.raises(SchemaMismatch, match=sentence) as caught:
            g.compile() if verb == "compile" else getattr(g, verb)([1])
        assert "'a' (Gives) does not fit 'b' (Takes)" in str(caught.value)
        assert isinstance(caught.value, ValueError)


class TestBlocks:
    def test_differentiable_nodes_that_hang_together_are_one(self):
        g = graph("na ab bm mc", a=Smooth, b=Encoder, c=Smooth)
        assert blocks(g) == ["ab", "c"]
        (block, _) = (one for one in g.compile().entries if isinstance(one, Composite))
        assert block.waits_for == ("n",)

    def test_fan_outs_and_fan_ins_are_in_the_block(self):
        assert blocks(graph("ab ac bd cd", a=Smooth, b=Smooth, c=Smooth, d=Smooth)) == ["abcd"]
        assert blocks(graph("ac bc", a=Smooth, b=Smooth, c=Smooth)) == ["abc"]

    def test_what_is_fed_from_outside_as_well_is_in_the_block(self):
        assert blocks(graph("uv nv", u=Smooth, v=Smooth)) == ["uv"]
        assert blocks(graph("ab nb bc nc", a=Smooth, b=Smooth, c=Smooth)) == ["abc"]

    def test_two_blocks_do_not_wait_for_each_other(self):
        smooth = dict.fromkeys("abcd", Smooth)
        g = graph("ab cd an nd cm mb", **smooth)  # {a, b} -> n -> d, and {c, d} -> m -> b
        assert [len(one) for one in blocks(g)].count(2) == 1
        assert len(g.compile().nodes) == 6

    def test_many_blocks_take_no_longer_each(self):
        g = Graph(cache="off")
        last = g.node(Pass())
        for _ in range(3000):
            for cls in (Smooth, Smooth, Pass):
                new = g.node(cls())
                g.edge(last, new)
                last = new
        assert len(blocks(g)) == 3000

    def test_a_block_does_not_wait_for_itself(self):
        g = graph("ab an nb", a=Smooth, b=Smooth)  # a -> n -> b beside a -> b
        assert blocks(g) == ["a", "b"]
        assert [node.node for node in g.compile().nodes] == ["a", "n", "b"]

    def test_what_the_class_says_decides(self):
        def differentiable(cls):
            g = Graph(cache="off")
            g.node("a", cls())
            return isinstance(g.compile().entries[0], Composite)

        assert differentiable(Encoder)
        assert differentiable(Smooth)
        assert not differentiable(Learns)
        assert not differentiable(type("Says", (Learns,), {"_kind": "trainable"}))
        assert differentiable(type("Yes", (Learns,), {"_differentiable": True}))
        assert not differentiable(type("No", (Encoder,), {"_differentiable": False}))

    def test_nodes_that_learn_by_gradient_need_somebody_who_knows_how(self):
        g = Graph(cache="memory")
        g.node("encoder", Encoder())
        with pytest.raises(ModuleNotFoundError) as caught:
            g.fit([1.0])
        assert "'encoder': no fit(x, y) of its own" in str(caught.value)
        assert 'pip install "soma-core[torch]"' in str(caught.value)


class TestJson:
    def plan(self):
        g = graph("sa ab sc cd bj dj", a=Smooth, b=Smooth, j=Learns)
        g.node("ünï <&> 😀", Pass(), target="gpu-0", cached=True, frozen=True)
        return g.compile()

    def test_a_plan_comes_back(self):
        plan = self.plan()
        again = Plan.from_json(plan.to_json())
        assert again == plan
        assert again.nodes == plan.nodes
        assert json.loads(plan.to_json())["soma_plan_format"] == 1

    def test_a_plan_is_frozen(self):
        plan = self.plan()
        with pytest.raises(AttributeError):
            plan.root = None
        with pytest.raises(AttributeError):
            plan.nodes[0].target = "gpu"

    @pytest.mark.parametrize(
        ("spoil", "sentence"),
        [
            (lambda data: data.update(soma_plan_format=2), "soma_plan_format must be 1"),
            (lambda data: data.update(more=1), "nothing else"),
            (lambda data: data.update(root=[]), "root must be an entry"),
            (lambda data: data["root"].update(type="Row"), "no entry of type 'Row'"),
            (lambda data: data["root"].update(steps=[]), "has no nodes"),
            (lambda data: data["root"].update(steps={}), "root.steps must be a list"),
            (lambda data: data["root"]["steps"].reverse(), "comes before"),
            (lambda data: data["root"]["steps"].append(data["root"]["steps"][0]), "twice"),
            (lambda data: _first(data).update(kind="both"), "kind must be 'trainable' or"),
            (lambda data: _first(data).update(node=""), "node must be a text"),
            (lambda data: _first(data).update(cached=1), "cached must be true or false"),
            (lambda data: _first(data).update(waits_for=[1]), "waits_for must be a list of texts"),
            (lambda data: _first(data).pop("label"), "an Execute has"),
            (lambda data: data.update(diagnostics=[{}]), r"diagnostics\[0\]: a Diagnostic has"),
            (lambda data: data.update(root=_first(data)), "root must be a Sequence"),
        ],
    )
    def test_a_text_that_is_no_plan_says_where(self, spoil, sentence):
        data = json.loads(graph("ab bc").compile().to_json())
        spoil(data)
        with pytest.raises(PlanError, match=sentence):
            Plan.from_json(json.dumps(data))

    @pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000])
    def test_what_is_not_json_is_refused(self, text):
        with pytest.raises(PlanError, match="This is no plan"):
            Plan.from_json(text)

    def test_a_plan_that_nests_too_deep_is_refused(self):
        nested = {"type": "Sequence", "steps": []}
        for _ in range(50):
            nested = {"type": "Sequence", "steps": [nested]}
        data = {"soma_plan_format": 1, "root": nested, "diagnostics": []}
        with pytest.raises(PlanError, match="deeper than a plan does"):
            Plan.from_json(json.dumps(data))


def _first(data):
    return data["root"]["steps"][0]


class TestText:
    def test_a_plan_is_drawn(self):
        g = graph("sa ab sc bj cj", a=Smooth, b=Smooth, j=Learns)
        assert g.to_text() == str(g)
        assert g.to_text().splitlines() == [
            "├── s (Pass)",
            "├── parallel",
            "│   ├── block that trains as one",
            "│   │   ├── a (Smooth) ← s",
            "│   │   └── b (Smooth) ← a",
            "│   └── c (Pass) ← s",
            "└── j (Learns) learns ← b, c",
        ]

    def test_marks_and_rows_are_shown(self):
        g = graph("sa ab sc cd")
        g.node("e", Pass(), target="gpu-0", cached=True, frozen=True)
        assert g.to_text().splitlines()[:3] == [
            "├── parallel",
            "│   ├── s (Pass)",
            "│   └── e (Pass) cached frozen at gpu-0",
        ]
        assert "    ├── in a row" in g.to_text().splitlines()
        assert g.to_text().splitlines()[-1].startswith("warning: 'e' has no edges")

    def test_what_cannot_be_compiled_is_shown_as_declared(self):
        assert Graph().to_text() == "(empty graph)"
        text = graph("ab ba").to_text()
        assert text.splitlines()[:4] == ["a", "b", "a -> b", "b -> a"]
        assert "error: The edges go round in a circle" in text


def test_a_node_of_a_plan_is_plain_data():
    g = Graph(cache="off")
    g.node("a", Pass())
    assert g.compile().nodes == (Execute(node="a", label="Pass", kind="stateless"),)
