"""How our numbers stand beside the published ones, in sentences."""

from collections.abc import Sequence

from feedrate.report import text
from feedrate.report.grid import headline, level_key, told
from feedrate.report.rows import CellRow
from feedrate.report.settings import StudySettings


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
