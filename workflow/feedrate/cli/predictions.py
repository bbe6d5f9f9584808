"""What on-device decoding would bring published devices.

The model that is fitted to published rates says it where nobody printed a number: loading then
costs the host nothing, so that only Tc is left. Where one was printed, it tells how far it is off.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from feedrate.cli.advice import rate
from feedrate.core import variables
from feedrate.core.files import write_text
from feedrate.results.loader_model import fit_rows
from feedrate.results.settings import FitSettings, PublishedFacts
from feedrate.results.tables import Row


def predict_published(published: FitSettings, out: Path) -> None:
    """Predict the throughput of published devices with decoding on the device, and write `out`
    (predictions.txt)."""
    text = "".join(f"{line}\n" for line in predictions(published))
    write_text(out, text)
    if not os.environ.get(variables.ADVICE_LATER):
        print(text, end="", flush=True)


def predictions(settings: FitSettings) -> Iterator[str]:
    """A line a device and edition: predictions, then how far one is off where the same edition
    printed a number. A device of which only another edition has one is passed over."""
    best = _best(fit_rows([], settings))
    printed = [row for study in settings.studies.values() for row in study.published if _there(row)]
    for (origin, device, count), row in best.items():
        if device not in {one.device for one in printed}:
            yield _predicted(_what(settings, device, count), count / row["tc_s"], row, origin)
    for one in printed:
        row = best.get((f"published {one.edition}", one.device, one.count), {})
        if row:
            found, what = one.count / row["tc_s"], _what(settings, one.device, one.count)
            yield (
                f"The same prediction for {what} is {rate(found)} samples/s, where {one.value:,g} "
                f"were printed ({found / one.value - 1:+.1%})."
            )


def _best(rows: Sequence[Row]) -> dict[tuple[str, str, int], Row]:
    """The fastest row of each origin, device and number of devices."""
    return {
        (row["origin"], row["device"], row["world_size"]): row
        for row in sorted(rows, key=lambda row: row["samples_per_s"])
    }


def _what(settings: FitSettings, device: str, count: int) -> str:
    return f"{count} x {settings.labels.get(device, device)}"


def _predicted(what: str, found: float, row: Row, origin: str) -> str:
    best = f"its best {origin} rate ({row['loader_workers']} workers)"
    gain = found / row["samples_per_s"]
    if gain <= 1 + row["max_error"]:
        said = f"no more than {best}: there nothing waits for loading any more"
    else:
        said = f"x{gain:.2f} {best}"
    return (
        f"Prediction, not a measurement: {what} with decode: device would make {rate(found)} "
        f"samples/s, {said}. The model explains that device's printed rates within "
        f"{row['max_error']:.1%}."
    )


def _there(row: PublishedFacts) -> bool:
    """Whether somebody printed a rate with decoding on the device."""
    return "device" in row.levels.values() and row.metric == "samples_per_s"
