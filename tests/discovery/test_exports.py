"""Names of ``soma`` that live elsewhere, and modules under second names.

The fake package stands first on the path, so it is the one that is found, installed or not.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import soma
from support.distributions import run_python, run_soma, write_distribution, write_plugin

STUDY = "soma-study"


def write_study(folder, *, body="", points="Study = soma_study.things:Study\n", version="9.1"):
    write_distribution(
        folder,
        STUDY,
        version=version,
        entry_points=f"[soma.exports]\nstudy = soma_study\n{points}",
        files={
            "soma_study/__init__.py": "runs = []\n",
            "soma_study/things.py": f"{body}\nclass Study:\n    pass\n",
            "soma_study/deep/__init__.py": "",
            "soma_study/deep/er.py": "import soma_study\nsoma_study.runs.append('er')\n",
        },
    )


def printed(code, *folders) -> list[str]:
    done = run_python(code, *folders)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NOT_INSTALLED = (
    "soma.Pbt comes from the 'soma-study' package, which is not installed. "
    'Install it with: pip install "soma-core[study]"'
)

HIDE = """
import importlib.metadata as metadata
real = metadata.distribution
def distribution(name):
    if name == "soma-study":
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.distribution = distribution
"""


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("from soma import Pbt", "Pbt"),
        ("import soma; soma.Pbt", "Pbt"),
        ("import soma.study", "study"),
        ("import soma.study.deep.er", "study"),
        ("from soma import study", "study"),
        ("from soma.study import things", "study"),
        ("import somatize.study", "study"),
        ("from somatize import Pbt", "Pbt"),
        ("import soma; hasattr(soma, 'Pbt')", "Pbt"),
    ],
)
def test_an_absent_package_is_named_with_its_install_line(statement, name):
    lines = printed(
        f"""
{HIDE}
try:
    {statement}
