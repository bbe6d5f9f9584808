import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.config.study import Thresholds
from feedrate.results.verdicts import Limits, cell_verdict, verdict

COMPUTE = Limits(
    samples_per_s=100,
    data_wait_share=0.01,
    loader_samples_per_s=300,
    model_samples_per_s=103,
    peak_memory_gib=None,
    memory_gib=None,
    world_size=1,
    workers=2,
)


def name_of(**changes):
    return verdict(COMPUTE._replace(**changes), Thresholds()).name


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "compute-bound"),
        ({"data_wait_share": 0.4, "model_samples_per_s": 160}, "input-bound"),
        ({"data_wait_share": 0.4, "model_samples_per_s": None}, "input-bound"),
        ({"data_wait_share": 0.4, "model_samples_per_s": 105}, "mixed"),
        ({"data_wait_share": 0.05}, "mixed"),
        ({"loader_samples_per_s": 120}, "mixed"),
        ({"loader_samples_per_s": None}, "undecided"),
        ({"model_samples_per_s": None}, "undecided"),
        ({"model_samples_per_s": 140}, "mixed"),
        ({"model_samples_per_s": 140, "world_size": 8}, "communication-bound"),
        ({"model_samples_per_s": 115, "world_size": 8}, "mixed"),
        ({"peak_memory_gib": 78, "memory_gib": 80}, "memory-pressed"),
        ({"peak_memory_gib": 70, "memory_gib": 80}, "compute-bound"),
        ({"peak_memory_gib": 78}, "compute-bound"),
        ({"workers": 0, "loader_samples_per_s": 110}, "compute-bound"),
        ({"workers": 0, "loader_samples_per_s": 110, "decodes_on_device": True}, "mixed"),
        ({"workers": 0, "loader_samples_per_s": None, "decodes_on_device": True}, "undecided"),
        ({"workers": 0, "decodes_on_device": True}, "compute-bound"),
        (
            {"workers": 0, "data_wait_share": 0.4, "model_samples_per_s": 160},
            "input-bound",
        ),
    ],
)
def test_each_limit(changes, expected):
    assert name_of(**changes) == expected


CELL = {
    **{"status": "ok", "task": "training", "oversubscribed": False, "decodes_on_device": False},
    **{"samples_per_s": 100, "data_wait_share": 0.01, "loader_samples_per_s": 300},
    **{"model_samples_per_s": 103, "peak_memory_gib": 74, "world_size": 1, "loader_workers": 2},
}


def test_memory_is_compared_with_what_the_card_really_has():
    """A card sold with 80 GiB has less for a job."""
    lines = Thresholds()
    assert cell_verdict(CELL, lines, 80).name == "compute-bound"
    found = cell_verdict(
        {**CELL, "device_memory_gib": 76.0, "reserved_memory_gib": 75.24}, lines, 80
    )
    assert found.name == "memory-pressed"
    assert "97%" in found.why
    assert "99%" in found.why


def test_the_reason_gives_the_figures():
    found = verdict(
        COMPUTE._replace(workers=0, data_wait_share=0.4, model_samples_per_s=160), Thresholds()
    )
    for figure in ("40.0%", "1.60 times", "3.00 times", "serial"):
        assert figure in found.why
    assert "memory" not in found.why
    assert "share" not in verdict(COMPUTE, Thresholds()).why.replace("shared", "")
    crowded = verdict(COMPUTE._replace(workers=16, cores=2), Thresholds())
    assert "16 workers share 2 cores" in crowded.why
    crowded = verdict(COMPUTE._replace(workers=2, cores=12, world_size=8), Thresholds())
    assert "2 workers per rank share 12 cores" in crowded.why
    full = verdict(COMPUTE._replace(peak_memory_gib=78, memory_gib=80), Thresholds())
    assert "98%" in full.why


def test_a_decoder_on_the_device_is_never_called_serial():
    found = verdict(COMPUTE._replace(workers=0, decodes_on_device=True), Thresholds())
    assert "serial" not in found.why
    assert found.why.startswith("The data are ready before the device asks for them")


def test_a_long_wait_that_costs_nothing_is_called_so():
    found = verdict(COMPUTE._replace(data_wait_share=0.4), Thresholds())
    assert found.why.startswith("The wait is long, but the model alone is no faster")


def test_the_lines_are_the_studys():
    lines = Thresholds(compute_bound_wait_share=0.06)
    assert verdict(COMPUTE._replace(data_wait_share=0.05), lines).name == "compute-bound"
    lines = Thresholds(replay_gain=1.5)
    assert verdict(COMPUTE._replace(model_samples_per_s=140), lines).name == "compute-bound"


def test_out_of_memory_is_pressed_for_memory():
    cell = {"status": "out_of_memory", "cause": "The device ran out."}
    found = cell_verdict(cell, Thresholds(), None)
    assert found == ("memory-pressed", "The device ran out.")


RATE = st.none() | st.floats(0.01, 1e5)


@settings(max_examples=60, deadline=None)
@given(
    limits=st.builds(
        Limits,
        samples_per_s=st.floats(0.01, 1e5),
        data_wait_share=st.floats(0, 1),
        loader_samples_per_s=RATE,
        model_samples_per_s=RATE,
        peak_memory_gib=RATE,
        memory_gib=RATE,
        world_size=st.integers(1, 8),
        workers=st.integers(0, 16),
    )
)
def test_every_cell_gets_one_verdict_and_one_sentence(limits):
    found = verdict(limits, Thresholds())
    assert found.why.endswith(".")
    assert "None" not in found.why
    if found.name == "communication-bound":
        assert limits.world_size > 1
    if found.name == "input-bound":
        assert limits.data_wait_share >= Thresholds().input_bound_wait_share
