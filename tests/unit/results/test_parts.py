"""Each part alone, the slow rank, and the CPU time of others."""

import math
import random

import pytest
from msgspec.structs import replace

from feedrate.jobs.events import Ceiling, Machine, RankEvents, Stages, Start, Window
from feedrate.results.parts import busy_shares, ceilings, foreign_cpu, over_runs, slow_rank, stages
from feedrate.results.statistics import Noise, median_interval, pooled_noise


def block(rank, kind, number, wall_s, samples=80):
    return Ceiling(rank=rank, kind=kind, round=number, samples=samples, wall_s=wall_s)


def window(rank=0, wait_s=0.0):
    return Window(
        rank=rank, first_step=3, last_step=12, steps=10, samples=40, wall_s=10, data_wait_s=wait_s
    )


def one_rank(*blocks):
    return {0: RankEvents(ceilings=[block(0, *one) for one in blocks], window=window())}


def test_a_ratio_is_between_blocks_of_the_same_round():
    """The machine becomes slower from round to round: the ratio does not."""
    rounds = [(kind, n, n * base) for n in (1, 2, 4) for kind, base in (("live", 2), ("model", 1))]
    found = ceilings(one_rank(*rounds))
    assert found.model_ratio == pytest.approx(2)
    assert found.model_ratio_low == pytest.approx(2)
    assert found.model_ratio_high == pytest.approx(2)
    assert found.live_samples_per_s == pytest.approx(240 / 14)
    assert found.model_samples_per_s == pytest.approx(240 / 7)
    assert (found.loader_ratio, found.exchange_ratio) == (None, None)


def test_the_interval_is_wide_where_rounds_differ():
    walls_s = (1.0, 1.2, 0.9, 1.1)
    rounds = [("live", n, 1.0) for n in range(4)] + [("model", n, s) for n, s in enumerate(walls_s)]
    found = ceilings(one_rank(*rounds))
    assert found.model_ratio_low < 0.95
    assert found.model_ratio_high > 1.02


def two_ranks(slow_s=1.0, waits_s=(0.0, 0.0)):
    """Two ranks of three rounds, in which rank 1 computes for `slow_s`."""
    return {
        rank: RankEvents(
            window=window(rank, waits_s[rank]),
            ceilings=[
                block(rank, kind, n, slow_s if rank and kind == "model" else 1.0)
                for n in range(3)
                for kind in ("live", "model")
            ],
        )
        for rank in (0, 1)
    }


def test_rates_are_of_all_ranks_and_of_the_slowest():
    found = ceilings(two_ranks(slow_s=2.0))
    assert found.live_samples_per_s == pytest.approx(160)
    assert found.model_samples_per_s == pytest.approx(80)


def test_a_round_that_a_rank_did_not_finish_does_not_count():
    ranks = two_ranks()
    ranks[1].ceilings = [c for c in ranks[1].ceilings if (c.kind, c.round) != ("model", 2)]
    assert ceilings(ranks).model_samples_per_s == pytest.approx(160)
    ranks[1].ceilings = []
    found = ceilings(ranks)
    assert (found.model_samples_per_s, found.model_ratio) == (None, None)


def test_the_rank_that_computes_longer():
    found = slow_rank(two_ranks(slow_s=1.5))
    assert found["slow_rank"] == 1
    assert found["slow_rank_ratio_low"] == pytest.approx(1.5)


def test_the_rank_that_waits_longer():
    """A block of 80 samples takes 1 s; in the window 40 samples wait for 1 or 0.25 s."""
    found = slow_rank(two_ranks(waits_s=(1.0, 0.25)))
    assert found["slow_rank"] == 0
    assert found["slow_rank_ratio_low"] == pytest.approx((1 / 80 + 1 / 40) / (1 / 80 + 0.25 / 40))


def test_a_rank_that_counted_no_sample_is_compared_with_nobody():
    ranks = two_ranks()
    ranks[1].window = replace(ranks[1].window, samples=0)
    assert slow_rank(ranks) == {}


def test_stages_are_means_of_the_ranks():
    told = [{"read": 1.0, "copy": 0.2}, {"read": 3.0}, {"a later stage": 1.0}]
    ranks = {
        rank: RankEvents(stages=Stages(rank=rank, steps=5, seconds=seconds))
        for rank, seconds in enumerate(told)
    }
    found = stages(ranks)
    assert (found.read_s, found.copy_s, found.decode_s) == (2.0, 0.2, None)
    assert stages({0: RankEvents()}).read_s is None


def test_tails_are_those_of_the_slowest_rank():
    def told(rank, p95_s, cpu_s, count=100):
        spans = {"read": {"p95_s": p95_s, "cpu_s": cpu_s, "count": count}}
        seconds = {"open": 0.5, "read": 1.0, "decode": 4.0, "collate": 0.25}
        stages = Stages(rank=rank, steps=5, seconds=seconds, spans=spans, not_split=["resize"])
        return RankEvents(stages=stages)

    found = stages({0: told(0, 0.1, 2.0), 1: told(1, 0.3, 4.0)})
    assert (found.read_p95_s, found.read_cpu_s, found.spans["read"]["p95_s"]) == (0.3, 3.0, 0.3)
    assert found.not_split == ["resize"]
    few = stages({0: told(0, 0.1, 2.0, count=19)})
    assert (few.read_p95_s, few.spans["read"]["p95_s"]) == (None, 0.1)


