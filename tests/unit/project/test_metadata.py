"""README, Makefile and pyproject.toml agree on Python's versions; the console script starts."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FIRST, LAST = 11, 13
PYTHON = f"""#!{sys.executable}
import sys
if sys.argv[1] == "-m":
    sys.exit("no venv")
sys.version_info = ({{0}}, {{1}}, 0)
exec(sys.argv[2])
"""
"""A Python of another version; it makes no environment, so `make` ends after the check."""


def test_the_package_and_the_readme_name_the_same_versions():
    assert PROJECT["requires-python"] == f">=3.{FIRST},<3.{LAST + 1}"
    minors = [re.fullmatch(r".*Python :: 3\.(\d+)", line) for line in PROJECT["classifiers"]]
    assert [int(m[1]) for m in minors if m] == list(range(FIRST, LAST + 1))
    assert f"Python 3.{FIRST} to 3.{LAST}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("version", [(2, 7), (3, FIRST - 1), (3, LAST + 1), (4, 0)])
def test_make_refuses_another_python(tmp_path, version):
    assert "needs Python 3.11, 3.12 or 3.13" in make_setup(tmp_path, version)


@pytest.mark.parametrize("minor", range(FIRST, LAST + 1))
def test_make_takes_these_versions(tmp_path, minor):
    said = make_setup(tmp_path, (3, minor))
    assert "needs Python" not in said
    assert "cannot make environments" in said, "the next step was tried"


def make_setup(folder, version):
    """What `make setup` says with a Python of this version."""
    python = folder / "python"
    python.write_text(PYTHON.format(*version))
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "setup", f"PYTHON={python}", f"VENV={folder}/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_the_console_script_calls_the_command_line():
    module, _, name = PROJECT["scripts"]["feedrate"].partition(":")
    with pytest.raises(SystemExit) as ended:
        getattr(import_module(module), name)(["--help"])
    assert ended.value.code == 0


def test_the_citation_names_this_version_and_licence():
    from feedrate import __version__

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
