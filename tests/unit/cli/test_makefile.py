"""The Makefile: what it passes to the commands, and what it does itself."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from feedrate.cli.snakemake import add_choices

ROOT = Path(__file__).resolve().parents[3]


def make(*arguments, folder=ROOT, answer=""):
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},  # without the variables of a make that runs the tests
        input=answer,
        capture_output=True,
        text=True,
        check=False,
    )


def dry_run(*arguments):
    """The words of the last command that make would run."""
    done = make("--dry-run", *arguments)
    assert done.returncode == 0
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("option", ["study", "device"])
@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("target", ["run", "plan"])
def test_several_studies_and_devices_can_be_named(target, names, option):
    said = f"{option.upper()}={' '.join(names)}"
    words = dry_run(target, said, "DATASET=own")
    handed = [word for name in names for word in (f"--{option}", name)]
    assert words[words.index(target) + 1 :] == [*handed, "--dataset", "own"]


@pytest.mark.parametrize("files", ["own.yaml", "own.yaml other.yaml"])
def test_a_target_is_not_taken_for_a_file_with_configuration(files):
    words = dry_run("run", f"CONFIG={files}", "ARGS=measure")
    parser = argparse.ArgumentParser()
    add_choices(parser)
    options, others = parser.parse_known_args(words[words.index("run") + 1 :])
    assert options.configfile == files.split()
    assert others == ["measure"]


@pytest.mark.parametrize(
    ("arguments", "answer", "deletes"),
    [
        ((), "", False),
        ((), "n\n", False),
        ((), "\n", False),
        ((), "y\n", True),
        (("YES=1",), "", True),
    ],
)
def test_clean_asks_before_it_deletes(tmp_path, arguments, answer, deletes):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("results", "config"):
        (tmp_path / name).mkdir()
    done = make("clean", *arguments, folder=tmp_path, answer=answer)
    assert (tmp_path / "results").exists() == (not deletes)
    assert (done.returncode == 0) == deletes
    assert (tmp_path / "config").exists()


def test_help_lists_every_target():
    text = (ROOT / "Makefile").read_text().replace("\\\n", "")
    targets = text[text.index(".PHONY:") :].partition("\n")[0].split()[1:]
    listed = [line.split()[0] for line in make("help").stdout.splitlines()]
    assert sorted(listed) == sorted(targets)
