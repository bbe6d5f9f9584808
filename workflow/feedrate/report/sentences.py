"""What the loader model and the claims say, in sentences: each with what it is about."""

from collections.abc import Sequence
from statistics import median

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.grid import headline, level_key, rest_text, told
from feedrate.report.rows import CellRow, ClaimRow, FitRow
from feedrate.report.settings import Shown, StudySettings
from feedrate.results.loader_model import POOR_FIT
from feedrate.results.settings import DECODE, WORKERS

Said = tuple[str, str]
"""What a sentence is about, and the sentence."""


def taught(settings: StudySettings, fits: Sequence[FitRow]) -> list[Said]:
    """What the loader model says of the published numbers, and of ours."""
    theirs = [fit for fit in fits if fit.origin != "here"]
    fewest: dict[str, int] = {}
    for fit in theirs:
        if fit.bound == "compute" and fit.loader_workers is not None:
            name = fit.called(settings.label(fit.device))
            fewest[name] = min(fit.loader_workers, fewest.get(name, fit.loader_workers))
    free: dict[int, list[str]] = {}
    for name, workers in fewest.items():
        free.setdefault(workers, []).append(name)
    said = [
        f"{text.listed(names)} look compute-bound from {text.count(workers, 'worker')} on."
        for workers, names in free.items()
    ]
    said += dict.fromkeys(fit.across_devices for fit in theirs if fit.across_devices)
    found = [("What the published numbers say", " ".join(said))] if said else []
    ours: dict[str, FitRow] = {}  # of each device the first fit: of cells like the baseline
    for fit in fits:
        if fit.origin == "here" and fit.reading:
            ours.setdefault(fit.device, fit)
    return found + [("What ours say", _reading(settings, fit)) for fit in ours.values()]


def _reading(settings: StudySettings, fit: FitRow) -> str:
    """The fit's own words, unless it is so far off that they would mislead."""
    if fit.max_error is None or fit.max_error <= POOR_FIT:
        return fit.reading
    return (
        f"On {fit.called(settings.label(fit.device))} the model of two constants, which explains "
        f"the published numbers, is off by up to {text.share(fit.max_error)}: something else "
        "counts there, such as cores that workers and training share."
    )


def checked(claims: Sequence[ClaimRow]) -> list[Said]:
    """How many of the source's claims agree with its own table, and hold here."""
    if not claims:
        return []
    printed = [claim for claim in claims if claim.published_verdict and claim.published_value]
    agree = sum(claim.published_verdict == "consistent" for claim in printed)
    verdicts = [claim.verdict for claim in claims]
    held, broken = verdicts.count("holds"), verdicts.count("does not")
    of_source = (
        f"Of the ratios that the source prints, {agree} of {len(printed)} agree with its own "
        "table. "
    )
    said = (
        f"Measured here: of {len(verdicts)}, {held} held, {broken} did not, and for "
        f"{len(verdicts) - held - broken} there are no data here."
    )
    return [("Claims", of_source * bool(printed) + said)]


# What loaders make with no model beside them, in a sentence.


def loaders_alone(settings: StudySettings, cells: Sequence[CellRow]) -> str:
    """How fast each way of loading makes batches, where a study compares several; else empty.

    `cells` are those of one device; compared are those with as many workers as the baseline.
    """
    factors = {factor.sets: name for name, factor in settings.factors.items()}
    if DECODE not in factors:
        return ""
    workers = factors.get(WORKERS)
    rates: dict[str, float] = {}
    base: float | None = None
    for cell in cells:
        rate, count = cell.loader_samples_per_s, cell.levels.get(workers or "")
        if rate and count == settings.baseline.get(workers or ""):
            others = {name: v for name, v in cell.levels.items() if name != workers}
            rates[text.levels_text(told(settings, others)) or "the baseline"] = rate
            base = rate if cell.levels == settings.baseline else base
    if len(rates) < 2 or base is None:
        return ""
    said = text.listed(
        f"{name} {text.number(rate, 3)} samples/s ({text.TIMES}{text.number(rate / base, 3)})"
        for name, rate in rates.items()
    )
    models = [cell.model_samples_per_s for cell in cells if cell.model_samples_per_s]
    model = f" The model alone takes {text.number(median(models), 3)}." if models else ""
    alike = f", with {workers} = {settings.baseline[workers]}" if workers else ""
    return f"No model beside it{alike}: {said}.{model}"


# How our numbers stand beside the published ones, in sentences.


