"""A small project with results, so that every page can be rendered without a training job."""

import msgspec
from report_rows import (
    CLAIMS,
    DATA_REPORT,
    EVIL,
    STUDY,
    cell_row,
    folder_of,
    record_of,
    run_row,
    status_of,
    unsupported_rows,
    write_events,
)

from feedrate.config.devices import Device
from feedrate.config.plan import make_plan
from feedrate.config.project import Project
from feedrate.config.settings import ModelSettings, Settings, TrainSettings
from feedrate.config.spec import StudyProtocol
from feedrate.config.study import (
    BenchmarkScore,
    Fact,
    Factor,
    Figure,
    Published,
    Sheet,
    Source,
    Study,
    Table,
)
from feedrate.config.workflow import Generated, GeneratedExamples, WorkflowConfig
from feedrate.core import paths, plugins
from feedrate.core.files import write_json, write_text
from feedrate.report.context import page_settings, study_context
from feedrate.report.pages import render
from feedrate.report.rows import Inputs
from feedrate.results import files
from feedrate.results.files import write_csv
from feedrate.results.record import write_records
from feedrate.results.study_plan import study_plan


def own_kinds(package: str) -> list[str]:
    """The kinds of the project itself; other distributions test those that they add."""
    found = plugins.kinds(package).items()
    return sorted(name for name, kind in found if plugins.home(package, kind.plugin) == package)


TABLES = own_kinds("feedrate.report.tables")
FIGURES = own_kinds("feedrate.report.figures")
TIMES = "\N{MULTIPLICATION SIGN}"
DATA_REPORT_FILE = paths.DATA_REPORT.format(dataset="generated", identity="0a1b2c3d")


def plan_of(project, study=STUDY):
    """The plan of a study, whose runs are in folders of one identity."""
    plan = make_plan(project)
    folders = {key: folder_of(spec) for key, spec in plan.runs.items()}
    return study_plan(project, study, plan, folders, DATA_REPORT_FILE)


def settings_of(project, part, name):
    """The settings of a table or figure."""
    plan = plan_of(project)
    pages = {page.name: page for page in getattr(plan.study, f"{part}s")}
    return page_settings(study_context(plan), pages[name])


def table(project, inputs, name):
    return render(settings_of(project, "table", name), inputs)


def figure(project, inputs, name):
    return render(settings_of(project, "figure", name), inputs)


def study_of(project):
    """The context of the only study."""
    return study_context(plan_of(project))


def with_study(project, **changes):
    """The project with changes to its study."""
    study = msgspec.structs.replace(project.studies[STUDY], **changes)
    return msgspec.structs.replace(project, studies={STUDY: study})


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


SAID = {
    "devices": 8, "model": "bridgetower-large", "data": "generated", "precision": "bf16",
    "parallelism": "ddp", "warmup_steps": 5,
}  # fmt: skip
"""What the post states about its experiment: the runs of 8 devices repeat it."""


def sheet(**changes):
    facts = {item: Fact(says=says, where="a paragraph") for item, says in (SAID | changes).items()}
    return {"post": Sheet(source="A post on data loading", facts=facts)}


def wino(identity, model, value):
    return BenchmarkScore(
        id=identity,
        model=model,
        head="contrastive",
        text_score=value,
        image_score=10.5,
        group_score=8.0,
        edition="2022-04",
        source="A paper on words in another order",
    )


def make_project(devices=("cpu",), levels=(0, 1, 2, 16), question="How fast, and why?"):
    study = Study(
        title="Data loading of a model",
        question=question,
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
        adapt={"cpu": {"settings": {"model": {"size": "tiny"}, "train": {"batch_size": 8}}}},
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
        tables=[
            Table(
                name=kind,
                kind=kind,
                title=f"Table of {kind}",
                caption=f"table_{kind}",
                columns=[{"workers": 0}, {"workers": 2}, {"workers": 2, "decode": "device"}],
                factor="workers",
            )
            for kind in TABLES
        ],
        figures=[
            Figure(
                name=kind,
                kind=kind,
                title=f"Figure of {kind}",
                caption=f"figure_{kind}",
                x="workers",
            )
            for kind in FIGURES
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
        studies={STUDY: study},
        published={STUDY: rows},
        sheets=sheet(),
        scores={STUDY: [wino("clip-b32", "CLIP (ViT-B/32)", 30.75), wino("odd", EVIL, 25.5)]},
    )


def write_results(root, project, bad=None, cause="It stopped.", recommended=1):
    """Write all result files under `root`; `bad` maps (device, workers) to a status. Return the
    inputs of pages."""
    plan = make_plan(project)
    factors = {"workers": [1], "decode": ["host"]}
    runs, records = [], {}
    for spec in plan.runs.values():
        status = status_of(bad or {}, spec)
        runs.append(run_row(spec, status, cause))
        if status == "ok":
            write_events(root, spec)
            records.setdefault((spec.study, spec.device), []).append(record_of(spec))
    for (study, device), own in records.items():
        write_records(root / paths.STUDY.format(study=study), device, own)
    lacking = unsupported_rows(plan)
    for one in plan.shared:
        own = {"cell": one.cell, "measured_as": one.measured_as, **one.levels}
        runs += [run | own for run in runs if run["cell"] == one.measured_as]
    by_cell = {}
    for run in runs:
        by_cell.setdefault((run["study"], run["device"], run["cell"]), []).append(run)
    cells = [cell_row(group, recommended) for group in by_cell.values()] + lacking
    for study in project.studies:
        for path, kinds, rows in (
            (paths.RESULTS_CSV, files.RUNS, runs + lacking),
            (paths.CELLS_CSV, files.CELLS, cells),
            (paths.CLAIMS_CSV, files.CLAIMS, [{"study": study, **claim} for claim in CLAIMS]),
        ):
            own = [row for row in rows if row["study"] == study]
            file = root / path.format(study=study)
            write_csv(file, files.with_factors(kinds, factors), own)
    write_json(root / DATA_REPORT_FILE, DATA_REPORT)
    return Inputs(root / paths.RESULTS, str(root / DATA_REPORT_FILE))


def write_pages(project, inputs, drawn=()):
    """Write the pages of all studies, which the overview shows. Figures of the kinds in `drawn` are
    real ones."""
    for study, entry in project.studies.items():
        for item in (*entry.tables, *entry.figures):
            if isinstance(item, Table):
                content = table(project, inputs, item.name)
            elif item.name in drawn:
                content = figure(project, inputs, item.name)
            else:
                svg = "<svg xmlns='http://www.w3.org/2000/svg'>"
                content = f"{svg}<title>{item.name}</title></svg>"
            write_text(inputs.page(study, item), content)
