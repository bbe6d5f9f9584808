"""Records of feedrate itself, of another site or another time: `record.json` of a run."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from feedrate.config.values import Level
from feedrate.core.errors import LogError
from feedrate.jobs.causes import Cause
from feedrate.logs.reading import Found, load_json
from feedrate.logs.trainer import number

IMPORTS = ("record.json",)
CAUSES = {"ok": Cause("success"), "out_of_memory": Cause("device out of memory")}
TIMED = "the rate is that of the timed window"


def read(path: Path) -> Iterator[Found]:
    """The run of a record, with its levels; one that is not ok has no figures. Raises LogError."""
    record = load_json(path)
    try:
        study, device = str(record["study"]), str(record["device"])
        levels = msgspec.convert(record["levels"], dict[str, Level])
        if not all(math.isfinite(one) for one in levels.values() if isinstance(one, float)):
            raise ValueError("levels: not finite")
        run = f"{study}/{device}/{record['cell']}/rep{record['repeat']}"
        status, why = str(record["status"]), str(record["cause"])
        measured, trainer = record["measurement"] or {}, record["trainer"] or {}
        figures = {
            "train_samples_per_second": number(measured.get("samples_per_s")),
            "train_loss": number(trainer.get("loss")),
            "max_memory_allocated (GB)": number(measured.get("peak_memory_gib")),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogError(f"{path.name}: not a record of a run: {error!r}") from None
    known = {key: value for key, value in figures.items() if value is not None}
    yield Found(
        metrics=known if status == "ok" else {},
        cause=CAUSES.get(status, Cause("other error"))._replace(line=why or status),
        label=run,
        device=device,
        study=study,
        levels=levels,
        library=f"feedrate, {trainer.get('library', '')}",
        note=TIMED if status == "ok" else f"{status} in its record: {why}",
    )
