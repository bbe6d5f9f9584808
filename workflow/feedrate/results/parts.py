"""The parts of a run: each part's rate alone and time by stage, the slow rank, the CPU's use."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, get_args

from feedrate.config.spec import Stage
from feedrate.jobs.events import Ceiling, RankEvents
from feedrate.results.schema import Ceilings, Stages
from feedrate.results.statistics import CONFIDENCE, Noise, critical, median_interval, pooled_noise

Ranks = Mapping[int, RankEvents]
Blocks = dict[int, Ceiling]  # the blocks of one kind and round, by rank

PARTS = ("loader", "model", "exchange")
FEWEST = 20  # spans that a 95th percentile needs; of fewer it is the longest


def ceilings(ranks: Ranks) -> Ceilings:
    """The rate of each part alone, and its ratio to training in the same rounds: the median, with
    its interval on the log scale."""
    live = blocks_of(ranks, "live")
    values: dict[str, float | None] = {"live_samples_per_s": _rate(*live.values())}
    for part in PARTS:
        rounds = blocks_of(ranks, part)
        values[f"{part}_samples_per_s"] = _rate(*rounds.values())
        ratios = round_ratios(ranks, part)
        if ratios:
            values |= zip(names_of(part), median_interval(ratios, CONFIDENCE), strict=True)
    return Ceilings(rounds=len(live), **values)


def round_ratios(ranks: Ranks, part: str) -> list[float]:
    """The rate of a part over that of training, in each round."""
    live, alone = blocks_of(ranks, "live"), blocks_of(ranks, part)
    pairs = [(_rate(alone[number]), _rate(live[number])) for number in alone if number in live]
    return [rate / live_rate for rate, live_rate in pairs if rate and live_rate]


def names_of(part: str) -> tuple[str, str, str]:
    """The columns of a part's ratio to training and of its interval."""
    return f"{part}_ratio", f"{part}_ratio_low", f"{part}_ratio_high"


def over_runs(
    runs: Sequence[Mapping[str, Any]], part: str, between: Noise | None = None
) -> dict[str, float | None]:
    """The median ratio of a part to training over the runs of a cell, and its interval, by column.
    `between` is the noise of this ratio between runs, pooled over cells; None: no cell has two. Its
    excess over the noise between rounds has its own degrees of freedom (Welch, Satterthwaite)."""
    names = names_of(part)
    squares, ratios, dof = [], [], 0
    for run in runs:
        noise = round_noise(run, part)
        if noise is not None:
            squares.append(noise**2)
            ratios.append(run[names[0]])
            dof += int(run["rounds"]) - 1
    if not ratios:
        return dict.fromkeys(names)
    within = fmean(squares)
    beyond = max(between.sd**2 - within, 0.0) if between else 0.0
    square = within + beyond
    if between and beyond:
        dof = max(int(square**2 / (within**2 / dof + beyond**2 / between.dof)), 1)
    own = pooled_noise([ratios])
    sd = max(math.sqrt(square), own.sd if own else 0.0)
    ratio = median_interval(ratios, CONFIDENCE, Noise(sd, dof, between.cells if between else 1))
    return dict(zip(names, ratio, strict=True))


def round_noise(run: Mapping[str, Any], part: str) -> float | None:
    """Relative standard error of a part's ratio to training, from the rounds of a run; None for a
    single round."""
    ratio, low, high = map(run.get, names_of(part))
    rounds = run.get("rounds") or 0
    if not (ratio and low and high) or rounds < 2:
        return None
    return math.log(high / low) / 2 / critical(CONFIDENCE, int(rounds) - 1)


def blocks_of(ranks: Ranks, kind: str) -> dict[int, Blocks]:
    """The blocks of a kind by round, without rounds in which a rank is missing: some of the
    ranks do not give a rate of all."""
    rounds: dict[int, Blocks] = {}
    for rank, events in ranks.items():
        for block in events.ceilings:
            if block.kind == kind and block.samples and block.wall_s > 0:
                rounds.setdefault(block.round, {})[rank] = block
    return {number: blocks for number, blocks in rounds.items() if len(blocks) == len(ranks)}


def _rate(*rounds: Blocks) -> float | None:
    """Samples of all ranks over the slowest rank's time, of these rounds together."""
    wall_s = sum(max(block.wall_s for block in blocks.values()) for blocks in rounds)
    samples = sum(block.samples for blocks in rounds for block in blocks.values())
    return samples / wall_s if wall_s else None


