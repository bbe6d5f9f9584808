"""Ladders: what is not tried, and what is."""

import json

import msgspec
import pytest
from training_jobs import Job, make_spec

from feedrate import variables
from feedrate.train.ladder import NOT_TRIED, pruned_by

ORDER = {"study": {"size": ["tiny", "350M", "900M"], "batch": ["8", "16", "32", "128"]}}
ENVIRONMENT = {variables.LADDERS: json.dumps(ORDER)}


def name(size, batch, strategy="ddp"):
    return f"size={size}~strategy={strategy}~batch={batch}"


@pytest.fixture
def device(tmp_path):
    """Leaves outcomes of cells, and asks what shows that another would run out of memory."""

    class Device:
        def ended(self, cell, status, repeat=1, cause=""):
            folder = tmp_path / cell / f"rep{repeat}"
            folder.mkdir(parents=True)
            (folder / "outcome.json").write_text(json.dumps({"status": status, "cause": cause}))

        def asked(self, size, batch, strategy="ddp", environment=ENVIRONMENT):
            levels = {"size": size, "strategy": strategy, "batch": batch}
            spec = msgspec.structs.replace(make_spec(), levels=levels)
            run = tmp_path / name(size, batch, strategy) / "rep1"
            run.mkdir(parents=True, exist_ok=True)
            return pruned_by(spec, run, environment)

    return Device()


@pytest.mark.parametrize(("size", "batch"), [("350M", 32), ("900M", 16), ("900M", 32)])
def test_what_asks_for_more_is_not_tried(device, size, batch):
    device.ended(name("350M", 16), "out_of_memory")
    assert device.asked(size, batch) == name("350M", 16)


@pytest.mark.parametrize(
    ("size", "batch", "strategy"),
    [("350M", 8, "ddp"), ("tiny", 32, "ddp"), ("900M", 8, "ddp"), ("900M", 32, "fsdp")],
)
def test_what_asks_for_less_of_anything_or_shares_otherwise_is_tried(device, size, batch, strategy):
    device.ended(name("350M", 16), "out_of_memory")
    assert device.asked(size, batch, strategy) is None


def test_the_cell_that_was_tried_is_named_and_not_one_that_it_pruned(device):
    device.ended(name("350M", 32), "out_of_memory")
    device.ended(name("350M", 128), "out_of_memory", cause=f"{NOT_TRIED}{name('350M', 32)} ran")
    assert device.asked("900M", 128) == name("350M", 32)


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_only_running_out_of_memory_prunes(device, status):
    device.ended(name("350M", 16), status)
    assert device.asked("350M", 32) is None


def test_a_cell_that_fits_in_one_repeat_prunes_nothing(device):
    device.ended(name("350M", 16), "out_of_memory")
    device.ended(name("350M", 16), "ok", repeat=2)
    assert device.asked("350M", 32) is None


def test_its_own_earlier_outcome_and_studies_without_ladders_prune_nothing(device):
    device.ended(name("350M", 16), "out_of_memory", repeat=2)
    assert device.asked("350M", 16) is None
    assert device.asked("900M", 32, environment={}) is None


def test_a_job_that_is_not_tried_ends_in_an_outcome_that_says_why(tiny_prepared, tmp_path):
    levels = {"size": "350M", "strategy": "ddp", "batch": 32}
    spec = msgspec.structs.replace(make_spec(), cell=name("350M", 32), levels=levels)
    less = tmp_path / name("350M", 16) / "rep1"
    less.mkdir(parents=True)
    (less / "outcome.json").write_text(json.dumps({"status": "out_of_memory"}))
    out = tmp_path / name("350M", 32) / "rep1"
    job = Job(spec, tiny_prepared, out, **ENVIRONMENT)
    code, output = job.wait()
    assert code == 0, output
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["status"] == "out_of_memory"
    assert outcome["cause"].startswith(f"Not tried: {name('350M', 16)} ran out of memory")
    assert not (out / "events.jsonl").exists()
