"""Forward passes of several ranks: latencies are pooled, rates and waits as ever."""

from typing import Any

import pytest
from msgspec.structs import replace
from record_builder import a_device

from feedrate.jobs.events import read_run_events
from feedrate.results.assemble import build_record
from feedrate.results.measurement import measure
from run_folder import make_spec, rank_events, write_run


def passes(spec: Any, rank: int, *, finite: bool = True) -> list[dict[str, Any]]:
    """Rank 0 answers in 0.1 to 1.0 s, rank 1 in half of that."""
    events = [e for e in rank_events(spec, rank) if e["event"] not in ("trainer", "evaluation")]
    for event in events:
        if event["event"] == "step":
            event["step_s"] = 0.1 * max(1, event["step"] - 3) / (1 + rank)
            event |= {"samples": 4, "loss": None, "finite": finite or event["step"] != 5}
        if event["event"] == "window":
            event |= {"wall_s": 5.5 / (1 + rank), "samples": 40, "data_wait_s": 1.1}
    return events


@pytest.fixture
def spec() -> Any:
    made = make_spec(task="inference")
    train = replace(made.settings.train, gradient_accumulation=1)
    return replace(made, settings=replace(made.settings, train=train))


def test_latencies_of_all_ranks_are_pooled(tmp_path, spec):
    folder = write_run(tmp_path, ranks={r: passes(spec, r) for r in (0, 1)}, spec=spec)
    m = measure(read_run_events(folder), spec, [], None)
    assert m is not None
    assert m.step_time_max_s == pytest.approx(1.0)
    # 0.05, 0.10, 0.10, 0.15, 0.20, 0.20, 0.25, 0.30, 0.30, 0.35 | 0.40, 0.40, 0.45, 0.50, …, 1.0
    assert m.step_time_median_s == pytest.approx((0.35 + 0.40) / 2)
    assert m.step_time_p95_s == pytest.approx(0.9 + 0.05 * 0.1)
    assert m.step_time_p99_s is None, "20 passes are too few"
    assert m.samples_per_s == pytest.approx(80 / 5.5), "the slowest rank's time"


@pytest.mark.parametrize(("steps", "known"), [(99, False), (100, True)])
def test_a_99th_percentile_needs_a_hundred_passes(tmp_path, spec, steps, known):
    spec = replace(spec, protocol=replace(spec.protocol, steps=steps + 3))
    folder = write_run(tmp_path, ranks={0: passes(spec, 0)}, spec=spec)
    m = measure(read_run_events(folder), spec, [], None)
    assert m is not None
    assert (m.step_time_p99_s is not None) == known


def test_an_answer_that_is_no_number_makes_the_run_invalid(tmp_path, spec):
    ranks = {r: passes(spec, r, finite=r == 0) for r in (0, 1)}
    record = build_record(write_run(tmp_path, ranks=ranks, spec=spec), a_device())
    assert (record.status, record.cause) == ("invalid", "1 of 26 answers are not finite.")


def test_a_pass_that_told_nothing_of_its_answer_is_missed(tmp_path, spec):
    ranks = {r: passes(spec, r) for r in (0, 1)}
    for event in ranks[1]:
        event.pop("finite", None)
    record = build_record(write_run(tmp_path, ranks=ranks, spec=spec), a_device())
    assert record.status == "invalid"
    assert record.cause == "13 of 26 forward passes reported their answer."
