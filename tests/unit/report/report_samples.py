"""A small project with results, so that a report can be made without a training job; and the golden
studies, which have results of real runs."""

import contextlib
import json
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from feedrate.config.devices import Device
from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.settings import ModelSettings, Settings, TrainSettings
from feedrate.config.spec import StudyProtocol
from feedrate.config.study import (
    Adaptation,
    BenchmarkScore,
    Claim,
    Fact,
    Factor,
    Published,
    Sheet,
    Source,
    Study,
)
from feedrate.config.values import read_yaml
from feedrate.config.workflow import Generated, GeneratedExamples, WorkflowConfig
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.report.study import StudyResults
from feedrate.results.claims import check_claims
from feedrate.results.collect import collect_results
from feedrate.results.conformity import DISTURBED
from feedrate.results.record import Check, Record, Score, write_records
from feedrate.results.schema import Ceilings, Measurement, Provenance
from feedrate.results.study_plan import study_plan, write_plan
from feedrate.results.trainer_logs import TrainerFigures

ROOT = Path(__file__).resolve().parents[3]
STUDY = "loading"
RATES = {0: 11.2, 1: 14.1, 2: 14.3, 16: 12.6}
"""By workers, the rate of repeat 2; those of 1 and 3 are 1% below and above."""
MODEL_ALONE = 14.8
EVIL = "<script>alert('1')</script> & {{ 7 * 7 }}"
"""A text that pages must show as it is."""
DATA_REPORT_FILE = paths.DATA_REPORT.format(dataset="generated", identity="0a1b2c3d")
DATA_REPORT = {
    "schema": 1,
    "dataset": "generated",
    "source": "generated",
    "revision": "seed 20",
    "samples": 598,
    "splits": {"train": {"rows": 480, "images": 480}, "test": {"rows": 118, "images": 60}},
    "images": 540,
    "width_px": {"min": 600, "p5": 640, "median": 900, "mean": 894.2, "p95": 1180, "max": 1200},
    "modes": {"L": 360, "RGB": 180},
    "formats": {"JPEG": 540},
    "converted": {"grey to RGB": 360},
    "changed_since_fetch": [],
    "images_in_several_splits": 3,
    "images_read": 542,
    "images_left_out": 2,
    "rows_read": 1600,
    "rows_left_out": 1002,
    "rows_left_out_by_reason": {EVIL: 1000, "no caption": 2},
    "left_out": [{"path": f"images/{EVIL}.jpg", "reason": "truncated", "rows": 2}],
}

# Configuration


def published(device, workers, value, edition="2023-08", decode="host", headline=True):
    return Published(
        id=f"{edition}-{device}-{workers}-{decode}",
        device=device,
        count=8,
        levels={"workers": workers, "decode": decode},
        metric="samples_per_s",
        value=value,
        unit="samples/s",
        batch_size=48,
        edition=edition,
        software="a library 1.7",
        source="A post on data loading",
        protocol="3 warm-up steps left out.",
        headline=headline,
        sheet="post",
    )


STATED = {
    "devices": 8, "model": "bridgetower-large", "data": ["generated", "generated-7680"],
    "precision": "bf16", "parallelism": "ddp", "warmup_steps": 5,
}  # fmt: skip
"""What the post states about its experiment: the runs of 8 devices repeat it."""


