"""The Trainer and the ceilings on `decode: device`, with the stand-in's pipeline on the CPU."""

import json

import msgspec
import pytest

from feedrate.devices.base import UnsupportedError
from feedrate.devices.placement import Placement
from feedrate.jobs import evaluation
from feedrate.jobs.blocks import Part
from feedrate.jobs.events import EventLog
from feedrate.jobs.train import run_job
from feedrate.jobs.worker import Options
from feedrate.loading.path import Distance
from tiny_spec import tiny_spec

pytestmark = pytest.mark.usefixtures("counted_once")

STEPS, BATCH = 4, 2
KINDS = ("live", "loader", "model")


def make_spec(decode, *, workers=0, accumulation=1, **protocol):
    return tiny_spec(
        cell=f"decode={decode}",
        levels={"decode": decode},
        loader={"decode": decode, "workers": workers, "max_tokens": 6},
        train={"batch_size": BATCH, "gradient_accumulation": accumulation},
        protocol={"steps": STEPS, "ceiling_s": 0.0, **protocol},
    )


@pytest.fixture
def run(tiny_prepared, tmp_path, media, monkeypatch):
    """Run a job where the CPU decodes as a Gaudi would; its folder and events by name."""
    monkeypatch.setattr("feedrate.loading.path.decoder_of", lambda level, kind: "gaudi")
    monkeypatch.setattr("feedrate.jobs.rounds.needs_more", lambda *_: False)  # one round

    def _run(name, spec, **options):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "spec.json").write_text(json.dumps(msgspec.to_builtins(spec)))
        log = EventLog(folder, 0)
        run_job(spec, tiny_prepared, folder, log, Placement(2, [0, 1]), Options(**options))
        lines = (folder / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return folder, {e["event"]: [o for o in events if o["event"] == e["event"]] for e in events}

    return _run


def test_a_job_decodes_on_the_device_throughout_and_says_so(run, media, monkeypatch):
    on_host, host = run("host", make_spec("host", evaluate=True))
    seen = []

    def watch(path):
        seen.append(path)
        raise AssertionError("decoded on the host")

    # Only these have pixels from the host: the distance between both, and one batch for the ceiling
    # of the model alone.
    assert 0.1 < host["data"][0]["pixel_mean_abs_diff"] < 0.6
    monkeypatch.setattr("feedrate.jobs.job_setup.distance", lambda *_: Distance(3.0, 25.0, 4.0))
    monkeypatch.setattr("feedrate.jobs.rounds.Session._model_alone", lambda _: Part(lambda: None))
    monkeypatch.setattr("feedrate.loading.decoders.reference.decode", watch)
    on_device, device = run("device", make_spec("device", evaluate=True, ceiling_s=0.05))
    assert not seen
    assert (host["data"][0]["decode"], device["data"][0]["decode"]) == ("host", "device")
    assert device["data"][0]["pixel_psnr_db"] == 25.0
    distance = ("pixel_mean_abs_diff", "pixel_psnr_db", "pixel_worst_abs_diff")
    changed = ("decode", "t", "at_s", *distance)
    first, second = (
        {name: value for name, value in events["data"][0].items() if name not in changed}
        for events in (host, device)
    )
    assert first == second
    losses = [[event["loss"] for event in events["step"]] for events in (host, device)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)  # the pixels differ a little
    assert [e["samples"] for e in device["step"]] == [BATCH] * STEPS
    for file in ("validation", "test"):
        found = (folder / f"trainer/{file}_results.json" for folder in (on_host, on_device))
        theirs, ours = (json.loads(path.read_text()) for path in found)
        prefix = evaluation.SPLITS[file]
        assert ours[f"{prefix}_samples"] == theirs[f"{prefix}_samples"]
        assert ours[f"{prefix}_loss"] == pytest.approx(theirs[f"{prefix}_loss"], rel=0.02)
    # Training, validation, test, live and loader: each has a pipeline of its own.
    assert len(media.MADE) == 5
    assert "note" not in device


def test_the_loaders_ceiling_is_of_the_same_path(run, media, monkeypatch):
    spec = make_spec("device", workers=2, ceiling_s=0.05)
    events = run("device", spec)[1]
    kinds = {kind: [e for e in events["ceiling"] if e["kind"] == kind] for kind in KINDS}
    assert sum(map(len, kinds.values())) == len(events["ceiling"]) == 3
    for name in ("live", "loader"):  # whole rounds of what may be ready
        assert all(block["samples"] % (3 * BATCH) == 0 for block in kinds[name])
    # No process of the host decodes.
    assert set(events["stages"][0]["seconds"]) == {"copy", "forward", "backward", "optimizer"}
    # The distance of the pixels, training, live and loader.
    assert len(media.MADE) == 4
    assert 0.6 < events["data"][0]["pixel_mean_abs_diff"] < 15


def test_a_job_reads_the_store_that_it_is_given(run, store_of):
    spec = make_spec("cache", workers=2)
    store = store_of(spec.settings.loader, 128)
    _, events = run("cache", spec, store=store)
    assert events["data"][0]["decode"] == "cache"
    assert [event["step"] for event in events["step"]] == [1, 2, 3, 4]


def test_a_pipeline_that_does_not_start_fails_the_job_and_trains_nothing(
    run, media, monkeypatch, tmp_path
):
    def fail(_):
        raise RuntimeError("no media decoder")

    monkeypatch.setattr(media.MediaPipe, "build", fail)
    with pytest.raises(UnsupportedError, match="no media decoder"):
        run("device", make_spec("device"))
    events = (tmp_path / "device/events.jsonl").read_text()
    assert '"step"' not in events
    assert '"ceiling"' not in events
