"""Each judgement of the self-test passes what is right, and finds the fault that is planted."""

import time
from pathlib import Path

import msgspec
import pytest
from record_builder import make_ceilings

from feedrate.cli import selftest
from feedrate.jobs.probe import Probe, Product
from feedrate.results.record import Check, Record
from feedrate.results.schema import Measurement, PixelDistance
from tiny_spec import tiny_spec


def product(tflops):
    return selftest.judge_product(
        Product(precision="bf16", side=16384, tflops=tflops), 989, "card 0"
    )


@pytest.mark.parametrize(
    ("tflops", "outcome"),
    [
        (197, "failed"),
        (198, "passed"),
        (989, "passed"),
        (990, "unknown"),  # a clock above the data sheet's may explain it
        (1190, "failed"),
    ],
)
def test_a_product_reaches_a_possible_share_of_the_peak(tflops, outcome):
    assert product(tflops).outcome == outcome


def test_a_product_fails_by_its_failure_and_is_unknown_without_a_rate_or_a_peak():
    broken = Product(precision="bf16", failure="RuntimeError")
    assert selftest.judge_product(broken, 989, "card 0").outcome == "failed"
    assert product(None).outcome == "unknown"
    without_peak = Product(precision="fp32", side=512, tflops=0.05)
    assert selftest.judge_product(without_peak, None, "card 0").outcome == "unknown"


def energy(*ranks, power_w=700):
    """The outcome for the joules that each rank reads once a second."""
    probes = [
        Probe(
            rank=number,
            products=[],
            energy=[(float(second), joules) for second, joules in enumerate(readings)],
        )
        for number, readings in enumerate(ranks)
    ]
    return selftest.judge_energy(probes, power_w).outcome


@pytest.mark.parametrize(
    "planted",
    [
        ([0, 600, 500],),  # backwards
        ([9, 9, 9],),  # it stands still
        ([0, 600, 1200], [7, 7, 7]),  # on another card
        ([0, 600e3, 1200e3],),  # millijoules
    ],
)
def test_a_planted_fault_of_the_energy_counter_is_found(planted):
    assert energy(*planted) == "failed"


def test_energy_increases_below_the_rated_power_or_is_unknown_without_counter_or_rating():
    assert energy([0, 600, 1200], [50, 700, 1400]) == "passed"
    assert energy([0, 700, 1400], [0, 0, 0]) == "passed", "a CPU's first rank counts for all"
    assert energy([None, None]) == "unknown"
    assert energy([0, 600, 1200], power_w=None) == "unknown"


def record(status="ok", wait=0.0, rate=100.0, ceilings=(130.0, 103.0), off=0.4, **more):
    """A record of one rank."""
    loader, model = ceilings
    values = dict.fromkeys(Measurement.__struct_fields__, 0)
    values |= {"samples_per_s": rate, "wall_s": 4.0, "data_wait_share": wait}
    values["peak_memory_gib"] = 1.0
    measured = Measurement(**values)
    return Record(
        **{
            "study": "selftest",
            "device": "cpu",
            "cell": "cards=one~part=baseline",
            "levels": {"cards": "one", "part": "baseline"},
            "repeat": 1,
            "status": status,
            "spec": tiny_spec(),
            "measurement": measured,
            "ceilings": make_ceilings(rate, loader=loader, model=model),
            "pixels": PixelDistance(mean_abs_diff=off),
            **more,
        }
    )


def test_pixels_must_be_those_of_the_reference():
    assert selftest.judge_pixels(record(), "decode").outcome == "passed"
    for planted in ({"off": 46.0}, {"off": None}):
        assert selftest.judge_pixels(record(**planted), "decode").outcome == "failed"


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"wait": 0.6, "ceilings": (110.0, 300.0)}, "data loading"),
        ({"wait": 0.005, "ceilings": (5000.0, 101.0)}, "computing"),
    ],
)
def test_a_planted_limit_is_called_by_its_name(planted, expected):
    names = {"data loading", "computing"}
    (other,) = names - {expected}
    assert selftest.judge_limit(record(**planted), expected, None, "plant").outcome == "passed"
    assert selftest.judge_limit(record(**planted), other, None, "plant").outcome == "failed"


def check(name, passed):
    return Check(name=name, passed=passed, detail="What was found.")


def test_a_job_that_took_another_path_fails_its_line():
    wrong = [check("computation", passed=False)]
    line = selftest.judge_run(record(status="invalid", cause="x", checks=wrong), "one card: fp8")
    assert (line.outcome, "What was found" in line.text) == ("failed", True)
    for status in ("failed", "out_of_memory"):
        assert selftest.judge_run(record(status=status, cause="x"), "fp8").outcome == "failed"
    assert selftest.judge_run(record(), "fp8").outcome == "passed"
    for name in ("alone_on_host", "undisturbed"):  # other load is no fault of a capability
        disturbed = record(status="invalid", checks=[check(name, passed=False)])
        assert selftest.judge_run(disturbed, "fp8").outcome == "passed"


@pytest.mark.parametrize(("left_s", "outcome"), [(30, "unknown"), (500, "failed"), (5, None)])
def test_a_part_that_the_end_of_the_time_stops_is_unknown(monkeypatch, left_s, outcome):
    stopped = record(status="failed", cause="stopped after 0.5 min", measurement=None)
    monkeypatch.setattr(selftest, "run_part", lambda *_: stopped)
    spec = msgspec.structs.replace(tiny_spec(), levels={"cards": "one", "part": "fp8"})
    end_s = time.monotonic() + left_s
    lines = list(selftest.part_lines(spec, None, Path(), Path(), end_s))
    assert [line.outcome for line in lines] == ([outcome] if outcome else [])
