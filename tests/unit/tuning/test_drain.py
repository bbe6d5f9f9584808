"""What is drained on a rank, and what the ranks say together."""

import json

import msgspec
import pytest

from feedrate.config.settings import (
    LoaderSettings,
    ModelSettings,
    Protocol,
    RunSpec,
    Settings,
    TrainSettings,
)
from feedrate.files import write_json
from feedrate.tuning import __main__ as tuning
from feedrate.tuning import drain
from feedrate.tuning.advice import Loader, Refused

SPEC = RunSpec(
    study="study",
    device="cpu",
    kind="cpu",
    count=1,
    launcher="single",
    cell="workers=0",
    levels={"workers": 0},
    repeat=1,
    seed=3,
    dataset="tiny",
    settings=Settings(
        model=ModelSettings(name="bridgetower", size="tiny"),
        loader=LoaderSettings(max_tokens=8),
        train=TrainSettings(batch_size=4, precision="fp32"),
    ),
    protocol=Protocol(steps=100, warmup_steps=6, ceiling_s=10, evaluate=True),
)


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 100])
def test_no_more_workers_than_cores_are_tried(cores):
    tried = list(drain.candidates(cores))
    assert len(set(tried)) == len(tried)
    assert max(workers for _, workers in tried) <= max(1, cores)
    assert {decode for decode, _ in tried} == {"reference", "host", "cache", "device"}
    assert ("host", 0) in tried


def test_loaders_are_drained_or_refused(tiny_prepared, monkeypatch):
    monkeypatch.setattr(drain, "DRAIN_S", 0.02)
    monkeypatch.setattr(
        drain, "candidates", lambda _: iter([("reference", 0), ("host", 1), ("device", 1)])
    )
    first, second, third = drain.drains(SPEC, tiny_prepared, 0, 1, cores=2)
    assert (first.decode, first.workers) == ("reference", 0)
    assert (second.decode, second.workers) == ("host", 1)
    assert first.samples_per_s > 0 < second.startup_s
    assert third == Refused(
        "device", "loader.decode: device: a cpu has no JPEG decoder; use host or cache"
    )


def test_ranks_add_up_and_the_slowest_start_counts(tmp_path):
    for rank, rate in enumerate((100.0, 90.0)):
        loaders = [Loader("host", 1, rate, 0.1 + rank), Loader("cache", 0, 10 * rate, 0.5)]
        write_json(
            drain.answer_file(tmp_path, rank),
            {
                "loaders": msgspec.to_builtins(loaders),
                "refused": [{"decode": "device", "why": "no"}],
            },
        )
    loaders, refused = tuning.gather([drain.answer_file(tmp_path, rank) for rank in (0, 1)])
    assert loaders == [Loader("host", 1, 190.0, 1.1), Loader("cache", 0, 1900.0, 0.5)]
    assert refused == [Refused("device", "no")]


def test_the_runs_are_short():
    protocol = tuning.short(SPEC).protocol
    assert (protocol.steps, protocol.warmup_steps) == (36, 6)
    assert not protocol.evaluate
    changed = drain.with_loader(SPEC, decode="cache", workers=2)
    assert (changed.settings.loader.decode, changed.settings.loader.max_tokens) == ("cache", 8)
    assert changed.settings.model == SPEC.settings.model


def test_rates_of_all_ranks_are_read_from_a_run(tmp_path):
    for name, rate in (("events.jsonl", 40), ("events.rank1.jsonl", 30)):
        events = [
            {"event": "start"},
            {"event": "window", "samples": 60, "wall_s": 2.5, "paused_s": 0.5},
            {"event": "ceiling", "kind": "loader", "samples": 9, "wall_s": 1},
            {"event": "ceiling", "kind": "model", "samples": rate, "wall_s": 0.5},
        ]
        (tmp_path / name).write_text("".join(f"{json.dumps(e)}\n" for e in events))
    assert tuning.read_run(tmp_path) == tuning.Run(60.0, 140.0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(tuning.TuningError, match="no timed steps"):
        tuning.read_run(tmp_path / "empty")


def test_a_run_that_fails_is_told_with_its_cause(tiny_prepared, tmp_path, capfd):
    spec = tuning.short(msgspec.structs.replace(SPEC, kind="hpu"))
    with pytest.raises(tuning.TuningError, match="a run with reference failed: "):
        tuning.train(spec, tiny_prepared / "manifest.json", tmp_path / "run")
