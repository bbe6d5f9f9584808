"""What published rates say of cells that nobody printed."""

import msgspec
import pytest

from feedrate.cli import jobs
from feedrate.cli.advice import predictions
from feedrate.config.project import with_all_studies
from feedrate.results.params import FitSettings, PublishedFacts, prediction_settings


@pytest.fixture(scope="session")
def published(project, root):
    """Of all studies, though only others are asked for."""
    other = msgspec.structs.replace(
        project, config=msgspec.structs.replace(project.config, studies=["vit-speedups"])
    )
    return prediction_settings(with_all_studies(root, other))


def test_a_fit_that_a_faster_row_refutes_predicts_nothing(published):
    """The fit gives H100 at most 591 samples/s, but 602.1 were published."""
    a100, h100 = sorted(predictions(published))
    assert a100.startswith("No prediction for 8 x A100 80GB with decode: device: ")
    assert h100 == (
        "No prediction for 8 x H100 with decode: device: the loader model does not fit its "
        "published 2023-08 rates."
    )


def published_as(published, rates):
    """What is predicted from rates of one H100, by workers and decode path."""
    study = published.studies["bridgetower-dataloading"]
    rows = [
        PublishedFacts(
            device="h100",
            count=1,
            levels={"workers": workers, "decode": decode, "strategy": "ddp"},
            metric="samples_per_s",
            value=rate,
            edition="2030",
            headline=True,
        )
        for (workers, decode), rate in rates.items()
    ]
    changed = msgspec.structs.replace(study, published=rows)
    return [*predictions(msgspec.structs.replace(published, studies={"s": changed}))]


FOLLOWING = {(0, "reference"): 1 / 0.04, (1, "reference"): 1 / 0.03, (2, "reference"): 2 / 0.03}
"""Tc 10 ms and Td 30 ms: with two workers loading is the limit still."""


def test_a_gain_beyond_the_models_error_is_told(published):
    (line,) = published_as(published, FOLLOWING)
    assert "would reach 100 samples/s, x1.50 its best published 2030 rate (2 workers)." in line


def test_a_number_that_was_printed_tells_how_far_predictions_are_off(published):
    (line,) = published_as(published, FOLLOWING | {(2, "device"): 95.0})
    assert line.endswith("for 1 x H100 is 100 samples/s; 95 were published (+5.3%).")
    assert published_as(published, FOLLOWING | {(2, "device"): 105.0}) == []


def test_nothing_published_is_nothing_said():
    assert not [*predictions(FitSettings(studies={}))]


def test_the_command_writes_and_prints(published, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("FEEDRATE_ADVICE_LATER", raising=False)
    out = tmp_path / "predictions.txt"
    literal = repr(msgspec.to_builtins(published))
    assert jobs.run("predict-published", ["--published", literal, "--out", str(out)]) == 0
    assert out.read_text() == capsys.readouterr().out
    monkeypatch.setenv("FEEDRATE_ADVICE_LATER", "1")
    assert jobs.run("predict-published", ["--published", literal, "--out", str(out)]) == 0
    assert not capsys.readouterr().out
    assert jobs.run("predict-published", ["--published", "{'studies': 3}", "--out", str(out)]) == 1
    assert "--published" in capsys.readouterr().err