def counted(rank, cores, used_s, busy_s=8.0, whole_s=8.0):
    """A rank that used `used_s` of the time of its cores, which were busy for `busy_s`."""
    counters = {"cores_s": whole_s, "cores_busy_s": busy_s, "job_cpu_s": used_s}
    ends = [
        Machine(rank=rank, host={n: share * s for n, s in counters.items()}) for share in (1, 2)
    ]
    start = Start(rank=rank, world_size=2, host="a", cores=cores, cores_granted=2)
    return RankEvents(start=start, machines=ends, window=window(rank))


def test_the_cpu_time_of_ranks_on_the_same_cores_is_added():
    together = {0: counted(0, "0-1", 4.0), 1: counted(1, "0-1", 3.0)}
    assert foreign_cpu(together) == pytest.approx((0.125, 0.0))
    apart = {0: counted(0, "0", 4.0, busy_s=4.0, whole_s=4.0), 1: counted(1, "1", 3.0, 6.0, 12.0)}
    assert foreign_cpu(apart) == pytest.approx((0.25, 0.5))


def test_the_jobs_own_share_of_its_cores():
    ranks = {0: counted(0, "0-1", 12.0), 1: counted(1, "0-1", 6.0)}
    assert busy_shares(ranks)["cores_busy_share"] == pytest.approx(18 / 20)
    unknown = dict.fromkeys(("device_busy_share", "cores_busy_share", "cores_waited_share"))
    assert busy_shares(ranks) == unknown | {"cores_busy_share": pytest.approx(18 / 20)}
    assert busy_shares({0: RankEvents(window=window())}) == unknown


def test_the_wait_for_a_core_is_a_share_of_the_time_in_which_threads_could_run():
    ranks = {rank: counted(rank, "0-1", 6.0) for rank in (0, 1)}
    for one in ranks.values():
        start, end = one.machines
        one.machines[:] = [
            replace(start, host=start.host | {"job_waited_s": 1.0}),
            replace(end, host=end.host | {"job_waited_s": 3.0}),
        ]
    assert busy_shares(ranks)["cores_waited_share"] == pytest.approx(4 / (12 + 4))


def test_the_idlest_device_counts_if_all_are_known():
    ranks = {rank: counted(rank, "0-1", 4.0) for rank in (0, 1)}
    for rank, busy in enumerate((0.9, 0.6)):
        ranks[rank].machines[1] = replace(ranks[rank].machines[1], device={"busy": busy})
    assert busy_shares(ranks)["device_busy_share"] == 0.6
    ranks[0].machines[1] = replace(ranks[0].machines[1], device={"busy": None})
    assert busy_shares(ranks)["device_busy_share"] is None


COLUMNS = ("model_ratio", "model_ratio_low", "model_ratio_high", "rounds")


def run_with(ratio: float, half: float, rounds: int = 4) -> dict[str, float]:
    """A run's columns of the model's ratio to training."""
    return {
        "model_ratio": ratio,
        "model_ratio_low": ratio / (1 + half),
        "model_ratio_high": ratio * (1 + half),
        "rounds": rounds,
    }


def test_the_rounds_of_all_runs_count_for_a_cell():
    runs = [run_with(ratio, 0.2) for ratio in (1.19, 1.2, 1.21)]
    found = over_runs(runs, "model")
    assert found["model_ratio"] == pytest.approx(1.2)
    assert 1.1 < found["model_ratio_low"] < 1.2 < found["model_ratio_high"] < 1.31
    assert min(run["model_ratio_low"] for run in runs) < 1.1, "no run alone decides"


@pytest.mark.parametrize(("runs", "least"), [(2, 0.89), (3, 0.92)])
@pytest.mark.parametrize("between", [0.0, 0.01, 0.04])
def test_the_interval_over_runs_covers_if_runs_differ(runs, least, between):
    chance, covered = random.Random(1), []
    for _ in range(100):
        cells = []
        for _ in range(4):
            levels = [math.exp(chance.gauss(0, between)) for _ in range(runs)]
            rounds = [
                [level * math.exp(chance.gauss(0, 0.02)) for _ in "12345"] for level in levels
            ]
            found = [median_interval(ratios, 0.95) for ratios in rounds]
            cells.append([dict(zip(COLUMNS, (*one, 5), strict=True)) for one in found])
        noise = pooled_noise([[run["model_ratio"] for run in cell] for cell in cells])
        for cell in cells:
            _, low, high = over_runs(cell, "model", noise).values()
            covered.append(low <= 1 <= high)
    assert sum(covered) / len(covered) >= least


def test_runs_that_differ_by_more_than_their_rounds_explain_widen_the_interval():
    runs = [run_with(ratio, 0.02) for ratio in (1.19, 1.2, 1.21)]
    alike, apart = (over_runs(runs, "model", Noise(sd, 8)) for sd in (0.001, 0.1))
    assert alike == over_runs(runs, "model")
    assert alike["model_ratio_low"] > 1.15
    assert apart["model_ratio_low"] < 1.1
