"""A notebook is executed by a real kernel, and its cells show what their last lines are."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import nbclient
import nbformat
import pytest

CELLS = {
    "graph": """
from soma import Filter, Graph, runs

class Center(Filter):
    def fit(self, x, y=None):
        return {"mean": sum(x) / len(x)}
    def forward(self, x, state):
        return [value - state["mean"] for value in x]

def halved(x):
    return [value / 2 for value in x]

g = Graph.somatize(Center() >> halved, cache="memory")
g""",
    "plan": "g.compile()",
    "tracked": """
with g.track_run("from a notebook", params={"rows": 3}) as tracked:
    g.fit([1.0, 2.0, 6.0])
    g.forward([3.0])
tracked""",
    "fitted": "g",
    "report": "g.last_run",
    "state": "g.state()",
    "run": "runs()[0]",
    "large": """
big = Graph()
for number in range(200):
    big.node(f"n{number}", halved)
big""",
    "broken": """
circle = Graph()
a, b = circle.node("a<", halved), circle.node("b", halved)
circle.edge(a, b)
circle.edge(b, a)
circle""",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return name of the cell -> the forms in which a notebook has its result."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in CELLS.values()]
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    results = [
        next((dict(one.data) for one in cell.outputs if one.output_type == "execute_result"), {})
        for cell in book.cells
    ]
    return dict(zip(CELLS, results, strict=True))


def texts(svg: str) -> list[str]:
    found = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314  # our own
    return ["".join(one.itertext()) for one in found]


@pytest.mark.e2e
class TestNotebook:
    @pytest.mark.parametrize("name", ["graph", "plan"])
    def test_a_graph_and_its_plan_are_pictures(self, shown, name):
        words = texts(shown[name]["text/html"])
        assert {"center", "halved"} <= set(words)
        assert not any("computed" in one for one in words)

    def test_after_a_run_the_picture_says_what_was_done(self, shown):
        words = " ".join(texts(shown["fitted"]["text/html"]))
        assert re.search(r"computed, \d+", words)  # center in the forward
        assert "forward, " in words

    def test_a_report_is_a_table(self, shown):
        page = shown["report"]["text/html"]
        assert re.search(r"<pre>forward, .*", page)
        assert re.search(r"^center +computed ", page, re.MULTILINE)
        assert re.search(r"^halved +computed ", page, re.MULTILINE)

    def test_states_are_a_table_and_a_dict(self, shown):
        assert shown["state"]["text/plain"] == "{'center': {'mean': 3.0}}"
        cells = re.findall(r"<td[^>]*>(.*?)</td>", shown["state"]["text/html"])
        assert cells == ["center", "mean: 3.0"]

    @pytest.mark.parametrize("name", ["run", "tracked"])
    def test_a_run_is_a_table(self, shown, name):
        page = shown[name]["text/html"]
        assert "from a notebook" in page
        assert "completed" in page

    def test_what_is_too_large_or_wrong_is_text(self, shown):
        assert shown["large"]["text/html"].count("(halved)") == 200
        assert "a&lt; -&gt; b" in shown["broken"]["text/html"]
        assert "error: " in shown["broken"]["text/html"]
