"""Causes of failure from generated texts alone."""

import pytest
from cause_texts import HEAD, MARKED, PAGE, TRACE, confusion, table

from feedrate.jobs.causes import cause_of

GOAL = 0.98
"""Least share of the texts whose cause is found."""


def test_no_success_is_called_a_failure_and_the_rest_is_told_apart():
    counts = confusion()
    assert counts.total() >= 200
    assert {read for told, read in counts if told == "success"} == {"success"}
    assert {told for told, read in counts if read == "success"} == {"success"}
    assert sum(n for (told, read), n in counts.items() if told == read) >= GOAL * counts.total()


def test_the_page_has_the_table_of_these_texts():
    found = MARKED.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert table(confusion()) in found[0], "run python tests/unit/jobs/cause_texts.py"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"caption": "RuntimeError: CUDA out of memory"}', "unknown"),
        ("    RuntimeError: CUDA out of memory", "unknown"),
        ("Downloading data from Killed-in-Action/train.zip", "unknown"),
        ("dataset: Killed", "unknown"),
        (
            f"{TRACE}RuntimeError: CUDA out of memory\n 2%| 2/9 [00:01<1]\n 3%| 3/9 [00:02<1]",
            "device",
        ),
        (f"2%| 2/9 [00:01]\n{TRACE}MemoryError\n3%| 3/9 [00:02]\n4%| 4/9 [00:03]", "unknown"),
    ],
)
def test_quotes_names_and_handled_errors(text, name):
    assert cause_of(text.split("\n")).name.startswith(name)


def test_a_scheduler_outweighs_what_its_signal_causes():
    text = f"{HEAD}{TRACE}KeyboardInterrupt\nslurmstepd: error: *** JOB 7 ON n DUE TO TIME LIMIT"
    assert cause_of(text.split("\n")).name == "time limit"


def test_a_converged_loss_of_zero_is_no_failure():
    final = "{'train_runtime': 1.0, 'train_loss': 0.3}"
    small = "{'loss': 0.0, 'grad_norm': 0.001}"
    assert cause_of([small]).name == "unknown"
    assert cause_of([small, final]).name == "success"
    assert cause_of(["{'loss': 0.0, 'grad_norm': nan}"]).name == "NaN or zero loss"