def stages(ranks: Ranks) -> Stages:
    """Seconds and CPU seconds per optimizer step of each stage, mean of the ranks that reported
    it; its spans on the rank where they are slowest."""
    reports = [events.stages for events in ranks.values() if events.stages]
    values: dict[str, float | None] = {}
    slowest: dict[str, dict[str, Any]] = {}
    for name in get_args(Stage):
        values[f"{name}_s"] = of_known(fmean, (rank.seconds.get(name) for rank in reports))
        spans = [rank.spans[name] for rank in reports if name in rank.spans]
        values[f"{name}_cpu_s"] = of_known(fmean, (span.get("cpu_s") for span in spans))
        if spans:
            slowest[name] = max(spans, key=lambda span: float(span["p95_s"]))
            if slowest[name]["count"] >= FEWEST:
                values[f"{name}_p95_s"] = slowest[name]["p95_s"]
    not_split = list(dict.fromkeys(stage for rank in reports for stage in rank.not_split))
    fields = {name: value for name, value in values.items() if name in Stages.__struct_fields__}
    return Stages(**fields, not_split=not_split, spans=slowest)


def of_known(combine: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    """Combine the values that are known; None where there is none."""
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def slow_rank(ranks: Ranks) -> dict[str, Any]:
    """The rank that needs longest by itself, and the lower end of its time's ratio to the median of
    the other ranks. Ranks that exchange gradients end each step together; only what a rank does by
    itself tells it apart: it waits for data (in the window), and computes (the model alone)."""
    rounds = blocks_of(ranks, "model").values()
    windows = {rank: e.window for rank, e in ranks.items() if e.window and e.window.samples}
    if not rounds or len(windows) < max(2, len(ranks)):
        return {}
    own_s = {}  # by rank, of each round
    for rank, window in windows.items():
        wait_s = window.data_wait_s / window.samples
        own_s[rank] = [wait_s + blocks[rank].wall_s / blocks[rank].samples for blocks in rounds]
    slowest = max(own_s, key=lambda rank: median(own_s[rank]))
    slowest_s = own_s.pop(slowest)
    others_s = map(median, zip(*own_s.values(), strict=True))
    ratios = [time_s / other_s for time_s, other_s in zip(slowest_s, others_s, strict=True)]
    return {"slow_rank": slowest, "slow_rank_ratio_low": median_interval(ratios, CONFIDENCE).low}


def counter_changes(events: RankEvents) -> dict[str, float]:
    """By how much the host's counters increased in the window; empty where an end is missing."""
    if len(events.machines) != 2:
        return {}
    start, end = (machine.host for machine in events.machines)
    return {name: value - start[name] for name, value in end.items() if name in start}


def busy_shares(ranks: Ranks) -> dict[str, Any]:
    """Shares of the window in which the idlest device ran a kernel, of the granted cores' time that
    the job used, and of the runnable time of its threads in which they waited for a core."""
    ends = [events.machines[1] for events in ranks.values() if len(events.machines) == 2]
    busy: list[Any] = [end.device.get("busy") for end in ends]
    changes = [counter_changes(events) for events in ranks.values()]
    used_s = sum(change.get("job_cpu_s", 0.0) for change in changes)
    waited_s = sum(change.get("job_waited_s", 0.0) for change in changes)
    cores = {e.start.host: e.start.cores_granted or 0 for e in ranks.values() if e.start}
    granted_s = sum(cores.values()) * max(e.window.wall_s for e in ranks.values() if e.window)
    return {
        "device_busy_share": min(busy) if busy and None not in busy else None,
        "cores_busy_share": used_s / granted_s if used_s and granted_s else None,
        "cores_waited_share": waited_s / (used_s + waited_s) if waited_s and used_s else None,
    }


def foreign_cpu(ranks: Ranks) -> tuple[float, float]:
    """The share of its cores' time that other processes used, and the share that was idle, of the
    ranks that others disturbed most. Ranks on the same cores count together."""
    groups: dict[tuple[str | None, str | None], list[dict[str, float]]] = {}
    for events in ranks.values():
        change = counter_changes(events)
        if events.start and change.get("cores_s"):
            groups.setdefault((events.start.host, events.start.cores), []).append(change)
    worst = (0.0, 1.0)
    for changes in groups.values():
        cores_s = median(change["cores_s"] for change in changes)
        busy_s = median(change["cores_busy_s"] for change in changes)
        own_s = sum(change["job_cpu_s"] for change in changes)
        worst = max(worst, ((busy_s - own_s) / cores_s, 1 - busy_s / cores_s))
    return worst
