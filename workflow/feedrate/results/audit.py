"""The checks of our own numbers, applied to published ones: peak, seconds, counts, editions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from feedrate.config.study import Published

RATE = "samples_per_s"
PRINTED = 0.005
"""Share by which a printed count of three digits may differ from the exact one."""

Names = Callable[[Published], str]
"""Gives the device and the cell of a published number in words."""

Peaks = Mapping[str, float | None]
"""A device's peaks by precision, by its data sheet, TFLOP/s."""


class Rate(NamedTuple):
    """The time and the work behind a rate, as far as known: `tflops` of a device are FLOPs per
    sample x samples/s / devices, `mfu` their share of the peak in the settings' `precision`."""

    timed_s: float | None
    tflops: float | None
    mfu: float | None
    precision: str


def rate(row: Published, precision: str, peaks: Peaks) -> Rate:
    """The time and the work behind a published rate; `peaks` are its device's."""
    timed_s = row.timed_samples / row.value if row.timed_samples else None
    flops, peak = row.flops_per_sample, peaks.get(precision)
    tflops = flops * row.value / row.count / 1e12 if flops else None
    return Rate(timed_s, tflops, tflops / peak if tflops and peak else None, precision)


def excess(name: str, found: Rate, peaks: Peaks) -> str:
    """The conclusion from a rate above the peak of its precision; empty for a possible rate."""
    if not (found.tflops and found.mfu and found.mfu > 1):
        return ""
    known = {one: found.tflops / peak for one, peak in peaks.items() if peak}
    shares = (f"{share:.0%} of the peak in {one}" for one, share in known.items())
    return (
        f"{name}: {found.tflops:.1f} TFLOP/s per device would be {', '.join(shares)}, so the "
        f"source used a precision other than {found.precision}, or more devices."
    )


def miscounts(rows: Iterable[Published], name: Names) -> Iterator[str]:
    """A sentence for each count that differs from ours by more than rounding to three digits."""
    for row in rows:
        if row.counted and abs(row.value / row.counted - 1) > PRINTED:
            yield (
                f"{name(row)}: {row.value:,.0f} printed ({row.edition}), {row.counted:,.0f} "
                f"counted on the model as built here: {row.value / row.counted - 1:+.1%}."
            )


def drift(rows: Iterable[Published], name: Names) -> Iterator[str]:
    """A sentence for each cell whose rate differs between editions."""
    for cell, group in _rates_by(name, rows):
        if len({row.value for row in group}) > 1:
            values = ", ".join(f"{row.value:g} ({row.edition})" for row in group)
            batches = sorted({row.batch_size for row in group if row.batch_size})
            batch = f", batch {' and '.join(map(str, batches))}" * bool(batches)
            more = group[-1].value / group[0].value - 1
            apart = f"{more:.0%}" if more >= PRINTED else f"less than {PRINTED:.1%}"
            yield f"{cell}: {values}: {apart} apart{batch}."


def doubles(rows: Iterable[Published], name: Names) -> Iterator[str]:
    """A sentence for each rate that one edition gives for several cells of a device."""
    for _, group in _rates_by(lambda row: f"{row.edition} {row.device} {row.value}", rows):
        if len(cells := dict.fromkeys(map(name, group))) > 1:
            given = f"{group[0].value:g} samples/s is given for {' and for '.join(cells)}"
            yield f"Edition {group[0].edition}: {given}."


def _rates_by(key: Names, rows: Iterable[Published]) -> Iterator[tuple[str, list[Published]]]:
    """The rates with the same key, from the smallest."""
    rates = (row for row in rows if row.metric == RATE)
    ordered = sorted(rates, key=lambda row: (key(row), row.value))
    return ((found, list(group)) for found, group in groupby(ordered, key))
