"""Verdicts: the limit of a cell, from its wait for data and its ceilings."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from feedrate.config.study import Study, Thresholds
from feedrate.results.comparability import computes_the_same
from feedrate.results.files import Row
from feedrate.results.parts import PARTS, names_of
from feedrate.results.recommendation import OK_RATES
from feedrate.results.statistics import (
    Estimate,
    Noises,
    assumed_noise,
    median_interval,
    ratio_interval,
    ratio_text,
)

Name = Literal[
    "input-bound", "compute-bound", "launch-bound", "memory-limited", "communication-bound",
    "core-bound", "rank-bound", "mixed", "undecided",
]  # fmt: skip

CORES_FULL = 0.90
"""Share of its cores' time from which a job lacks cores."""
CORES_WAITED = 0.15
"""The same for its threads' wait for a core. Clean runs show 2 to 11%, a worker
that takes 80% of a core from the model 18%."""
DEVICE_BUSY = 0.90
"""Share of the time with a kernel from which a device that never waits for data is busy."""

COPIES_SHOW = 0.01
"""Share of the time from which the sentence gives the time of copies."""

READY = "The data are ready before the device asks for them"
STARTS = "the first steps of epochs take"
"""Words in the reason of each verdict that rests on the starts of epochs."""
START_LESS = "Try longer epochs or, where workers end with each epoch, persistent_workers."
"""What to do where such a verdict is input-bound."""
UNSURE = "The measurement does not decide whether"
MODEL_OPEN = f"{UNSURE} the model alone"


class Verdict(NamedTuple):
    """The limit of a cell, and the reason in a sentence."""

    name: Name | Literal[""]
    why: str


def cell_verdict(cell: Row, lines: Thresholds, memory_gib: float | None) -> Verdict:
    """The verdict of a cell's row, by the first rule of docs/results.md that applies; `memory_gib`
    is the device's, as registered. A ratio is above or below a line if its whole interval is. If
    the line lies inside, or a needed ceiling was not measured, the cell is undecided."""
    if cell["status"] == "out_of_memory":
        return Verdict("memory-limited", cell["cause"])
    if cell["status"] != "ok":
        return Verdict("", cell["cause"])
    if cell["task"] == "inference":  # no loader runs in parallel, and no part is measured alone
        return Verdict("", "")
    has_gib = memory_gib and (cell.get("device_memory_gib") or memory_gib)
    name, reason = _decide(cell, lines, _over(cell["peak_memory_gib"], has_gib) or 0.0)
    return Verdict(name, f"{reason}: {', '.join(_figures(cell, has_gib))}.")


def ratios(row: Row) -> dict[str, Estimate | None]:
    """The rate of each part alone over the training rate; no interval if it was measured once."""
    found: dict[str, Estimate | None] = {}
    for part in PARTS:
        ratio, low, high = (row.get(name) for name in names_of(part))
        ratio = ratio or _over(row.get(f"{part}_samples_per_s"), row["samples_per_s"])
        found[part] = Estimate(ratio, low, high) if ratio else None
    return found


def below_rate(cell: Row, others: Iterable[Estimate] = ()) -> str:
    """The ceilings of a cell that lie below its rate by more than their interval, separated by `;`;
    the model alone also if it lies below one of `others`, the rates of cells that compute the same
    over this cell's."""
    parts = ratios(cell)
    below = {name: bool(one and one.high and one.high < 1) for name, one in parts.items()}
    if model := parts["model"]:
        below["model"] |= any(_exceeds(other, model) for other in others)
    return ";".join(name for name, found in below.items() if found)


