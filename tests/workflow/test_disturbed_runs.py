"""Runs that something disturbed are made again."""

import json

PLAIN = ("snakemake", "--profile", "profiles/local")


def test_a_disturbed_run_is_repeated_once(edited):
    cells = edited.root / "runs/mini/cpu"
    (outcome,) = cells.glob("workers=1~decode=host/rep1-*/outcome.json")
    text = outcome.read_text()
    assert '"other_training_jobs": 0' in text
    outcome.write_text(text.replace('"other_training_jobs": 0', '"other_training_jobs": 1'))
    told = edited.call(*PLAIN)
    assert told.returncode != 0
    assert edited.record("workers=1~decode=host")["status"] == "invalid"
    plan = edited.root / ".snakemake/feedrate/mini.json"
    before = plan.read_text()
    edited.call(*PLAIN, "--report", "workflow.html")
    assert plan.read_text() == before, "Snakemake's report plans no further attempt"
    assert edited.planned()["train_cpu"] == 1
    again = edited.call(*PLAIN)
    assert again.returncode == 0, again.stdout
    second = outcome.parent.with_name(f"{outcome.parent.name}-2") / "outcome.json"
    assert json.loads(second.read_text())["attempt"] == 2
    assert edited.record("workers=1~decode=host")["provenance"]["attempt"] == 2
    assert len(list(cells.glob("workers=0~decode=host/rep*/"))) == 1, "the other is not repeated"
    assert edited.planned() == {}
