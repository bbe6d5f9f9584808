"""Runs that something disturbed are made again."""

import json

PLAIN = ("snakemake", "--profile", "profiles/local")


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
