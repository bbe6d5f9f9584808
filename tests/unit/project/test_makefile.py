"""What `make` hands on to the package."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def dry_run(*arguments):
    """The words of the last command that make would run."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},  # without what a make that runs the tests hands on
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("option", ["study", "device"])
@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("target", ["run", "plan", "tune"])
def test_several_studies_and_devices_can_be_named(target, names, option):
    said = f"{option.upper()}={' '.join(names)}"
    words = dry_run(target, said, "DATASET=own")
    handed = [word for name in names for word in (f"--{option}", name)]
    assert words[words.index(target) + 1 :] == [*handed, "--dataset", "own"]


def test_two_sets_of_results_are_compared():
    words = dry_run("compare", "OLD=../before", "NEW=results", "ARGS=--noise 0.05")
    assert words[words.index("compare") :] == ["compare", "../before", "results", "--noise", "0.05"]
