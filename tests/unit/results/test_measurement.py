import pytest
from msgspec.structs import replace

from feedrate.config.devices import Peak
from feedrate.config.settings import TrainSettings
from feedrate.jobs.events import Stages, Step, read_run_events
from feedrate.results.measurement import measure, step_sum
from run_folder import make_spec, rank_events, write_run

PEAKS = [
    Peak(precision="fp32", datasheet_tflops=1, source="x"),
    Peak(precision="bf16", datasheet_tflops=40, achievable_tflops=20, source="x"),
]


@pytest.fixture
def ranks(tmp_path):
    spec = make_spec()
    return read_run_events(
        write_run(tmp_path, ranks={0: rank_events(spec, 0), 1: rank_events(spec, 1, wall_s=8.0)})
    )


def test_samples_are_summed_and_the_slowest_rank_counts(ranks):
    m = measure(ranks, make_spec(), PEAKS, 7.5)
    assert m.samples == 160
    assert m.wall_s == 8.0
    assert m.samples_per_s == 20.0
    assert (m.steps, m.warmup_steps) == (10, 3)


def test_waits_are_means_of_the_ranks_and_memory_is_the_largest(ranks):
    m = measure(ranks, make_spec(), PEAKS, 7.5)
    assert m.data_wait_share == pytest.approx((1 / 5 + 1 / 8) / 2)
    assert m.peak_memory_gib == 3.0
    assert m.host_peak_memory_gib == 7.5


def test_memory_after_the_forward_pass_is_the_largest_of_the_ranks_that_tell_it(ranks):
    assert measure(ranks, make_spec(), PEAKS, None).forward_memory_gib is None
    ranks[0].stages = Stages(rank=0, steps=2, forward_memory_gib=1.5)
    assert measure(ranks, make_spec(), PEAKS, None).forward_memory_gib == 1.5
    ranks[1].stages = Stages(rank=1, steps=2, forward_memory_gib=2.5)
    assert measure(ranks, make_spec(), PEAKS, None).forward_memory_gib == 2.5


def test_the_first_step_stands_apart(ranks):
    m = measure(ranks, make_spec(), PEAKS, None)
    assert m.first_step_s == 9.0
    assert m.step_time_max_s == 0.5
    assert (m.loss_first, m.loss_last) == (2.0, 2.0 / 13)


def test_fp8_has_a_peak_of_its_own(ranks):
    spec = make_spec(kind="hpu")
    fast = replace(spec, settings=replace(spec.settings, train=TrainSettings(precision="fp8")))
    m = measure(ranks, fast, PEAKS, None)
    assert m.mfu is None
    m = measure(ranks, fast, [*PEAKS, Peak(precision="fp8", datasheet_tflops=80, source="x")], None)
    assert m.mfu == pytest.approx(10 / 80)
    half = replace(fast, settings=replace(fast.settings, train=TrainSettings(precision="bf16")))
    assert measure(ranks, half, PEAKS, None).mfu == pytest.approx(10 / 40)


def test_mfu_is_over_all_devices_at_the_precision(ranks):
    m = measure(ranks, make_spec(), PEAKS, None)
    assert m.tflops_per_device == pytest.approx(1e12 * 20 / 2 / 1e12)
    assert m.mfu == pytest.approx(10 / 40)
    assert m.mfu_achievable == pytest.approx(10 / 20)


def test_a_steps_time_is_that_of_its_slowest_rank(ranks):
    slow = ranks[1].steps[5]
    ranks[1].steps[5] = Step(rank=1, step=slow.step, step_s=2.0, data_wait_s=0.1)
    m = measure(ranks, make_spec(), PEAKS, None)
    assert m.step_time_max_s == 2.0
    assert m.step_time_median_s == 0.5
    assert m.step_time_p95_s == pytest.approx(0.5 + 0.55 * 1.5)


def with_energy(ranks, *joules):
    return {
        rank: replace(events, window=replace(events.window, energy_j=energy_j))
        for (rank, events), energy_j in zip(ranks.items(), joules, strict=True)
    }


def test_energy_is_summed_over_the_ranks(ranks):
    m = measure(with_energy(ranks, 300.0, 500.0), make_spec(), PEAKS, None)
    assert m.energy_j == 800.0
    assert m.energy_j_per_sample == 800.0 / 160
    assert m.power_w == 100.0  # over the slowest rank's 8 s


@pytest.mark.parametrize("joules", [(None, None), (300.0, None), (0.0, 0.0)])
def test_energy_of_a_part_of_the_ranks_is_none(ranks, joules):
    m = measure(with_energy(ranks, *joules), make_spec(), PEAKS, None)
    assert (m.energy_j, m.energy_j_per_sample, m.power_w) == (None, None, None)


def test_without_a_window_there_is_no_measurement(ranks):
    for events in ranks.values():
        events.window = None
    assert measure(ranks, make_spec(), PEAKS, None) is None
    assert step_sum(ranks) is None
    assert measure({}, make_spec(), PEAKS, None) is None


def test_step_times_sum_up_over_the_window_of_the_slowest_rank(ranks):
    assert step_sum(ranks) == pytest.approx(5.0)


def test_an_epoch_has_as_many_steps_as_the_rows_make(ranks):
    """480 rows for two ranks with a batch of 4; a run whose rows are unknown says nothing."""
    spec = make_spec()
    made = measure(ranks, spec, PEAKS, None)
    assert made.steps_per_epoch == 480 // spec.step_samples
    for events in ranks.values():
        events.data = None
    unknown = measure(ranks, spec, PEAKS, None)
    assert unknown.steps_per_epoch is None


def test_mfu_is_told_with_padding_and_without(ranks):
    """BridgeTower large with 128 tokens, of which 32 are real: 1.489 and 1.241 TFLOP a sample."""
    ranks[0].model = replace(
        ranks[0].model, flops_per_sample=1.489e12, flops_per_real_sample=1.241e12
    )
    m = measure(ranks, make_spec(), PEAKS, None)
    assert m.mfu_real_tokens == pytest.approx(m.mfu * 1.241 / 1.489)
    ranks[0].model = replace(ranks[0].model, flops_per_real_sample=None)
    assert measure(ranks, make_spec(), PEAKS, None).mfu_real_tokens is None


@pytest.mark.parametrize(
    ("starts", "share"),
    [((), None), ((5, 8), 2 * 0.5 / 6.0), (range(1, 14), None)],
    ids=["none", "two of ten", "each step is an epoch"],
)
def test_the_first_steps_of_epochs_are_compared_with_the_others(starts, share, ranks):
    """Ten steps of 0.5 s are in the window; those that start an epoch take 1 s."""

    def made(step):
        return replace(
            step, starts_epoch=step.step in starts, step_s=1.0 - 0.5 * (step.step not in starts)
        )

    told = {n: replace(e, steps=[made(step) for step in e.steps]) for n, e in ranks.items()}
    m = measure(told, make_spec(), PEAKS, 7.5)
    assert m.epoch_start_share == (share if share is None else pytest.approx(share))
