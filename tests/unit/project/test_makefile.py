"""What `make` hands on to the package."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("study", "said"),
    [("", []), ("a", ["--study", "a"]), ("a b", ["--study", "a", "--study", "b"])],
)
@pytest.mark.parametrize("target", ["run", "plan", "tune"])
def test_several_studies_can_be_named(target, study, said):
    command = ["make", "--dry-run", target, f"STUDY={study}", "DEVICE=cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()[-1].split()
    assert words[words.index(target) + 1 :] == [*said, "--device", "cpu"]