except ModuleNotFoundError as error:
    import soma
    assert isinstance(error, soma.MissingPackage)
    print(error, error.name)
        """
    )
    assert lines == [f"{NOT_INSTALLED.replace('Pbt', name)} soma.{name}"]


def test_an_export_is_the_objects_own_and_is_fetched_once(tmp_path):
    write_study(tmp_path)
    assert printed(
        """
        import soma
        from soma import Study
        import soma_study.things
        print(Study is soma_study.things.Study, "Study" in vars(soma))
        print("Study" in dir(soma), "study" in dir(soma), "Pbt" in dir(soma))
        """,
        tmp_path,
    ) == ["True True", "True True False"]


def test_a_package_that_does_not_import_says_why(tmp_path):
    write_study(tmp_path, body="import module_nobody_has")
    assert printed(
        """
        import soma
        try:
            from soma import Study
        except ImportError as error:
            print(type(error).__name__, type(error.__cause__).__name__)
            print(error)
        """,
        tmp_path,
    ) == [
        "BrokenPackage ModuleNotFoundError",
        (
            "soma.Study comes from soma-study 9.1, which is installed but failed to import: "
            "ModuleNotFoundError: No module named 'module_nobody_has'. "
            "See: soma plugins show soma-study"
        ),
    ]


def test_a_package_too_old_to_have_the_name_says_so(tmp_path):
    write_study(tmp_path, version="0.0.1")
    assert printed(
        """
        try:
            from soma import Pbt
        except ImportError as error:
            print(error)
        """,
        tmp_path,
    ) == [
        (
            "soma.Pbt comes from soma-study, and the installed soma-study 0.0.1 does not have it. "
            "Upgrade it with: pip install --upgrade soma-study"
        )
    ]


def test_a_package_of_exports_only_is_listed_shown_and_checked(tmp_path):
    write_study(tmp_path, body="import module_nobody_has")
    rows = {
        row["name"]: row for row in json.loads(run_soma("plugins list --json", tmp_path).stdout)
    }
    assert rows["soma-study"]["exports"] == ["Study", "study"]
    shown = run_soma("plugins show soma-study", tmp_path)
    assert shown.returncode == 0
    assert "exports      soma.Study" in shown.stdout
    assert "broken       soma.Study: BrokenPackage: soma.Study comes from" in shown.stdout
    assert "No module named 'module_nobody_has'" in shown.stdout
    checked = run_soma("plugins check soma-study", tmp_path)
    assert checked.returncode == 1
    assert "soma-study: export soma.Study: FAILED" in checked.stdout
    assert "soma-study: export soma.study: ok" in checked.stdout


def test_metadata_of_the_family_that_cannot_be_read_is_named(tmp_path):
    write_distribution(tmp_path, STUDY, entry_points="[soma]\nno equals sign\n")
    lines = printed(
        """
        import soma
        print("Study" in dir(soma))
        try:
            from soma import Study
        except soma.BrokenPackage as error:
            print(error)
        """,
        tmp_path,
    )
    assert lines[0] == "False"
    assert lines[1].startswith("soma.Study comes from soma-study, whose metadata cannot be read: ")
    assert run_soma("plugins list", tmp_path).returncode == 0


def test_a_name_that_the_installed_package_does_not_offer_says_so(tmp_path):
    write_plugin(tmp_path, "soma-worker")
    done = run_soma("coordinator", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: The command 'coordinator' comes from soma-worker, and the installed soma-worker "
        "1.0 does not have it. Upgrade it with: pip install --upgrade soma-worker\n"
    )


def test_every_name_that_dir_lists_can_be_had(tmp_path):
    write_study(tmp_path)
    assert printed(
        """
        import inspect, pydoc, soma
        inspect.getmembers(soma)
        print(len(pydoc.render_doc(soma)) > 1000)
        """,
        tmp_path,
    ) == ["True"]


def test_an_unknown_name_is_a_plain_attribute_error():
    assert printed(
        """
        import soma
        try:
            soma.Grph
        except AttributeError as error:
            print(error, error.name, error.obj is soma)
        try:
            from soma import Grph
        except ImportError as error:
            print(str(error).startswith("cannot import name 'Grph' from 'soma'"))
        print(hasattr(soma, "Grph"))
        """
    ) == ["module 'soma' has no attribute 'Grph' Grph True", "True", "False"]


def test_a_third_party_cannot_add_to_soma(tmp_path):
    write_distribution(
        tmp_path,
        "stranger",
        entry_points=(
            "[soma.exports]\nStudy = stranger:thing\nstudy = stranger\nNovel = stranger:thing\n"
        ),
        files={"stranger.py": "thing = 1\n"},
    )
    lines = printed(
        f"""
{HIDE}
import soma
for name in ("Study", "Novel"):
    try:
        print(getattr(soma, name))
    except (AttributeError, ImportError) as error:
        print(type(error).__name__)
try:
    import soma.study
except ImportError as error:
    print(type(error).__name__)