def make_project(devices=("cpu",), levels=(0, 1, 2, 16), **changes):
    """A project of one study; `changes` are to the study."""
    study = Study(
        title="Data loading of a model",
        question="How fast, and why?",
        claim="workers-h100",
        source=Source(
            title="A post on data loading",
            address="https://example.org/post",
            editions=["2023-06", "2023-08"],
        ),
        settings=Settings(
            model=ModelSettings(name="bridgetower", size="large"),
            train=TrainSettings(batch_size=48),
        ),
        protocol=StudyProtocol(steps=40, warmup_steps=5, repeats=3),
        adapt={"cpu": Adaptation(settings={"model": {"size": "tiny"}, "train": {"batch_size": 8}})},
        factors={
            "workers": Factor(
                sets="loader.workers", levels=list(levels), label="data-loader workers"
            ),
            "decode": Factor(
                sets="loader.decode",
                levels=["host", "device"],
                requires={"device": "decode_device"},
            ),
        },
        baseline={"workers": 0, "decode": "host"},
        claims=[
            Claim(
                id="workers-h100",
                published=1.79,
                text="2 workers against none on H100",
                expression="h100[workers=2] / h100[workers=0]",
            ),
            Claim(
                id="workers-gaudi2",
                published=1.28,
                text="2 workers against none on Gaudi2",
                expression="gaudi2[workers=2] / gaudi2[workers=0]",
            ),
            Claim(
                id="workers-help",
                of="ours",
                no_less_than=1,
                text=f"2 workers are no slower than none {EVIL}",
                expression="*[workers=2] / *[workers=0]",
            ),
        ],
    )
    registry = {
        "cpu": Device(label="CPU", kind="cpu", capabilities=["fp32", "bf16"]),
        "gaudi2": Device(label="Gaudi2", kind="hpu", count=8, capabilities=["decode_device"]),
        "h100": Device(label="H100", kind="cuda", count=8, capabilities=["bf16"]),
    }
    rows = [
        published("gaudi2", 0, 601.5),
        published("gaudi2", 1, 747.4),
        published("gaudi2", 2, 768.7),
        published("gaudi2", 2, 847.7, decode="device"),
        published("h100", 0, 336.5),
        published("h100", 2, 602.1),
        published("gaudi2", 0, 532.4, edition="2023-06", headline=False),
        published("gaudi2", 1, 639.7, edition="2023-06", headline=False),
    ]
    score = BenchmarkScore(
        id="odd",
        model=EVIL,
        head="contrastive",
        text_score=30.75,
        image_score=10.5,
        group_score=8.0,
        edition="2022-04",
        source="A paper on words in another order",
    )
    facts = {item: Fact(says=says, where="a paragraph") for item, says in STATED.items()}
    return Project(
        config=WorkflowConfig(
            studies=[STUDY],
            devices=list(devices),
            dataset="generated",
            datasets={"generated": Generated()},
            winoground="generated",
            winoground_sets={"generated": GeneratedExamples()},
        ),
        devices=registry,
        studies={STUDY: replace(study, **changes)},
        published={STUDY: rows},
        sheets={"post": Sheet(source="A post on data loading", facts=facts)},
        scores={STUDY: [score]},
    )


def plan_of(project, study=STUDY, identity="0a1b2c3d"):
    """The plan of a study, whose runs are in folders of one identity."""
    plan, folders = make_plan(project), {}
    for key in plan.runs:
        of_run = dict(zip(("study", "device", "cell", "repeat"), key, strict=True))
        folders[key] = paths.RUN.format(**of_run, identity=identity)
    dataset = next(plan.of_study(study)).dataset
    report = paths.DATA_REPORT.format(dataset=dataset, identity=identity)
    return study_plan(project, study, plan, folders, report)


# Results


def write_results(root, project, bad=None, cause="It stopped.", edit=lambda record: record):
    """Write the plan, the records and the result files of the project's study under `root`, which
    must be the working folder, and return the study. `bad` maps (device, workers) to a status;
    `edit` changes records."""
    plan, plans = plan_of(project), make_plan(project)
    records = {}
    for run in plan.runs:
        spec = plans.runs[STUDY, run.device, run.cell, run.repeat]
        status = (bad or {}).get((run.device, spec.levels["workers"]), "ok")
        record = record_of(spec, run.folder, status, cause)
        records.setdefault(run.device, []).append(edit(record))
        if status == "ok":
            write_events(root / run.folder / paths.EVENTS_NAME, spec)
    results = root / paths.STUDY.format(study=STUDY)
    for device in plan.measured:
        write_records(results, device, records.get(device, []))
    write_json(root / DATA_REPORT_FILE, DATA_REPORT)
    with contextlib.chdir(root):
        file = write_plan(plan)
        collect_results(file, results)
        check_claims(file, results)
    return StudyResults(plan, results.parent)