def beside_published(settings: StudySettings, cells: Sequence[CellRow], device: str) -> list[str]:
    """How the machine stands beside the published devices: by rate where a device is the same,
    by what the same change of settings brings where it is not."""
    ours = {level_key(c.levels): c for c in cells if c.samples_per_s}
    found = [*_same_device(settings, ours, device), *_same_step(settings, ours, device)]
    return found + _unlike(settings, device) if found else []


def _same_device(settings: StudySettings, ours: dict[str, CellRow], device: str) -> list[str]:
    known = headline(settings)
    keys = [key for key in ours if (device, key) in known]
    if not keys:
        return []
    key = max(keys, key=lambda key: known[device, key].value)
    cell, theirs = ours[key], known[device, key].value
    levels = text.levels_text(told(settings, cell.levels))
    over = text.ratio((cell.samples_per_s or 0.0) / theirs)
    return [
        f"Published for {settings.label(device)} at {levels}: {text.exact(theirs)} samples/s; "
        f"here {text.rate(cell.samples_per_s)}, which is {over} that."
    ]


def _same_step(settings: StudySettings, ours: dict[str, CellRow], device: str) -> list[str]:
    known, base = headline(settings), level_key(settings.baseline)
    devices = {key: [d for d, k in known if k == key and (d, base) in known] for key in ours}
    keys = [key for key in ours if key != base and devices[key] and ours[key].speedup]
    if not keys:
        return []
    key = max(keys, key=lambda key: (len(devices[key]), ours[key].speedup or 0.0))
    theirs = text.listed(
        f"{text.ratio(known[d, key].value / known[d, base].value)} on {settings.label(d)}"
        for d in devices[key]
    )
    start = text.levels_text(told(settings, settings.baseline))
    end = text.levels_text(told(settings, ours[key].levels))
    return [
        f"From {start} to {end} throughput goes {text.ratio(ours[key].speedup)} on "
        f"{settings.label(device)} here. Published: {theirs}."
    ]


def _unlike(settings: StudySettings, device: str) -> list[str]:
    """What sets our runs apart from the published ones, so that rates are not compared blindly."""
    setup, first = settings.setups.get(device), next(iter(headline(settings).values()), None)
    if not setup or not first:
        return []
    theirs = (settings.size, first.count, first.batch_size)
    if (setup.size, setup.count, setup.batch_size) == theirs:
        return []
    return [
        f"Compare shapes, not rates: the published runs trained {setup.model} {settings.size} on "
        f"{text.count(first.count, 'device')} with batch {first.batch_size}; "
        f"{settings.label(device)} here trained {setup.model} {setup.size} on "
        f"{text.count(setup.count, 'device')} with batch {setup.batch_size}, {setup.precision}."
    ]


# What an inference study found for a device, in sentences made from its cells.


def quickest_and_busiest(shown: Shown, cells: Sequence[CellRow]) -> tuple[str, str]:
    """A headline of the baseline's first level, and a sentence for each level of the first factor.

    `cells` are one device's that ended well, at least one.
    """
    first = next(iter(shown.factors))
    groups: dict[str, list[CellRow]] = {}
    for cell in cells:
        groups.setdefault(level_text(cell.levels[first]), []).append(cell)
    said = {level: _sentence(shown, group, first) for level, group in groups.items()}
    base = level_text(shown.baseline[first])
    main = groups.get(base) or next(iter(groups.values()))
    quick_s = min(_latency_s(cell) for cell in main)
    rate = text.rate(max(cell.samples_per_s or 0.0 for cell in main))
    headline = f"an answer takes {text.seconds(quick_s)} at best, and {rate} are the most"
    headline += f" with {first} = {level_text(main[0].levels[first])}" * (len(groups) > 1)
    return headline, " ".join(f"{level}: {sentence}" for level, sentence in said.items())


def _sentence(shown: Shown, cells: Sequence[CellRow], first: str) -> str:
    quick = min(cells, key=_latency_s)
    busy = max(cells, key=lambda cell: cell.samples_per_s or 0.0)
    return (
        f"median latency {text.seconds(quick.step_time_median_s)} (99% within "
        f"{text.seconds(quick.step_time_p99_s)}) with {_settings(shown, quick, first)}; "
        f"{text.rate(busy.samples_per_s)} with {_settings(shown, busy, first)}."
    )


def _settings(shown: Shown, cell: CellRow, first: str) -> str:
    rest = {name: level for name, level in cell.levels.items() if name != first}
    return rest_text(shown, rest) or "the baseline's settings"


def _latency_s(cell: CellRow) -> float:
    return float("inf") if cell.step_time_median_s is None else cell.step_time_median_s