print("Novel" in dir(soma))
        """,
        tmp_path,
    )
    assert lines == ["MissingPackage", "AttributeError", "MissingPackage", "False"]


def test_damaged_metadata_of_somebody_else_does_not_reach_the_user(tmp_path):
    write_study(tmp_path)
    write_distribution(tmp_path, "damaged", entry_points="[soma.exports]\nno equals sign\n")
    assert printed("from soma import Study; print(Study.__name__)", tmp_path) == ["Study"]


class TestSecondNames:
    @pytest.mark.parametrize(
        "imports",
        [
            "import soma.study, soma_study",
            "import soma_study, soma.study",
            "from soma import study; import soma_study, soma",
        ],
    )
    def test_the_very_same_module_in_both_orders(self, imports, tmp_path):
        write_study(tmp_path)
        assert printed(
            f"""
            {imports}
            import sys
            print(soma.study is soma_study, sys.modules["soma.study"] is soma_study)
            print(soma_study.__name__, soma_study.__spec__.name, soma_study.__package__)
            """,
            tmp_path,
        ) == ["True True", "soma_study soma_study soma_study"]

    @pytest.mark.parametrize(
        "imports",
        [
            "import soma.study.deep.er; import soma_study.deep.er",
            "import soma_study.deep.er; import soma.study.deep.er",
            "import soma_study.deep; import soma.study.deep.er; import soma_study.deep.er",
            "import somatize.study.deep.er; import soma.study.deep.er, soma_study.deep.er",
        ],
    )
    def test_a_submodule_is_the_same_and_runs_once(self, imports, tmp_path):
        write_study(tmp_path)
        assert printed(
            f"""
            {imports}
            import sys
            print(soma.study.deep.er is soma_study.deep.er, soma_study.runs)
            print(sys.modules["soma.study.deep.er"] is sys.modules["soma_study.deep.er"])
            print(soma_study.deep.er.__spec__.name, soma_study.deep.er.__name__)
            print(soma_study.deep.__spec__.name)
            """,
            tmp_path,
        ) == ["True ['er']", "True", "soma_study.deep.er soma_study.deep.er", "soma_study.deep"]

    def test_a_class_is_pickled_under_its_own_modules_name(self, tmp_path):
        write_study(tmp_path)
        assert printed(
            """
            import pickle, soma.study.things
            print(b"soma_study.things" in pickle.dumps(soma.study.things.Study))
            """,
            tmp_path,
        ) == ["True"]

    def test_a_submodule_that_is_not_there_is_an_ordinary_error(self, tmp_path):
        write_study(tmp_path)
        assert printed(
            """
            try:
                import soma.study.nothing
            except ModuleNotFoundError as error:
                print(error)
            """,
            tmp_path,
        ) == ["No module named 'soma_study.nothing'"]

    def test_a_module_that_fails_can_be_imported_again_when_mended(self, tmp_path):
        write_study(tmp_path)
        (tmp_path / "soma_study" / "flaky.py").write_text("import soma_study\n1 / soma_study.ok\n")
        assert printed(
            """
            import sys, soma_study
            soma_study.ok = 0
            try:
                import soma.study.flaky
            except ZeroDivisionError:
                print("soma.study.flaky" in sys.modules, "soma_study.flaky" in sys.modules)
            soma_study.ok = 1
            import soma.study.flaky
            print(soma.study.flaky is sys.modules["soma_study.flaky"])
            """,
            tmp_path,
        ) == ["False False", "True"]

    def test_reload_keeps_the_module(self, tmp_path):
        write_study(tmp_path)
        assert printed(
            """
            import importlib, soma.study.things, soma_study.things
            print(importlib.reload(soma.study.things) is soma_study.things)
            """,
            tmp_path,
        ) == ["True"]

    def test_the_finder_stands_first_once_and_answers_nothing_else(self):
        assert printed(
            """
            import importlib, sys
            import soma, somatize
            importlib.reload(soma)
            names = [type(one).__name__ if not isinstance(one, type) else one.__name__
                     for one in sys.meta_path]
            print(names[0], names.count("_AliasFinder"))
            finder = sys.meta_path[0]
            print([finder.find_spec(name) for name in
                   ("json", "soma", "soma.graph", "soma.nothing", "somatize", "soma_study")])
            """
        ) == ["_AliasFinder 1", "[None, None, None, None, None, None]"]


class TestSomatize:
    @pytest.mark.parametrize("order", ["soma, somatize", "somatize, soma"])
    def test_it_is_soma(self, order):
        assert printed(
            f"""
            import {order}, sys
            import somatize.graph, somatize.plugins.loader
            from somatize import Graph
            print(somatize is soma, Graph is soma.Graph)
            print(sys.modules["somatize.graph"] is sys.modules["soma.graph"])
            print(sys.modules["somatize.plugins.loader"] is sys.modules["soma.plugins.loader"])
            print(soma.__name__, soma.__spec__.name, soma.graph.__spec__.name)
            """
        ) == ["True True", "True", "True", "soma soma soma.graph"]

    @pytest.mark.parametrize("module", ["soma", "somatize"])
    def test_the_original_beside_it_is_told_in_one_sentence(self, module, tmp_path):
        site = tmp_path / "site-packages"
        write_distribution(site, "somatize", version="0.5.1")
        done = run_python(f"import sys; sys.path.append(b'odd'); import {module}", site)
        assert done.returncode == 0
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith(
            "soma: somatize 0.5.1, the original, is installed too and brings modules of the same "
            "names"
        )

    def test_nothing_is_told_otherwise(self, tmp_path):
        site = tmp_path / "site-packages"
        write_distribution(site, "somatized", version="1.0")
        assert run_python("import soma, somatize", site).stderr == ""

    def test_it_runs_as_a_module(self):
        done = subprocess.run(
            [sys.executable, "-m", "somatize", "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == f"soma {soma.__version__}\n"