def faster_cells(cell: Row, cells: Sequence[Row], study: Study, noise: Noises) -> list[Estimate]:
    """The rates of cells that compute the same as a cell and are faster than its model alone, over
    its own rate, with intervals that hold together (and assumed noise of single runs)."""
    limit = (cell["model_ratio"] or math.inf) * (cell["samples_per_s"] or math.inf)
    if all((other["samples_per_s"] or 0.0) <= limit for other in cells):
        return []
    near = (c for c in cells if c is not cell and c["device"] == cell["device"])
    others = [c for c in near if c["samples_per_s"] and computes_the_same(study.factors, c, cell)]
    confidence, share = study.thresholds.confidence, study.thresholds.noise_share
    known = noise.get((cell["study"], cell["device"]))
    found = []
    for other in others:
        if other["samples_per_s"] > limit:
            between = known or assumed_noise(share, (cell["block_noise"], other["block_noise"]))
            rates = other[OK_RATES], cell[OK_RATES]
            found.append(ratio_interval(*rates, confidence, between, len(others)))
    return found


def _exceeds(rate: Estimate, ceiling: Estimate) -> bool:
    """Whether a rate is above a ceiling by more than both intervals, which are on the logarithm."""
    if rate.low is None or ceiling.high is None:
        return False
    errors = math.log(rate.value / rate.low), math.log(ceiling.high / ceiling.value)
    return math.log(rate.value / ceiling.value) > math.hypot(*errors)


def _bounds(cell: Row) -> dict[str, Estimate | None]:
    """`ratios`. The ratio of the model alone has no upper end (infinity) where another cell shows
    that it is not a ceiling, and its own interval does not: it is then a lower bound."""
    parts = ratios(cell)
    flagged = "model" in (cell.get("below_rate") or "").split(";")
    if flagged and (model := parts["model"]) and model.high is not None and model.high >= 1:
        parts["model"] = model._replace(high=math.inf)
    return parts


def _decide(cell: Row, lines: Thresholds, memory_share: float) -> tuple[Name, str]:
    parts, wait, serial = _bounds(cell), _wait(cell), _serial(cell)
    loader, model = parts["loader"], parts["model"]
    faster, headroom = _above(model, lines.replay_gain), _above(loader, lines.headroom)
    long = wait >= lines.input_bound_wait_share
    slow, longer = cell.get("slow_rank"), cell.get("slow_rank_ratio_low") or 0
    if slow is not None and longer >= lines.replay_gain:
        times = f"its waiting and computing take at least {longer:.2f} times as long"
        return "rank-bound", f"Rank {slow} holds up the others: {times}"
    started, starts = _starts(cell, lines)
    if started:
        return "input-bound", starts
    if (cell["world_size"] or 1) > 1 and faster and not long and _exchange_explains(parts, lines):
        return "communication-bound", "There is little wait, but together the ranks train slower"
    if headroom and not serial and _lacks_cores(cell, model, lines):
        return "core-bound", "Loader and model share too few cores: each alone is faster"
    if long and faster:
        return "input-bound", "The device waits for data"
    if faster is None and (by_wait := _by_wait(cell, loader, model, lines)):
        return by_wait
    if started is None:
        return "undecided", starts
    if memory_share >= lines.memory_limited_share and not long:
        return "memory-limited", "The device's memory is nearly full"
    if wait > lines.compute_bound_wait_share and not long:
        return "mixed", "Loading and computing both cost time"
    if faster is None and _nothing_else(cell, loader, lines):
        return _computes(cell, "Loading takes hardly any CPU time")
    if faster is None:
        return "undecided", _open("model", model, lines.replay_gain)
    if long or faster:
        long_wait = "The wait is long, but the model alone is no faster"
        return "mixed", long_wait if long else "There is little wait, yet the model alone is faster"
    if _above(model, 1 / lines.replay_gain) is False:
        return "undecided", "The model alone is slower than training, so it shows no limit"
    if headroom is None and not serial:
        return "undecided", _open("loader", loader, lines.headroom)
    if not (headroom or serial):
        return "mixed", "There is little wait, but the loader has little headroom"
    return _computes(cell)


