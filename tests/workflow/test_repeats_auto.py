"""Runs that are made again: those that something disturbed, and those of open decisions."""

import json
import re

PLAIN = ("snakemake", "--profile", "profiles/local")
CELLS = [f"mini/cpu/workers={n}~decode=host" for n in (0, 1)]


def test_a_disturbed_run_is_repeated_once(edited):
    run = edited.root / "results/mini/cpu/workers=1~decode=host/rep1"
    other = edited.root / "results/mini/cpu/workers=0~decode=host/rep1/outcome.json"
    outcome, kept = run / "outcome.json", other.read_text()
    text = outcome.read_text()
    assert '"other_training_jobs": 0' in text
    outcome.write_text(text.replace('"other_training_jobs": 0', '"other_training_jobs": 1'))
    told = edited.call(*PLAIN)
    assert told.returncode != 0
    assert edited.record(run.parent.name)["status"] == "invalid"
    assert edited.planned()["train_cpu"] == 1
    again = edited.call(*PLAIN)
    assert again.returncode == 0, again.stdout
    assert json.loads(outcome.read_text())["attempt"] == 2
    assert other.read_text() == kept
    assert edited.planned() == {}


def test_an_open_decision_gets_one_more_block_and_then_the_budget_is_spent(edited):
    # With one repeat, rates within a factor of 6 may be equal: nothing is decided.
    edited.study(thresholds={"noise_share": 5.0})
    edited.config(repeats="auto", auto_repeats={"most": 2, "hours": 1})
    shown = edited.call("feedrate", "plan").stdout
    assert "Planned repeats per cell: 1. While a decision is open" in shown
    assert "up to 2 per cell, planned ones included, and 1 hours in total" in shown
    done = edited.run()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("one more repeat of 2 cells") == 1
    repeats = edited.root / "results/repeats.json"
    assert json.loads(repeats.read_text()) == dict.fromkeys(CELLS, 2)
    assert all((edited.root / "results" / cell / "rep2/record.json").exists() for cell in CELLS)
    page = (edited.root / "results/overview.html").read_text()
    assert re.search(r"decision was open: <a [^>]*>2 runs</a>, ", page)
    assert edited.planned() == {}, "plain Snakemake plans the same runs"
    edited.config(repeats=None)
    assert "train_cpu" not in edited.planned()
    edited.config(repeats="auto")
    repeats.unlink()
    assert "train_cpu" not in edited.planned(), "the runs are there, and no longer asked for"
