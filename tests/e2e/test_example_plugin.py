"""plugins/soma-example, really installed into an empty folder, as a stranger's package would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.distributions import run_soma, write_plugin

EXAMPLE = Path(__file__).parents[2] / "plugins" / "soma-example"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--target", str(folder), str(EXAMPLE)),
        ],
        check=True,
        timeout=300,
        capture_output=True,
    )
    return folder


def test_it_is_small():
    files = [*EXAMPLE.rglob("src/**/*.py"), *EXAMPLE.rglob("tests/*.py")]
    without_the_codec = [file for file in files if file.name not in ("reading.py", "plugin.py")]
    assert sum(len(file.read_text().splitlines()) for file in without_the_codec) < 40
    assert sum(len(file.read_text().splitlines()) for file in files) < 110


@pytest.mark.e2e
def test_it_is_listed_checked_and_its_command_runs(site):
    rows = json.loads(run_soma("plugins list --json", site).stdout)
    (row,) = [one for one in rows if one["name"] != "soma-cache"]  # which is not in that folder
    assert (row["name"], row["status"]) == ("soma-example", "ok")
    assert row["file"] == str(site / "soma_example" / "plugin.py")
    assert run_soma("plugins check soma-example", site).returncode == 0
    done = run_soma("hello --name Ada", site)
    assert done.stdout == "Hello, Ada: soma-example is at work.\n"


@pytest.mark.e2e
def test_it_goes_on_working_beside_a_broken_one(site, tmp_path):
    write_plugin(tmp_path, "broken", plugin="raise ValueError('no')\n")
    done = run_soma("hello", site, tmp_path)
    assert done.stdout == "Hello, world: soma-example is at work.\n"
    assert "left out the plugin broken 1.0" in done.stderr


@pytest.mark.e2e
def test_its_own_tests_pass_against_the_installed_package(site):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "17 passed" in done.stdout
