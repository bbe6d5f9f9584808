"""The rules that predict a change, on parts, stages and virtual speed-ups that are known."""

import msgspec
import pytest
from record_builder import make_record, make_spec

from feedrate.jobs.events import Ceiling, RankEvents, Stages, Virtual
from feedrate.results.ledger import Cell, Parts, gain_text, predictions
from feedrate.results.statistics import Estimate

LOAD_S, MODEL_S = 0.02, 0.05
ROUNDS = 3


def blocks(workers, *, load_s=LOAD_S, model_s=MODEL_S, live_s=0.07, cpu=False, rounds=ROUNDS):
    """The blocks of each round: 100 samples of each kind."""
    loads = load_s / max(1, workers)
    walls = {"live": live_s, "loader": loads, "model": model_s}
    own = {"loader": load_s, "model": 2 * model_s}
    return [
        Ceiling(
            rank=0,
            kind=kind,
            round=number,
            samples=100,
            wall_s=100 * wall_s,
            cpu_s=100 * own[kind] if cpu and kind in own else None,
        )
        for number in range(1, rounds + 1)
        for kind, wall_s in walls.items()
    ]


def cell(rate, workers=0, decode="reference", *, events=None, train=None, **parts):
    spec = make_spec(workers, decode, train=train)
    found = events or RankEvents(ceilings=blocks(workers, **parts))
    return Cell(spec, [make_record(rate, spec=spec)], [found])


def changed(spec, setting, level):
    part, _, name = setting.partition(".")
    return spec.changed(part, **{name: level})


def found(base, setting, level, *others):
    """What each rule predicts for a change."""
    known = [base, *others]
    return {
        rule: estimate.value
        for rule, estimate in predictions(base, changed(base.spec, setting, level), known)
    }


def test_without_workers_the_parts_alternate_and_with_workers_they_overlap():
    parts = Parts(LOAD_S, MODEL_S)
    assert parts.rate(0, 2) == pytest.approx(1 / 0.07)
    assert parts.rate(1, 2) == pytest.approx(1 / 0.05)
    assert Parts(0.2, MODEL_S).rate(2, 2) == pytest.approx(1 / 0.1)


def test_workers_and_model_share_the_cores():
    parts = Parts(LOAD_S, MODEL_S, load_cpu_s=0.02, model_cpu_s=0.1)
    assert parts.rate(1, cores=2) == pytest.approx(2 / 0.12)
    assert parts.rate(1, cores=64) == pytest.approx(1 / 0.05)
    assert parts.rate(0, cores=1) == pytest.approx(1 / 0.07)  # they take turns


def test_the_measured_rate_changes_by_the_ratio_of_the_combined_parts():
    base = cell(13.0)
    assert found(base, "loader.workers", 1) == {"parts": pytest.approx(13.0 * 0.07 / 0.05)}


def test_loading_with_two_workers_counts_the_time_of_one_process():
    base = cell(20.0, workers=2)
    assert found(base, "loader.workers", 0) == {"parts": pytest.approx(20.0 * 0.05 / 0.07)}


def test_another_decode_path_is_predicted_only_if_its_loader_was_measured():
    base = cell(13.0)
    assert found(base, "loader.decode", "host") == {}
    other = cell(20.0, decode="host", load_s=0.005, train={"batch_size": 2})
    assert found(base, "loader.decode", "host", other) == {
        "parts": pytest.approx(13.0 * 0.07 / 0.055)
    }


def test_a_loader_in_the_same_kind_of_process_is_preferred():
    base = cell(13.0)
    others = [
        cell(20.0, workers, "host", load_s=load_s) for workers, load_s in ((1, 0.015), (0, 0.005))
    ]
    assert found(base, "loader.decode", "host", *others) == {
        "parts": pytest.approx(13.0 * 0.07 / 0.055)
    }


def test_another_batch_needs_the_model_at_that_batch():
    base = cell(13.0)
    assert found(base, "train.batch_size", 8) == {}
    other = cell(20.0, 1, "host", model_s=0.04, train={"batch_size": 8})
    assert found(base, "train.batch_size", 8, other) == {"parts": pytest.approx(13.0 * 0.07 / 0.06)}


def test_fewer_tokens_need_the_model_with_so_many():
    base = cell(13.0)
    spec = changed(base.spec, "loader.max_tokens", 4)
    other = cell(20.0, model_s=0.03)._replace(spec=spec)
    assert found(base, "loader.max_tokens", 4, other) == {
        "parts": pytest.approx(13.0 * 0.07 / 0.05)
    }


