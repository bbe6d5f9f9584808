"""What published rates say of cells that nobody printed."""

import msgspec
import pytest

from feedrate.cli import jobs
from feedrate.cli.advice import predictions
from feedrate.config.project import with_all_studies
from feedrate.results.settings import FitSettings, PublishedFacts, prediction_settings


@pytest.fixture(scope="session")
def published(project, root):
    """Of all studies, though only others are asked for."""
    other = msgspec.structs.replace(
        project, config=msgspec.structs.replace(project.config, studies=["vit-speedups"])
    )
    return msgspec.convert(prediction_settings(with_all_studies(root, other)), FitSettings)


def test_devices_without_a_number_are_predicted(published):
    lines = [*predictions(published)]
    told = [line for line in lines if line.startswith("Prediction, not a measurement: ")]
    assert len(told) == 2
    h100 = next(line for line in told if "8 x H100 " in line)
    assert "with decode: device would reach 591 samples/s, no more than its best published" in h100
    assert "2023-08 rate (2 workers), where training no longer waits for data." in h100
    assert h100.endswith("The model fits that device's published rates within 1.9%.")
    assert "Gaudi" not in "".join(told)


def test_a_number_that_was_printed_tells_how_far_predictions_are_off(published):
    *_, last = predictions(published)
    assert last == (
        "The same prediction for 8 x Gaudi2 is 758 samples/s; 847.7 were published (-10.6%)."
    )


def test_a_gain_beyond_the_models_error_is_told(published):
    study = published.studies["bridgetower-dataloading"]
    # Tc 10 ms and Td 30 ms: with two workers loading is the limit still.
    rates = {0: 1 / 0.04, 1: 1 / 0.03, 2: 2 / 0.03}
    rows = [
        PublishedFacts(
            device="h100",
            count=1,
            levels={"workers": workers, "decode": "reference", "strategy": "ddp"},
            metric="samples_per_s",
            value=rate,
            edition="2030",
            headline=True,
        )
        for workers, rate in rates.items()
    ]
    changed = msgspec.structs.replace(study, published=rows)
    (line,) = predictions(msgspec.structs.replace(published, studies={"s": changed}))
    assert "would reach 100 samples/s, x1.50 its best published 2030 rate (2 workers)." in line


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
