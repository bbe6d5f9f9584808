"""What is drained on a rank, and what the ranks say together."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from feedrate.jobs import drain
from feedrate.jobs.drain import Refused
from tiny_spec import tiny_spec

pytestmark = pytest.mark.usefixtures("own_lock")

SPEC = tiny_spec(
    protocol={"steps": 100, "warmup_steps": 6, "ceiling_s": 10, "evaluate": True},
)


def alone(_what, said=""):
    """The meeting of one rank."""
    return [said]


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 100])
def test_no_more_workers_than_cores_are_tried(cores):
    tried = list(drain.candidates(cores, "cuda"))
    assert [one.workers for one in drain.candidates(cores, "hpu") if one.decode == "device"] == [0]
    assert len(set(tried)) == len(tried)
    assert max(one.workers for one in tried) <= max(1, cores)
    assert {one.decode for one in tried} == {"reference", "host", "cache", "device"}
    assert {one.decode for one in tried if one.scaled} == {"host"}
    plain, scaled = (
        [one.workers for one in tried if (one.decode, one.scaled) == ("host", is_scaled)]
        for is_scaled in (False, True)
    )
    assert plain == scaled
    assert plain[0] == 0


def test_loaders_are_drained_or_refused(tiny_prepared, monkeypatch):
    monkeypatch.setattr(drain, "DRAIN_S", 0.02)
    tried = [
        drain.Candidate("reference", 0),
        drain.Candidate("host", 1),
        drain.Candidate("host", 0, scaled=True),
        drain.Candidate("device", 1),
        drain.Candidate("device", 2),
    ]
    monkeypatch.setattr(drain, "candidates", lambda *_: iter(tried))
    first, second, third, fourth = drain.drains(SPEC, tiny_prepared, 0, 1, 2, alone)
    assert (first.decode, first.workers, first.psnr_db) == ("reference", 0, None)
    assert (second.decode, second.workers, second.scaled) == ("host", 1, False)
    assert (third.decode, third.workers, third.scaled) == ("host", 0, True)
    assert first.samples_per_s > 0 < second.startup_s
    # One process cannot compute for longer than it takes (the kernel counts ticks of 10 ms).
    assert 0 <= first.cpu_s * first.samples_per_s < 3
    # So small pictures are never decoded at a smaller scale.
    assert 15 < third.psnr_db == second.psnr_db < 80
    assert fourth == Refused(
        "device", "loader.decode: device: a cpu has no JPEG decoder; use host or cache", workers=1
    )


def test_a_level_that_fails_is_told_once_and_the_others_are_measured(tiny_prepared, monkeypatch):
    monkeypatch.setattr(drain, "DRAIN_S", 0.02)
    tried = [drain.Candidate("cache", n) for n in (0, 1)] + [drain.Candidate("host", 0)]
    monkeypatch.setattr(drain, "candidates", lambda *_: iter(tried))
    unmade = SPEC.changed("loader", max_tokens=7)  # nobody has made a store for this
    refused, measured = drain.drains(unmade, tiny_prepared, 0, 1, 2, alone)
    assert refused.decode == "cache"
    assert "decode: cache needs the store" in refused.why
    assert measured.decode == "host"


def test_ranks_go_on_together_and_know_what_each_said(tmp_path):
    order = []

    def come(rank, wait_s):
        sleep(wait_s)
        order.append(("came", rank))
        said = drain.meet_ranks(tmp_path, rank, 3, "cores", f"{rank + 1}")
        order.append(("went on", rank))
        return said

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(come, range(3), (0.0, 0.3, 0.1)))
    assert told == [["1", "2", "3"]] * 3
    assert [what for what, _ in order] == ["came"] * 3 + ["went on"] * 3


def test_all_ranks_try_what_the_one_with_the_fewest_cores_can(tiny_prepared, monkeypatch):
    asked, met = [], []
    monkeypatch.setattr(drain, "candidates", lambda cores, _: asked.append(cores) or iter(TRIED))
    monkeypatch.setattr(drain, "_measure", lambda *_, **__: met.append("measured") or 1 / 0)

    def meet(what, said=""):
        met.append(what)
        return [said, "3"] if what == "cores" else [said]

    found = list(drain.drains(SPEC, tiny_prepared, 0, 2, 8, meet))
    assert asked == [3]
    # A level that is refused here may be measured elsewhere: its place is kept.
    assert met == ["cores", "loader0", "measured", "loader1", "loader2", "measured"]
    assert [(one.decode, one.workers) for one in found] == [("host", 1), ("cache", 0)]


TRIED = [drain.Candidate("host", 1), drain.Candidate("host", 2), drain.Candidate("cache", 0)]