def _by_wait(
    cell: Row, loader: Estimate | None, model: Estimate | None, lines: Thresholds
) -> tuple[Name, str] | None:
    """The verdict from a wait that counts without the model alone; None where it is short."""
    waits, serial = _assumed(_wait(cell), cell, lines), _serial(cell)
    # The loader explains the wait if, in parallel, it is hardly faster alone, or, serial, takes as
    # large a share of each step. A process that computes and waits in turn loses all its waits;
    # with a parallel loader, the model alone must have been measured, even if it decided nothing.
    line = 1 / lines.input_bound_wait_share if serial else lines.headroom
    measured = model is not None and model.low is not None
    counts = _above(loader, line) is False or (_synchronous(cell) and (serial or measured))
    long = _above(waits, lines.input_bound_wait_share)
    if not (waits and counts) or long is False:
        return None
    if long:
        reason = f"The device waits for data. {_open('model', model, lines.replay_gain)}"
        return "input-bound", reason
    return "undecided", _unsure("the device waits", waits, lines)


def _computes(cell: Row, ready: str = READY) -> tuple[Name, str]:
    """The limit of a cell without wait whose model alone is no faster. On a CPU the host does not
    launch work for another device."""
    reason = "Loading hardly adds to the step" if _serial(cell) else ready
    busy = cell.get("device_busy_share")
    if busy is None and _synchronous(cell):
        return "compute-bound", reason
    if busy is None:
        unknown = "whether the device is busy or waits for launches was not measured"
        return "compute-bound", f"{reason} ({unknown})"
    if busy >= DEVICE_BUSY:
        return "compute-bound", f"{reason}, and the device runs a kernel {busy:.0%} of the time"
    kernels = f"the device runs a kernel only {busy:.0%} of the time"
    return "launch-bound", f"{reason}, but {kernels}: it waits for the host to launch its work"


def _starts(cell: Row, lines: Thresholds) -> tuple[bool | None, str]:
    """Whether the first steps of epochs take long (None: undecided), and the reason."""
    extra = _assumed(cell.get("epoch_start_share") or 0.0, cell, lines)
    if extra is None:
        return False, ""
    long = _above(extra, lines.input_bound_wait_share)
    if long is None:
        return None, _unsure(f"{STARTS} an extra", extra, lines)
    longer = f"{STARTS} an extra {extra.value:.1%} of the time"
    return long, f"The loader starts again with every epoch, and {longer}"


def _assumed(share: float, cell: Row, lines: Thresholds) -> Estimate | None:
    """A share of the time with an interval by the noise assumed for single runs; None for 0."""
    noise = assumed_noise(lines.noise_share, [cell.get("block_noise")])
    runs = cell.get("ok_runs") or 1
    return median_interval([share] * runs, lines.confidence, noise) if share else None


def _unsure(what: str, share: Estimate, lines: Thresholds) -> str:
    """The reason why a share of the time with such an interval decides nothing."""
    ends = f"{share.low:.1%} to {share.high:.1%}"
    measured = f"{share.value:.1%}; with the noise assumed for runs, {ends}"
    return f"{UNSURE} {what} {lines.input_bound_wait_share:.0%} of the time or more ({measured})"


def _serial(cell: Row) -> bool:
    """Whether the process that trains also loads. A device that decodes loads in a thread."""
    return cell["loader_workers"] == 0 and not cell["decodes_on_device"]


def _lacks_cores(cell: Row, model: Estimate | None, lines: Thresholds) -> bool:
    """Whether the job's threads keep its cores full, or wait for a free one, and the model alone is
    certainly faster and, by its estimate, faster by at least `replay_gain`."""
    if model is None or (model.low or 0.0) <= 1 or model.value < lines.replay_gain:
        return False
    busy, waited = cell.get("cores_busy_share") or 0.0, cell.get("cores_waited_share") or 0.0
    return bool(busy >= CORES_FULL or waited >= CORES_WAITED)


def _synchronous(cell: Row) -> bool:
    """Whether nothing runs while a process waits for data: a CPU has no queue of work."""
    return cell.get("device_kind") == "cpu"


