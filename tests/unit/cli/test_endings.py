"""Every program of ours ends in a sentence that a driver on a cluster finds in the job's log."""

import pytest

from feedrate.cli import jobs
from feedrate.core.errors import SENTENCE

ABSENT = "no/such/file"
NO_MAPPING = ("--settings", "[")
PROGRAMS = {
    "fetch_dataset": ("--name", "x", *NO_MAPPING),
    "fetch_winoground": ("--name", "x", *NO_MAPPING),
    "preprocess_dataset": ("--index", ABSENT, *NO_MAPPING),
    "parse_logs": ("--plan", ABSENT, "--device", "x"),
    "collect_results": ("--plan", ABSENT),
    "check_claims": ("--plan", ABSENT),
    "plot_figures": ("--plan", ABSENT),
    "tabulate_results": ("--plan", ABSENT),
    "write_report": ("--plans", ABSENT, "--page", ABSENT),
    "train": ("--spec", "[", "--data", ABSENT),
    "confirm_results": ("--results", ABSENT),
    "store_dataset": ("--data", ABSENT, *NO_MAPPING),
}
"""Jobs, and arguments that each refuses."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_user_can_mend_is_one_sentence_of_the_program(program, tmp_path, capsys):
    out = "--results" if {"--plan", "--plans"} & {*PROGRAMS[program]} else "--out"
    words = [*PROGRAMS[program], out, str(tmp_path / "out")]
    assert jobs.run(program, words) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"feedrate {program}: ")
    assert said.count("\n") == 1
    assert SENTENCE.findall(f"host: n1\n{said}slurmstepd: error: x\n") == [
        said.partition(": ")[2].strip()
    ]
