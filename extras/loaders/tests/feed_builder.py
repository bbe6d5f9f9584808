"""Measurements of emulated accelerators and certificates, with whatever a test wants otherwise."""

from typing import Any

from feedrate_loaders.accelerator import Feeding
from feedrate_loaders.certificate import Certificate, Pace, judge
from feedrate_loaders.feed import Answer, Fed, Level


def feeding(count: int, busy: float, rate: float, **changed: Any) -> Feeding:
    """So many accelerators on two cores, the least busy of them for this share of the time."""
    values: dict[str, Any] = {"workers": 1, "window_s": 8.0, "cpu_s": 2 / rate, "cores_busy": 1.0}
    values |= {"io_waited": 0.0, "accelerators": count, "samples_per_s": rate}
    return Feeding(busy=[1.0] * (count - 1) + [busy], **values | changed)


HOST = Fed(
    level=Level("host"),
    limit=feeding(1, 0.0, 230.0),
    runs=[feeding(3, 0.97, 218.0), feeding(4, 0.77, 229.0)],
)
CACHE = Fed(level=Level("cache"), refused="it does not decode")


def answer(*fed: Fed, **changed: Any) -> Answer:
    """The measurements of these decode paths on two cores."""
    values: dict[str, Any] = {
        "cores": 2,
        "rows": 480,
        "file_bytes": 1e5,
        "picture_bytes": 2e6,
        "crop_bytes": 3e5,
    }
    return Answer(fed=list(fed), **values | {"copy_bytes_per_s": 1e10} | changed)


PACE = Pace(
    device="h100",
    label="H100",
    accelerators=8,
    model="bridgetower-large",
    batch_size=48,
    step_s=[0.64],
    source="row: 600 samples/s on 8",
)


def certificate(*fed: Fed, pace: Pace = PACE, dataset: str = "tiny", **changed: Any) -> Certificate:
    """What these measurements say at a pace."""
    found = answer(*fed, **changed)
    return Certificate(
        pace=pace,
        dataset=dataset,
        data_digest="0",
        started_at="2026-11-23T09:00:00+00:00",
        ended_at="2026-11-23T09:03:00+00:00",
        commit="abc",
        machine={"host": "here"},
        protocol={"busy": 0.9},
        host=found,
        levels=list(judge(found, pace)),
    )
