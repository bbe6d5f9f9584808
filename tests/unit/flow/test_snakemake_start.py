"""Snakemake as a user starts it, with a configuration or an environment that does not work."""

import os
import subprocess
from pathlib import Path

import pytest

import warm

ROOT = Path(__file__).resolve().parents[3]


FOREIGN = "sys.path[:] = [p for p in sys.path if not p.endswith('/workflow')]"
"""Hides the package, as from a Snakemake in another environment."""


def snakemake(*arguments, before="pass", exit_code=1):
    """The lines that `snakemake ARGUMENTS` in the project's root prints."""
    code = f"import sys; {before}; from snakemake.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [warm.python(), "-c", code, *arguments],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("FEEDRATE_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout
    return [line for line in done.stdout.splitlines() if not line.startswith("Using profile")]


def test_a_foreign_snakemake_says_how_to_start():
    said = snakemake("--dry-run", before=FOREIGN)
    assert not any("Traceback" in line for line in said)
    (sentence,) = [line for line in said if "make run" in line]
    assert sentence.startswith("the Python of this Snakemake lacks feedrate: start with `make run`")


def test_an_error_is_shown_however_quiet_snakemake_is(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("repeats: 1\nrepeats: 2\n")
    said = snakemake("--profile", "local", "--configfile", str(file), "--quiet", "all")
    assert said == [f"{file}, line 2: the key 'repeats' occurs twice"]


@pytest.mark.parametrize(
    ("profile", "before", "exit_code", "quoted"),
    [
        ("nonsuch", "pass", 1, ("profile directory given", "but no profile.yaml")),
        ("gaudi", FOREIGN, 2, ("argument --logger: invalid choice: 'feedrate'",)),
    ],
)
def test_an_error_before_our_code_is_read_is_explained_with_the_profiles(
    profile, before, exit_code, quoted
):
    (*_, last) = snakemake("--profile", profile, before=before, exit_code=exit_code)
    explained = (ROOT / "profiles/README.md").read_text(encoding="utf-8")
    assert all(words in last and words in explained for words in quoted), last
