"""The Trainer's integrations: those that the configuration names, and the mark of a run."""

import pytest
from training_jobs import make_spec

from feedrate.core import variables
from feedrate.jobs.events import Note, RankEvents
from feedrate.jobs.trainer import shared_arguments
from feedrate.results.conformity import disturbances


@pytest.mark.parametrize(
    ("named", "given"),
    [(None, ["tensorboard"]), ("", []), ("tensorboard,mlflow", ["tensorboard", "mlflow"])],
)
def test_the_trainer_reports_to_what_the_configuration_names(tmp_path, monkeypatch, named, given):
    monkeypatch.delenv(variables.REPORT_TO, raising=False)
    if named is not None:
        monkeypatch.setenv(variables.REPORT_TO, named)
    assert shared_arguments(make_spec(), tmp_path)["report_to"] == given


def test_a_run_with_another_integration_is_marked():
    note = Note(rank=0, about="report_to", message="mlflow")
    certain, possible = disturbances({0: RankEvents(notes=[note])})
    assert (certain, len(possible)) == ([], 1)
    assert "mlflow" in possible[0]