def speedups(*tried):
    """A live step of 0.07 s a sample, and virtual ones: stage, share, seconds that each saved."""
    virtuals = [
        Virtual(
            rank=0,
            stage=stage,
            share=share,
            round=number,
            samples=100,
            wall_s=100 * (0.07 - saved_s) + 3,
            delayed_s=3,
        )
        for stage, share, saved_s in tried
        for number in range(1, ROUNDS + 1)
    ]
    # A step has 4 samples: of 20 ms loading each, 15 are decoding.
    seconds = {"read": 0.02, "decode": 0.06, "forward": 0.1, "backward": 0.1}
    stages = Stages(rank=0, steps=9, seconds=seconds)
    return RankEvents(ceilings=blocks(0), stages=stages, virtuals=virtuals)


def test_a_virtual_speed_up_predicts_what_the_change_shortens():
    # Half of decoding takes 7.5 ms; its saving of 6 ms makes 16 of the 20 ms of loading.
    base = cell(10.0, events=speedups(("decode", 0.5, 0.006)))
    other = cell(20.0, decode="host", load_s=0.005)
    rates = found(base, "loader.decode", "host", other)
    assert rates["virtual"] == pytest.approx(10.0 * 0.07 / (0.07 - 0.75 * 0.016))


def test_the_virtual_speed_up_with_the_nearest_share_counts():
    base = cell(10.0, events=speedups(("decode", 0.5, 0.0), ("decode", 1.0, 0.012)))
    other = cell(20.0, decode="host", load_s=0.001)
    rates = found(base, "loader.decode", "host", other)
    assert rates["virtual"] == pytest.approx(10.0 * 0.07 / (0.07 - 0.95 * 0.016))


@pytest.mark.parametrize(
    ("setting", "level"), [("loader.workers", 1), ("train.batch_size", 8)], ids=str
)
def test_a_virtual_speed_up_says_nothing_of_overlap_or_of_another_part(setting, level):
    base = cell(10.0, events=speedups(("decode", 0.5, 0.006)))
    other = cell(20.0, 1, model_s=0.04, train={"batch_size": 8})
    assert set(found(base, setting, level, other)) == {"parts"}


def test_a_virtual_speed_up_says_nothing_of_a_slower_loader():
    base = cell(10.0, events=speedups(("decode", 0.5, 0.006)))
    other = cell(20.0, decode="host", load_s=0.03)
    assert set(found(base, "loader.decode", "host", other)) == {"parts"}


def test_the_interval_is_over_the_rounds():
    base = cell(13.0)
    after = changed(base.spec, "loader.workers", 1)
    ((_, several),) = predictions(base, after, [base])
    once = cell(13.0, rounds=1)
    ((_, one),) = predictions(once, after, [once])
    assert several.low is not None
    assert one == (one.value, None, None)


def test_the_noise_of_training_is_in_the_interval_even_where_nothing_changes():
    events = RankEvents(ceilings=blocks(1))
    noisy = [
        msgspec.structs.replace(one, wall_s=one.wall_s * (1 + 0.1 * one.round))
        if one.kind == "live"
        else one
        for one in events.ceilings
    ]
    base = cell(20.0, 1, events=RankEvents(ceilings=noisy))
    after = changed(base.spec, "loader.workers", 2)
    ((_, estimate),) = predictions(base, after, [base])
    assert estimate.value == pytest.approx(20.0)
    assert estimate.low < 19 < 21 < estimate.high


def test_gains_are_said_in_a_phrase_for_each_stage_and_share():
    base = cell(10.0, events=speedups(("decode", 0.5, 0.014), ("read", 1.0, 0.0)))
    halving, without = base.gains()
    assert halving.startswith("halving decode gains 25%")
    assert without.startswith("leaving out read gains nothing measurable")


@pytest.mark.parametrize(
    ("ratio", "phrase"),
    [
        (Estimate(1.31, 1.27, 1.35), "gains 31% (27% to 35%)"),
        (Estimate(1.31, 1.005, 1.71), "gains 31% (0.5% to 71%)"),
        (Estimate(0.95, 0.92, 0.98), "gains -5% (-8% to -2%)"),
        (Estimate(1.01, 0.99, 1.03), "gains nothing measurable (-1% to 3%)"),
        (Estimate(1.00, 0.90, 1.10), "gains nothing measurable (-10% to 10%)"),
        (Estimate(1.12, 0.93, 1.35), "gains 12% or nothing (-7% to 35%)"),
        (Estimate(1.31, None, None), "gains 31%, measured once"),
    ],
    ids=str,
)
def test_a_gain_in_words(ratio, phrase):
    assert gain_text(ratio) == phrase


def test_a_run_without_such_events_gives_no_gain_and_no_prediction():
    base = cell(
        10.0, events=RankEvents(ceilings=[Ceiling(rank=0, kind="loader", samples=8, wall_s=1)])
    )
    assert base.gains() == []
    assert found(base, "loader.workers", 1) == {}
