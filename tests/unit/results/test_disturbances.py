"""What else ran on the machine during a window, and batches that were loaded before it."""

import pytest
from msgspec.structs import replace
from record_builder import a_device, make_measurement, make_spec

from feedrate.jobs.events import Machine, Program, RankEvents, Start, Window
from feedrate.results.conformity import (
    Evidence,
    cause_kind,
    disturbances,
    head_starts,
    merge_causes,
    undisturbed,
)
from feedrate.results.schema import Ceilings
from tiny_spec import tiny_spec


def window_of(start=None, end=None, host=None):
    """The events of a window of 4 s with these readings."""
    counters = {"cpu_wanted_s": 10.0} | (host or {})
    ends = [
        Machine(rank=0, device=start or {}, host=dict.fromkeys(counters, 50.0)),
        Machine(rank=0, device=end or {}, host={name: 50 + s for name, s in counters.items()}),
    ]
    window = Window(rank=0, first_step=3, last_step=12, steps=10, samples=40, wall_s=4.0)
    start_event = Start(rank=0, world_size=1, host="a", cores="0-1")
    return {0: RankEvents(start=start_event, machines=ends, window=window)}


@pytest.mark.parametrize(
    ("readings", "certain", "possible"),
    [
        ({}, 0, 0),
        ({"start": {"slowed_by": ["heat"]}}, 1, 0),
        ({"end": {"slowed_by": ["heat"]}}, 1, 0),
        ({"start": {"slowed_by": ["heat"]}, "end": {"slowed_by": ["heat"]}}, 1, 0),
        ({"end": {"limited_by": ["a clock that was set"]}}, 0, 1),
        ({"end": {"others": 1, "others_busy": 0.0}}, 0, 1),
        ({"end": {"others": 1, "others_busy": 0.3}}, 1, 1),
        # What others did before the window does not count.
        ({"start": {"others": 0, "others_busy": 0.3}}, 0, 0),
        ({"host": {"cpu_stolen_s": 0.1}}, 0, 0),  # of 10 s
        ({"host": {"cpu_stolen_s": 0.3}}, 0, 1),
        ({"host": {"cpu_stolen_s": 1.5}}, 1, 0),
        ({"host": {"memory_waited_s": 0.3}}, 0, 0),  # of 4 s
        ({"host": {"memory_waited_s": 0.5}}, 0, 1),
        ({"host": {"cores_s": 8.0, "cores_busy_s": 8.0, "job_cpu_s": 7.5}}, 0, 0),
        ({"host": {"cores_s": 8.0, "cores_busy_s": 8.0, "job_cpu_s": 7.0}}, 0, 1),
        # A busy process took one core of two from the job.
        ({"host": {"cores_s": 8.0, "cores_busy_s": 8.0, "job_cpu_s": 5.0}}, 1, 0),
        # It took a core that the job left idle, and others are idle still.
        ({"host": {"cores_s": 8.0, "cores_busy_s": 5.0, "job_cpu_s": 1.0}}, 0, 1),
        ({"host": {"cpu_waited_s": 4.0, "io_waited_s": 4.0}}, 0, 0),  # the job's own, perhaps
    ],
)
def test_what_disturbs_and_what_may(readings, certain, possible):
    ranks = window_of(**readings)
    found = disturbances(ranks)
    assert tuple(map(len, found)) == (certain, possible)
    assert all(sentence.endswith(".") for sentences in found for sentence in sentences)
    evidence = Evidence(make_spec(), make_measurement(), a_device(), ranks)
    passed, told = undisturbed(evidence)
    assert passed is not bool(certain)
    assert all(sentence in told for sentence in found[0] or found[1])
    assert ("No disturbance" in told) is (certain + possible == 0)


@pytest.mark.parametrize(
    ("stolen_s", "bound"),
    [(1.5, "15%{}; without that, the rate would be up to 60% higher."), (4.0, "40%{}.")],
)
def test_stolen_time_bounds_the_rate_without_it_while_it_is_shorter_than_the_window(
    stolen_s, bound
):
    """Of a window of 4 s: 4 / (4 - 1.5) = 1.6."""
    (sentence,), _ = disturbances(window_of(host={"cpu_stolen_s": stolen_s}))
    assert sentence == f"The hypervisor gave {bound.format(' of the CPU time to other guests')}"


def test_the_programs_that_disturbed_are_named_with_their_shares():
    ranks = window_of(host={"cores_s": 8.0, "cores_busy_s": 8.0, "job_cpu_s": 4.0})
    start, end = ranks[0].machines
    programs = [Program("python3", 123, 3.2), Program("chromium", 0, 0.8)]
    ranks[0].machines[:] = [start, replace(end, programs=programs)]
    (sentence,), _ = disturbances(ranks)
    assert "50%" in sentence
    assert sentence.endswith(": python3 (pid 123, 40%), chromium (10%).")


def test_causes_of_one_kind_are_one_sentence_with_ranges_and_programs():
    used = "Other programs used {} of the time of the job's CPU cores{}.".format
    causes = [
        used("50%", ": python3.11 (pid 123, 40%), Web Content (12%)"),
        used("60%", ": python3.11 (pid 456, 55%)"),
        used("55%", ""),
    ]
    assert len({cause_kind(cause) for cause in causes}) == 1
    assert merge_causes(causes) == used("50% to 60%", ": python3.11, Web Content")
    assert merge_causes(causes[:1]) == causes[0]
    assert merge_causes([used("7%", ""), used("9%", "")]) == used("7% to 9%", "")


@pytest.mark.parametrize(
    ("kind", "loader", "of_epoch", "loader_ratio", "share"),
    [
        ("cpu", {"workers": 16}, 60, None, 45),  # 32 batches at the start, 14 at the end, of 40
        ("cpu", {"workers": 16}, 80, None, 0),  # the epoch is long enough
        ("cpu", {"workers": 16}, 46, None, 80),  # it ends with the window
        ("cpu", {"workers": 16}, 6, None, 0),  # the window begins with an epoch
        ("cpu", {"workers": 0}, 46, None, 0),
        ("cpu", {"workers": 2}, 46, None, 10),
        ("cpu", {"workers": 2}, 60, None, 0),
        ("cpu", {"workers": 16}, 60, 2.0, 45),  # on a CPU it takes the model's cores
        ("cuda", {"workers": 16}, 60, 2.0, 0),
        ("cuda", {"workers": 16}, 60, 0.9, 45),
        ("cpu", {"workers": 16}, None, None, 0),
    ],
)
def test_batches_that_were_loaded_before_the_window_are_told(
    kind, loader, of_epoch, loader_ratio, share
):
    spec = tiny_spec(kind=kind, loader=loader)
    measured = make_measurement(steps=40, warmup_steps=6, steps_per_epoch=of_epoch)
    told = head_starts(spec, measured, Ceilings(loader_ratio_low=loader_ratio))
    assert len(told) == (1 if share else 0)
    assert all(f" {share}% of the window's batches" in sentence for sentence in told)
