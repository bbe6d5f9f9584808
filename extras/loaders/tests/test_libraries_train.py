"""The Trainer, fed by other loader libraries: the same losses as with ours, and a true record."""

import json

import msgspec
import pytest

from feedrate.devices.placement import Placement
from feedrate.jobs.events import EventLog
from feedrate.jobs.train import run_job
from feedrate.jobs.worker import Options
from tiny_spec import tiny_spec

pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.fixture(scope="module")
def run(tiny_prepared, tmp_path_factory):
    """Run a job with this library, with one round after the window; its events by name."""

    def _run(**loader):
        folder = tmp_path_factory.mktemp(loader.get("library", "torch"))
        spec = tiny_spec(
            loader={"decode": "host", "workers": 1, "max_tokens": 6, **loader},
            train={"batch_size": 2},
            protocol={"ceiling_s": 0.05},
        )
        (folder / "spec.json").write_text(json.dumps(msgspec.to_builtins(spec)))
        placement = Placement(2, [0, 1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("feedrate.jobs.rounds.needs_more", lambda *_: False)
            run_job(spec, tiny_prepared, folder, EventLog(folder, 0), placement, Options())
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        return {e["event"]: [o for o in events if o["event"] == e["event"]] for e in events}

    return _run


@pytest.fixture(scope="module")
def ours(run):
    """The events of a job that torch's loader feeds."""
    return run()


@pytest.mark.parametrize(
    "library", ["spdl", "torchdata", "grain", "webdataset", "litdata", "dali", "ffcv"]
)
def test_a_job_is_fed_by_the_library_throughout_and_says_so(library, run, ours, needs):
    needs(library)
    other = run(library=library)
    assert ours["data"][0]["library"] == "torch"
    name, _, version = other["data"][0]["library"].partition(" ")
    assert library in name
    assert version[0].isdigit()
    assert "note" not in other, other["note"]
    assert {event["kind"] for event in other["ceiling"]} == {"live", "loader", "model"}
    (stages,) = other["stages"]
    assert stages["seconds"]["hand_over"] > 0
    losses = [[event["loss"] for event in events["step"]] for events in (ours, other)]
    assert len(losses[0]) == len(losses[1]) == 4
    if library not in {"webdataset", "litdata"}:  # in an order of their own
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
