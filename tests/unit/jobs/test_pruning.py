"""Ladders: what is not tried, and what is."""

import json

import msgspec
import pytest
from training_jobs import Job, make_spec

from feedrate.core import variables
from feedrate.core.files import digest_file, digest_value
from feedrate.jobs.earlier import not_tried, pruned_by

SIZES = ["tiny", "350M", "900M"]
BATCHES = [8, 16, 32, 128]
LADDER = {
    "size": [[size, {"model": {"size": size}}] for size in SIZES],
    "batch": [[batch, {"train": {"batch_size": batch}}] for batch in BATCHES],
}
ENVIRONMENT = {variables.LADDERS: json.dumps({"study": {"cpu": LADDER}})}
MADE = ("source", "data")


def name(size, batch, strategy="ddp"):
    return f"size={size}~strategy={strategy}~batch={batch}"


def cell(size, batch, strategy="ddp", repeat=1, **train):
    """A repeat of a cell, as the plan makes it."""
    plain = make_spec()
    model = msgspec.structs.replace(plain.settings.model, size=size)
    train = msgspec.structs.replace(plain.settings.train, batch_size=batch, **train)
    return msgspec.structs.replace(
        plain,
        cell=name(size, batch, strategy),
        levels={"size": size, "strategy": strategy, "batch": batch},
        settings=msgspec.structs.replace(plain.settings, model=model, train=train),
        repeat=repeat,
        seed=plain.seed + repeat - 1,
    )


def outcome_of(spec, status, cause="", made=MADE):
    return {
        "status": status,
        "cause": cause,
        "spec_digest": digest_value(msgspec.to_builtins(spec)),
        "source_digest": made[0],
        "data_digest": made[1],
    }


@pytest.fixture
def device(tmp_path, monkeypatch):
    """Leaves outcomes of cells, and asks what shows that another would run out of memory."""

    class Device:
        def inputs(self, settings):
            return f"weights of {settings.model.size}"

        def ended(self, spec, status, cause="", **changes):
            folder = tmp_path / spec.cell / f"rep{spec.repeat}"
            folder.mkdir(parents=True, exist_ok=True)
            outcome = outcome_of(spec, status, cause) | changes
            (folder / "outcome.json").write_text(json.dumps(outcome))

        def run(self, spec):
            folder = tmp_path / spec.cell / f"rep{spec.repeat}"
            folder.mkdir(parents=True, exist_ok=True)
            return folder

        def asked(self, spec, environment=ENVIRONMENT, cause=None):
            with monkeypatch.context() as patch:
                patch.delenv(variables.LADDERS, raising=False)
                for name, value in environment.items():
                    patch.setenv(name, value)
                return pruned_by(spec, MADE, self.inputs, self.run(spec), cause)

        def stands(self, spec, other, environment=ENVIRONMENT):
            return self.asked(spec, environment, not_tried(other.cell)) is not None

    return Device()


@pytest.mark.parametrize(("size", "batch"), [("350M", 32), ("900M", 16), ("900M", 32)])
@pytest.mark.parametrize(("tried", "asking"), [(1, 1), (2, 1), (1, 3)])
def test_what_asks_for_more_is_not_tried(device, size, batch, tried, asking):
    device.ended(cell("350M", 16, repeat=tried), "out_of_memory")
    assert device.asked(cell(size, batch, repeat=asking)) == name("350M", 16)


@pytest.mark.parametrize(
    ("size", "batch", "strategy"),
    [("350M", 8, "ddp"), ("tiny", 32, "ddp"), ("900M", 8, "ddp"), ("900M", 32, "fsdp")],
)
def test_what_asks_for_less_of_anything_or_shares_otherwise_is_tried(device, size, batch, strategy):
    device.ended(cell("350M", 16), "out_of_memory")
    assert device.asked(cell(size, batch, strategy)) is None


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_only_running_out_of_memory_prunes(device, status):
    device.ended(cell("350M", 16), status)
    assert device.asked(cell("350M", 32)) is None


def test_a_cell_that_fits_in_one_repeat_prunes_nothing(device):
    device.ended(cell("350M", 16), "out_of_memory")
    device.ended(cell("350M", 16, repeat=2), "ok")
    assert device.asked(cell("350M", 32)) is None


def test_its_own_earlier_outcome_and_studies_without_ladders_prune_nothing(device):
    device.ended(cell("350M", 16, repeat=2), "out_of_memory")
    assert device.asked(cell("350M", 16)) is None
    assert device.asked(cell("900M", 32), environment={}) is None
    assert device.asked(cell("900M", 32), environment={variables.LADDERS: "{}"}) is None


@pytest.mark.parametrize("digest", ["spec_digest", "source_digest", "data_digest"])
@pytest.mark.parametrize("stale", ["another", None])
def test_what_ran_with_other_settings_code_or_data_shows_nothing(device, digest, stale):
    device.ended(cell("350M", 16), "out_of_memory", **{digest: stale})
    assert device.asked(cell("350M", 32)) is None
    device.ended(cell("350M", 16), "ok", **{digest: stale})
    device.ended(cell("350M", 16, repeat=2), "out_of_memory")
    assert device.asked(cell("350M", 32)) == name("350M", 16)


def test_what_ran_with_other_weights_shows_nothing(device):
    """Each cell has its own: here those of its size."""
    for size, shown in (("900M", None), ("350M", name("350M", 16))):
        device.ended(cell("350M", 16), "out_of_memory", inputs_digest=f"weights of {size}")
        assert device.asked(cell("900M", 16)) == shown


def test_an_edit_of_what_the_smaller_level_sets_makes_its_outcome_stale(device):
    device.ended(cell("350M", 16), "out_of_memory")
    levels = [[batch, {"train": {"batch_size": batch // 2}}] for batch in BATCHES]
    edited = {variables.LADDERS: json.dumps({"study": {"cpu": LADDER | {"batch": levels}}})}
    assert device.asked(cell("350M", 32), environment=edited) is None


def test_a_cell_that_was_not_tried_stands_while_the_cell_that_it_names_does(device):
    small, other, large = cell("350M", 8), cell("350M", 16), cell("350M", 32)
    assert not device.stands(large, other)
    device.ended(other, "out_of_memory")
    assert device.stands(large, other)
    device.ended(small, "out_of_memory")  # it ended later, on another node
    assert device.stands(large, other)
    assert not device.stands(large, other, environment={variables.LADDERS: "{}"})
    device.ended(other, "ok")
    assert not device.stands(large, other)
    assert device.stands(large, small)


def test_a_job_that_is_not_tried_ends_in_an_outcome_that_says_why(tiny_prepared, tmp_path):
    spec, less = cell("350M", 32), cell("350M", 16)
    made = ("abc", digest_file(tiny_prepared / "manifest.json"))  # as Job says
    tried = tmp_path / less.cell / "rep1"
    tried.mkdir(parents=True)
    outcome = outcome_of(less, "out_of_memory", made=made)
    (tried / "outcome.json").write_text(json.dumps(outcome))
    out = tmp_path / spec.cell / "rep1"
    job = Job(spec, tiny_prepared, out, cold=True, **ENVIRONMENT)  # or the digests differ
    code, output = job.wait()
    assert code == 0, output
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["status"] == "out_of_memory"
    assert outcome["cause"] == not_tried(less.cell)
    assert not (out / "events.jsonl").exists()