def record_of(spec, folder, status="ok", cause=""):
    """The record of a run."""
    workers, batch = spec.levels["workers"], spec.settings.train.batch_size * spec.count
    rate = RATES[workers] * (1 + 0.01 * (spec.repeat - 2))
    steps = spec.protocol.steps - spec.protocol.warmup_steps
    record = Record(
        study=spec.study,
        device=spec.device,
        cell=spec.cell,
        levels=spec.levels,
        repeat=spec.repeat,
        folder=folder,
        status=status,
        cause=cause if status != "ok" else "",
        spec=spec,
        model_parameters=3_812_097,
        provenance=Provenance(
            commit="84b8b64",
            device_model="A processor of 2 cores",
            host="node7",
            started_at=f"2026-11-21T09:{spec.repeat:02}:00Z",
            duration_s=41.5,
            data_digest="fedcba9876543210",
            source_digest="0123456789abcdef",
            command="python -m feedrate train --spec spec.json",
            cores_granted=2,
            cores_of_host=8,
            intraop_threads=2,
            host_memory_gib=15.6,
            machine_before={"load_1min": 0.2, "cpu_governor": ""},
            packages={"torch": "2.13.0", "transformers": "5.23.0"},
            python="3.11.2",
            platform="Linux",
        ),
    )
    if status not in ("ok", "invalid"):
        return record
    failed = [Check(name=sorted(DISTURBED)[0], passed=False, detail=cause)]
    return replace(
        record,
        measurement=Measurement(
            samples_per_s=rate,
            step_time_median_s=batch / rate,
            step_time_p95_s=1.2 * batch / rate,
            step_time_p99_s=1.4 * batch / rate,
            step_time_max_s=2.0 * batch / rate,
            data_wait_share=0.24 if workers == 0 else 0.006,
            peak_memory_gib=1.21,
            evaluation_s=20.0,
            steps=steps,
            warmup_steps=spec.protocol.warmup_steps,
            steps_per_epoch=80,
            samples=steps * batch,
            wall_s=steps * batch / rate,
        ),
        ceilings=Ceilings(
            rounds=4,
            loader_samples_per_s=40.0 * max(1, min(2, workers)),
            model_samples_per_s=MODEL_ALONE,
            **{
                f"{part}_ratio{end}": factor * alone / rate
                for part, alone in (
                    ("loader", 40.0 * max(1, min(2, workers))),
                    ("model", MODEL_ALONE),
                )
                for end, factor in (("", 1.0), ("_low", 0.99), ("_high", 1.01))
            },
        ),
        trainer=TrainerFigures(library="transformers 5.23.0", samples_per_s=rate * 0.97),
        scores=scores_of(spec),
        winoground="generated",
        checks=failed if status == "invalid" else [],
    )


def scores_of(spec):
    """The scores of a run, on both splits and on Winoground."""
    figures = [
        *((on, "matching_accuracy", 0.2) for on in ("validation", "test")),
        *(("winoground", f"{name}_score", 0.25) for name in ("text", "image")),
        ("winoground", "group_score", 1 / 6),
    ]
    return [
        Score(
            on=on,
            metric=metric,
            before=chance + 0.01 * spec.repeat,
            after=chance + 0.3 + 0.01 * spec.repeat,
            gain_low=0.2,
            gain_high=0.4,
            n=100,
            chance=chance,
        )
        for on, metric, chance in figures
    ]


def write_events(file, spec):
    """The steps of a run: the first takes 3.1 s, the others 0.6 to 0.7 s."""
    lines = [{"event": "start", "rank": 0, "world_size": 1}]
    for step in range(1, spec.protocol.steps + 1):
        lines.append(
            {
                "event": "step",
                "rank": 0,
                "step": step,
                "step_s": 3.1 if step == 1 else 0.6 + 0.05 * (step % 3),
                "data_wait_s": 0.1,
                "samples": 8,
                "loss": 2.5 / (1 + 0.05 * step),
                "warmup": step <= spec.protocol.warmup_steps,
            }
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


# Studies with results of real runs, and those of the configuration


@cache
def golden(name, kept="studies"):
    """A golden study; `kept` is the folder of its project. Its files are read from there, so this
    needs no working folder, but for traces and data."""
    root = ROOT / "tests/golden" / kept
    project = load_project(root, read_yaml(root / "config/config.yaml"))
    return StudyResults(plan_of(project, name), root / paths.RESULTS)


def configured(name):
    """A study of the configuration as it is, without runs."""
    config = read_yaml(ROOT / "config/config.yaml") | {"studies": study_names(ROOT)}
    plan = study_plan(load_project(ROOT, config), name, Plan(runs={}, unsupported=[]), {}, "")
    return StudyResults(plan, ROOT / "absent")
