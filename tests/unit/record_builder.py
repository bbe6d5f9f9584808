"""Records and settings made through the types, with whatever a test wants otherwise."""

import json
from pathlib import Path
from typing import Any

from feedrate.config.plan import Unsupported
from feedrate.config.spec import RunSpec
from feedrate.config.study import Claim, Factor, Thresholds
from feedrate.config.values import cell_name
from feedrate.results.params import (
    ClaimStudy,
    CollectSettings,
    CollectStudy,
    PublishedFacts,
)
from feedrate.results.record import Record, write_record
from feedrate.results.schema import Ceilings, Measurement, Provenance
from feedrate.results.trainer_logs import TrainerFigures
from tiny_spec import tiny_spec

FACTORS = {
    "workers": Factor(sets="loader.workers", levels=[0, 1, 2]),
    "decode": Factor(sets="loader.decode", levels=["host", "device"]),
}
BASELINE = {"workers": 0, "decode": "host"}


def make_spec(workers: int = 0, decode: str = "host", **changes: Any) -> RunSpec:
    """One device, 2 warm-up steps of 12, batch 4."""
    levels = {"workers": workers, "decode": decode}
    values: dict[str, Any] = {
        "study": "loading",
        "seed": 42,
        "dataset": "generated",
        "cell": cell_name(levels),
        "levels": levels,
        "loader": levels,
        "protocol": {"steps": 12, "warmup_steps": 2},
    }
    return tiny_spec(**(values | changes))


def make_measurement(rate: float = 10.0, **changes: Any) -> Measurement:
    """40 samples in 10 steps at `rate`."""
    step_s = 4 / rate
    values: dict[str, Any] = {
        "samples_per_s": rate,
        "samples": 40,
        "wall_s": 40 / rate,
        "steps": 10,
        "warmup_steps": 2,
        "first_step_s": 3.0,
        "step_time_median_s": step_s,
        "step_time_p95_s": step_s * 1.2,
        "step_time_min_s": step_s * 0.9,
        "step_time_max_s": step_s * 1.3,
        "data_wait_s": 0.1 * 40 / rate,
        "data_wait_share": 0.1,
        "peak_memory_gib": 1.5,
        "loss_first": 2.0,
        "loss_last": 1.0,
    }
    return Measurement(**(values | changes))


def make_ceilings(rate: float | None, **parts: float | None) -> Ceilings:
    """The ceilings of a run at `rate` samples/s, each within 1%."""
    known: dict[str, float | None] = {}
    for name, alone in parts.items():
        ratio = alone / rate if alone and rate else None
        known[f"{name}_samples_per_s"], known[f"{name}_ratio"] = alone, ratio
        known[f"{name}_ratio_low"] = ratio and 0.99 * ratio
        known[f"{name}_ratio_high"] = ratio and 1.01 * ratio
    return Ceilings(rounds=5, **known)


def make_record(
    rate: float | None = 10.0,
    *,
    spec: RunSpec | None = None,
    status: str = "ok",
    cause: str = "",
    loader: float | None = 30.0,
    model: float | None = 12.0,
    cores: int | None = 2,
    **measured: Any,
) -> Record:
    """The record of a run at `rate` samples/s; None: nothing was measured."""
    spec = spec or make_spec()
    return Record(
        study=spec.study,
        device=spec.device,
        cell=spec.cell,
        levels=spec.levels,
        repeat=spec.repeat,
        status=status,
        cause=cause,
        spec=spec,
        model_parameters=1000,
        flops_per_sample=1e9,
        measurement=None if rate is None else make_measurement(rate, **measured),
        ceilings=make_ceilings(rate, loader=loader, model=model),
        trainer=TrainerFigures(samples_per_s=rate, library="transformers 5.23.0"),
        provenance=Provenance(commit="abc", cores_granted=cores, device_model="a cpu"),
    )


def write_records(folder: Path, records: list[Record]) -> list[str]:
    """Write records to run folders that hold nothing else; the paths of the records."""
    paths = [folder / f"{number}/record.json" for number in range(len(records))]
    for path, record in zip(paths, records, strict=True):
        write_record(path, record)
    return [str(path) for path in paths]


def collect_study(**changes: Any) -> CollectStudy:
    values: dict[str, Any] = {
        "factors": FACTORS,
        "baseline": BASELINE,
        "thresholds": Thresholds(),
    }
    return CollectStudy(**(values | changes))


def collect_settings(**changes: Any) -> CollectSettings:
    """One study on a cpu, which cannot decode on the device."""
    levels = {"workers": 1, "decode": "device"}
    values: dict[str, Any] = {
        "studies": {"loading": collect_study()},
        "memory_gib": {"cpu": None},
        "unsupported": [
            Unsupported(
                study="loading",
                device="cpu",
                cell=cell_name(levels),
                levels=levels,
                lacks="decode_device",
            )
        ],
    }
    return CollectSettings(**(values | changes))


def published(device: str, value: float, *, workers: int, **changes: Any) -> PublishedFacts:
    """A headline number of 8 devices."""
    values: dict[str, Any] = {
        "device": device,
        "count": 8,
        "levels": {"workers": workers},
        "metric": "samples_per_s",
        "value": value,
        "edition": "2023-08",
        "headline": True,
    }
    return PublishedFacts(**(values | changes))


POST = [
    *(published("gaudi2", v, workers=w) for w, v in enumerate((601.5, 747.4, 768.7))),
    published("gaudi2", 847.7, workers=2, levels={"workers": 2, "decode": "device"}),
    *(published("h100", v, workers=w) for w, v in enumerate((336.5, 580.1, 602.1))),
    *(published("a100", v, workers=w) for w, v in enumerate((227.5, 339.7, 345.4))),
    published("a100", 254.7, workers=1, edition="2023-06", headline=False),
    published("a100", 188.6, workers=0, edition="2023-06", headline=False),
]
"""The published table of three devices, and two rows of an older edition."""


def claim_study(*claims: Claim, **changes: Any) -> ClaimStudy:
    values: dict[str, Any] = {
        "factors": FACTORS,
        "baseline": BASELINE,
        "published": POST,
        "source": "A post",
        "claims": list(claims),
        "measured": ["cpu"],
        "confidence": 0.95,
        "tolerance": 0.05,
        "smallest_effect": 0.03,
    }
    return ClaimStudy(**(values | changes))


def as_literal(settings: Any) -> str:
    """Settings as Snakemake prints a dict param."""
    import msgspec

    plain = msgspec.to_builtins(settings)
    assert json.loads(json.dumps(plain)) == plain
    return repr(plain)


def runs_of(workers, rates, **changes):
    """Runs of a cell, one for each rate."""
    return [
        make_record(rate, spec=make_spec(workers, repeat=k), **changes)
        for k, rate in enumerate(rates, start=1)
    ]
