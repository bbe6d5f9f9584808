"""Records, and the plan of their study, with whatever a test wants otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from feedrate.config.devices import Device
from feedrate.config.plan import Unsupported
from feedrate.config.project import Project
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.spec import RunSpec, StudyProtocol
from feedrate.config.study import Claim, Factor, Published, Sheet, Source, Study
from feedrate.config.values import cell_name
from feedrate.config.workflow import Hub, WorkflowConfig
from feedrate.results.record import Record
from feedrate.results.schema import Ceilings, Measurement, Provenance
from feedrate.results.study_plan import PlannedRun, StudyPlan
from feedrate.results.trainer_logs import TrainerFigures
from tiny_spec import tiny_spec

FACTORS = {
    "workers": Factor(sets="loader.workers", levels=[0, 1, 2]),
    "decode": Factor(sets="loader.decode", levels=["host", "device"]),
}
BASELINE = {"workers": 0, "decode": "host"}


class Sources(NamedTuple):
    """What a plan knows of its sources: sheets, the study's own one, and datasets of the hub."""

    sheets: dict[str, Sheet] = {}
    default: str = ""
    datasets: dict[str, str] = {}


NO_SOURCES = Sources()


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
        "step_time_max_s": step_s * 1.3,
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
        folder=f"runs/{spec.study}/{spec.device}/{spec.cell}/rep{spec.repeat}-0a1b2c3d",
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


def a_device(**changes: Any) -> Device:
    """An entry of the device registry."""
    return Device(**({"label": "A device", "kind": "cpu", "capabilities": []} | changes))


def make_study(**changes: Any) -> Study:
    """A study of two factors."""
    values: dict[str, Any] = {
        "title": "Loading",
        "question": "How fast?",
        "source": Source(title="A post"),
        "settings": Settings(model=ModelSettings(name="bridgetower", size="tiny")),
        "protocol": StudyProtocol(steps=12, warmup_steps=2),
        "factors": FACTORS,
        "baseline": BASELINE,
    }
    return Study(**(values | changes))


def make_plan(
    study: Study | None = None,
    *,
    records: Sequence[Record] = (),
    unsupported: Sequence[Unsupported] | None = None,
    measured: Sequence[str] = ("cpu",),
    published: Sequence[Published] = (),
    sources: Sources = NO_SOURCES,
    device: Mapping[str, Any] | None = None,
    **changes: Any,
) -> StudyPlan:
    """The plan of one study, measured on a cpu, which cannot decode on the device. `device` has
    facts of the cpu; `records` are those of the planned runs."""
    registry = {
        name: a_device(label=name, **(device or {})) for name in ("cpu", "gaudi2", "h100", "a100")
    }
    config = WorkflowConfig(
        studies=["loading"],
        devices=list(measured),
        dataset="generated",
        datasets={name: Hub(name=hub, revision="1") for name, hub in sources.datasets.items()},
    )
    project = Project(
        config=config,
        devices=registry,
        studies={"loading": study or make_study()},
        published={"loading": list(published)},
        sheets=sources.sheets,
    )
    levels = {"workers": 1, "decode": "device"}
    lacking = Unsupported(
        study="loading", device="cpu", cell=cell_name(levels), levels=levels, lacks="decode_device"
    )
    return StudyPlan(
        project=project,
        runs=[
            PlannedRun(
                device=record.device,
                cell=record.cell,
                levels=record.levels,
                repeat=record.repeat,
                folder=record.folder,
            )
            for record in records
        ],
        unsupported=[lacking] if unsupported is None else list(unsupported),
        **changes,
    )


def published(device: str, value: float, *, workers: int, **changes: Any) -> Published:
    """A headline number of 8 devices."""
    values: dict[str, Any] = {
        "id": f"{device}-{workers}",
        "device": device,
        "count": 8,
        "levels": {"workers": workers},
        "metric": "samples_per_s",
        "value": value,
        "unit": "samples/s",
        "edition": "2023-08",
        "source": "A post",
        "headline": True,
    }
    return Published(**(values | changes))


POST = [
    *(published("gaudi2", v, workers=w) for w, v in enumerate((601.5, 747.4, 768.7))),
    published("gaudi2", 847.7, workers=2, levels={"workers": 2, "decode": "device"}),
    *(published("h100", v, workers=w) for w, v in enumerate((336.5, 580.1, 602.1))),
    *(published("a100", v, workers=w) for w, v in enumerate((227.5, 339.7, 345.4))),
    published("a100", 254.7, workers=1, edition="2023-06", headline=False),
    published("a100", 188.6, workers=0, edition="2023-06", headline=False),
]
"""The published table of three devices, and two rows of an older edition."""


def claim_plan(
    *claims: Claim,
    published: Sequence[Published] = POST,
    sources: Sources = NO_SOURCES,
    measured: Sequence[str] = ("cpu",),
    device: Mapping[str, Any] | None = None,
    **changes: Any,
) -> StudyPlan:
    """The plan of a study with claims; `changes` are of the study."""
    source = Source(title="A post", sheet=sources.default)
    study = make_study(claims=list(claims), source=source, **changes)
    return make_plan(study, published=published, sources=sources, measured=measured, device=device)


def runs_of(workers, rates, **changes):
    """Runs of a cell, one for each rate."""
    return [
        make_record(rate, spec=make_spec(workers, repeat=k), **changes)
        for k, rate in enumerate(rates, start=1)
    ]