def _wait(cell: Row) -> float:
    """Share of the time spent waiting for data; copies count where nothing else runs meanwhile."""
    copies = cell.get("copy_wait_share") or 0.0 if _synchronous(cell) else 0.0
    return float(cell["data_wait_share"] + copies)


def _nothing_else(cell: Row, loader: Estimate | None, lines: Thresholds) -> bool:
    """Whether a short wait leaves only computing as the limit, without the model alone: one rank
    computes synchronously, and a parallel loader takes hardly any time from the model's cores."""
    fast = loader is not None and (loader.low or 0.0) >= 1 / lines.compute_bound_wait_share
    return _synchronous(cell) and cell["world_size"] == 1 and (_serial(cell) or fast)


def _exchange_explains(parts: dict[str, Any], lines: Thresholds) -> bool:
    """Whether exchanging gradients takes at least half of the time that is lost (by the ends of the
    intervals that are against it) or, where the exchange was not measured, the loss is large."""
    model, exchange = parts["model"], parts["exchange"]
    if exchange is None or exchange.high is None:
        return bool(_above(model, lines.headroom))
    return bool(1 / exchange.high >= (1 - 1 / model.high) / 2)


def _above(ratio: Estimate | None, line: float) -> bool | None:
    """Whether a ratio's interval lies at or above a line (true) or below it (false)."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return True if ratio.low >= line else False if ratio.high < line else None


def _open(part: str, ratio: Estimate | None, line: float) -> str:
    """The reason why the ratio of a part alone decides nothing."""
    if ratio is None or ratio.low is None:
        return f"The {part} alone was {'not measured' if ratio is None else 'measured only once'}"
    return f"{UNSURE} the {part} alone is at least {line:g} times as fast as training"


def _figures(cell: Row, has_gib: float | None) -> Iterator[str]:
    """The figures behind the decision, in words."""
    parts = ratios(cell)
    yield f"{cell['data_wait_share']:.1%} of the time is spent waiting for batches"
    if (copying := cell.get("copy_wait_share") or 0.0) >= COPIES_SHOW:
        yield f"{copying:.1%} copying them to the device"
    alone = []
    for name in ("model", "loader"):
        if ratio := parts[name]:
            text = f"the {name} alone runs at {ratio_text(ratio.value)} times"
            if ratio.low and ratio.high:
                text += f" ({ratio_text(ratio.low)} to {ratio_text(ratio.high)})"
            alone.append(text)
    if alone:
        rounds = any(cell.get(f"{name}_ratio") for name in PARTS)
        of = "training in the same rounds" if rounds else "the window"
        yield f"{' and '.join(alone)} the rate of {of}"
    if (model := _bounds(cell)["model"]) and model.high == math.inf:
        faster = "another setting that computes the same trains faster"
        yield f"the model alone is not a ceiling: {faster}"
    if _serial(cell):
        yield "without workers the loader is serial, so its time adds to the model's"
    if cell["oversubscribed"]:
        loaders = cell["loader_workers"] * cell["world_size"] // (cell.get("nodes") or 1)
        text = f"{loaders} workers share CPU cores: {cell['cores_granted']}"
        if cell.get("epoch_start_share") is None and (cell.get("steps_per_epoch") or 0) > 1:
            text += " (no epoch starts in the window, so the time to restart them is not seen)"
        yield text
    if (full := cell.get("cores_busy_share")) is not None:
        yield f"the job keeps its cores busy {full:.0%} of the time"
    if (waited := cell.get("cores_waited_share")) is not None:
        yield f"its threads waited for a core {waited:.0%} of the time in which they could run"
    if used := _over(cell["peak_memory_gib"], has_gib):
        held = _over(cell.get("reserved_memory_gib"), has_gib)
        text = "" if held is None else f" (the allocator holds {held:.0%})"
        yield f"{used:.0%} of the device's memory is used at the peak{text}"


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
