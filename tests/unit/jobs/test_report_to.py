"""The Trainer's integrations: those that the configuration names, and the mark of a run."""

import pytest
from training_jobs import make_spec

from feedrate.jobs.events import Note, RankEvents
from feedrate.results.conformity import disturbances


@pytest.mark.parametrize(("named", "files"), [("tensorboard", 1), ("", 0)])
def test_the_trainer_reports_to_what_the_configuration_names(start, named, files):
    job = start(make_spec(steps=2), "--report-to", named)
    assert job.wait()[0] == 0
    assert len(list(job.out.glob("trainer/runs/*/events.out.tfevents.*"))) == files


def test_a_run_with_another_integration_is_marked():
    note = Note(rank=0, about="report_to", message="mlflow")
    certain, possible = disturbances({0: RankEvents(notes=[note])})
    assert (certain, len(possible)) == ([], 1)
    assert "mlflow" in possible[0]
