"""The gain of a change: virtual speed-ups, and the rate after a real change of a setting.

Two rules predict a rate from what was measured before the change. A part (the loader, the model)
that the change affects is taken from another cell that has it.

- `parts`: the rate changes as the rate that follows from the parts alone (`Parts.rate`).
- `virtual`: a faster loader saves what a virtual speed-up of one of its stages saved
  (C. Curtsinger and E. Berger, "Coz", SOSP 2015), times the ratio of the times that the two save.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median
from typing import Literal, NamedTuple, get_args

import msgspec

from feedrate.config.spec import LoadingStage, RunSpec
from feedrate.jobs.events import RankEvents
from feedrate.results.fitting import predict
from feedrate.results.record import Record
from feedrate.results.statistics import Estimate, median_interval

CONFIDENCE = 0.95
LOADING = get_args(LoadingStage)
"""The stages of the loader."""
Rule = Literal["parts", "virtual"]


class Parts(NamedTuple):
    """Seconds of a sample in one loader process and in the model, each alone, and the CPU seconds
    of both (0: unknown)."""

    load_s: float
    model_s: float
    load_cpu_s: float = 0.0
    model_cpu_s: float = 0.0

    def rate(self, workers: int, cores: float) -> float:
        """Samples/s of training: of the loader model (fitting.predict), and with workers at most
        what the host's cores can load and compute at the same time."""
        found = predict(workers, self.model_s, self.load_s)
        known = workers and self.load_cpu_s and self.model_cpu_s
        return min(found, cores / (self.load_cpu_s + self.model_cpu_s)) if known else found


class Cell(NamedTuple):
    """The ok runs of a cell on one machine, with the events of their only rank."""

    spec: RunSpec
    records: list[Record]
    events: list[RankEvents]

    @property
    def samples_per_s(self) -> float:
        """Median of the runs."""
        return median(r.measurement.samples_per_s for r in self.records if r.measurement)

    @property
    def cores(self) -> float:
        """Cores that the loader and the model share."""
        return min(record.provenance.cores_granted or 1 for record in self.records)

    @property
    def workers(self) -> int:
        """Loader processes."""
        return self.spec.settings.loader.workers

    @property
    def parts(self) -> list[Parts]:
        """Those of each round that measured both."""
        found, at_once = [], max(1, min(self.workers, self.cores))
        for events in self.events:
            rounds = {(c.kind, c.round): c for c in events.ceilings if c.samples}
            for (kind, number), m in rounds.items():
                if kind == "model" and (one := rounds.get(("loader", number))):
                    times = at_once * one.wall_s / one.samples, m.wall_s / m.samples
                    cpu = (one.cpu_s or 0) / one.samples, (m.cpu_s or 0) / m.samples
                    found.append(Parts(*times, *cpu))
        return found

    @property
    def saved(self) -> dict[tuple[str, float], list[float]]:
        """Share of the same round's live time that each virtual speed-up (stage, share) saved."""
        found: dict[tuple[str, float], list[float]] = {}
        for events in self.events:
            live = {c.round: c.wall_s / c.samples for c in events.ceilings if c.kind == "live"}
            for v in events.virtuals:
                if v.round in live and v.wall_s > v.delayed_s:
                    share = 1 - (v.wall_s - v.delayed_s) / v.samples / live[v.round]
                    found.setdefault((v.stage, v.share), []).append(share)
        return found

    def saves(self, shorter: float) -> list[float]:
        """Share of a step that loading in a time shorter by this share saves, by round; from the
        virtual speed-up that comes nearest. Nothing is known of slower loading."""
        timed = [events.stages.seconds for events in self.events if events.stages]
        times = {name: fmean(one.get(name, 0.0) for one in timed) for name in LOADING if timed}
        tried = [(stage, share) for stage, share in self.saved if times.get(stage)]
        if not tried or shorter <= 0:
            return []
        stage, share = min(tried, key=lambda one: abs(one[1] - shorter))
        ratio = shorter * sum(times.values()) / (share * times[stage])
        return [ratio * saved for saved in self.saved[stage, share]]

    def gains(self) -> list[str]:
        """The gain of each virtual speed-up, as `halving decode gains 31% ± 4%`."""
        words = {0.5: "halving", 1.0: "leaving out"}
        return [
            f"{words.get(share, f'shortening by {share:.0%}')} {stage} "
            + gain_text(median_interval([1 / (1 - one) for one in saved], CONFIDENCE))
            for (stage, share), saved in self.saved.items()
        ]


def gain_text(ratio: Estimate) -> str:
    """The gain of a ratio of rates; where its interval includes 0, nothing was measured."""
    if ratio.low is None or ratio.high is None:
        return f"gains {ratio.value - 1:.0%}, measured once"
    if ratio.low <= 1 <= ratio.high:
        return f"gains nothing measurable ({ratio.low - 1:.0%} to {ratio.high - 1:.0%})"
    return f"gains {ratio.value - 1:.0%} ± {(ratio.high - ratio.low) / 2:.0%}"


def predictions(
    cell: Cell, after: RunSpec, known: Sequence[Cell]
) -> Iterator[tuple[Rule, Estimate]]:
    """The rates that the rules predict for `cell` with the settings of `after`, samples/s: medians
    over the rounds, which vary as the live blocks do.

    `known` are the cells of the same machine, this one among them. A rule that needs what none of
    them has measured predicts nothing.
    """
    rate, workers = cell.samples_per_s, after.settings.loader.workers
    loaders, models = _having(known, loader_of, after), _having(known, model_of, after)
    rounds = [
        (old, Parts(loader.load_s, model.model_s, loader.load_cpu_s, model.model_cpu_s))
        for old, loader, model in zip(cell.parts, loaders, models, strict=False)
    ]
    ratios = [b.rate(workers, cell.cores) / a.rate(cell.workers, cell.cores) for a, b in rounds]
    if ratios:
        blocks = [c for e in cell.events for c in e.ceilings if c.kind == "live"]
        live = [block.samples / block.wall_s for block in blocks] or [1.0] * len(ratios)
        rates = [rate * now / median(live) * r for now, r in zip(live, ratios, strict=False)]
        yield "parts", median_interval(rates, CONFIDENCE)
    if ratios and workers == cell.workers and model_of(after) == model_of(cell.spec):
        saved = cell.saves(1 - median(b.load_s / a.load_s for a, b in rounds))
        if saved and max(saved) < 1:
            yield "virtual", median_interval([rate / (1 - one) for one in saved], CONFIDENCE)


def loader_of(spec: RunSpec) -> object:
    """The settings that determine the time of loading a sample in one process."""
    loader = msgspec.structs.replace(spec.settings.loader, workers=0, max_tokens=1)
    return loader, spec.settings.model, spec.dataset


def model_of(spec: RunSpec) -> object:
    """The settings that determine the time of computing a sample."""
    return msgspec.structs.replace(spec.settings, loader=None), spec.settings.loader.max_tokens


def _having(
    known: Sequence[Cell], part: Callable[[RunSpec], object], after: RunSpec
) -> list[Parts]:
    """The parts of the cells that have this part of `after`; where possible, of those that also
    load in the same process, or in others, as it does."""
    having = [cell for cell in known if cell.parts and part(cell.spec) == part(after)]
    alike = [c for c in having if bool(c.workers) == bool(after.settings.loader.workers)]
    return [parts for cell in alike or having for parts in cell.parts]
