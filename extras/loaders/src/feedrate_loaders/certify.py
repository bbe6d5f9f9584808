"""`python -m feedrate_loaders certify`: how many accelerators this machine can feed, without any.

The accelerators are emulated (feed.py), at a pace that a source published or a run of ours
measured. The certificate is a file, because no number counts without a record.
"""

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec

from feedrate.cli import snakemake
from feedrate.config.devices import default_launcher
from feedrate.config.errors import not_one_of
from feedrate.config.plan import published_settings
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.settings import Settings
from feedrate.config.spec import LIBRARIES, Protocol, RunSpec
from feedrate.core import paths, plugins
from feedrate.core.errors import UsageError, tell
from feedrate.core.files import digest_file, write_json, write_text
from feedrate.devices.host import host_facts
from feedrate.devices.launch import run_ranks
from feedrate.flow.graph import Graph
from feedrate.jobs.events import read_run_events
from feedrate.jobs.supervisor import read_commit
from feedrate.results.record import RECORDS_NAME, read_records
from feedrate_loaders.accelerator import BUSY, WARMUP_S, WINDOW_S
from feedrate_loaders.certificate import Certificate, Pace, judge, page
from feedrate_loaders.feed import ANSWER, PATHS, Answer, Level, Request
from feedrate_loaders.libraries._rules import missing_packages

FILE = f"{paths.RESULTS}/certificates/{{device}}/{{model}}/certificate.json"
"""How many accelerators this host feeds; certificate.txt and the measurement are next to it."""
LIMIT_S = 3600.0
"""The longest measurement, s."""
Found = tuple[str, Settings, list[float]]
"""The source of a pace and its value, the settings, and each step's time without data wait, s."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    snakemake.add_choices(parser)
    parser.add_argument("--model", help="name and size, such as bridgetower-large")
    pace = "id of a published row or folder of a run; default: the fastest own run, else row"
    parser.add_argument("--pace", help=pace)
    library = "a loader library, in addition to the decode paths; default: all that are installed"
    parser.add_argument("--library", action="append", help=library)


def certify(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Measure, and print and write the certificate; return the exit code."""
    if len(options.device or ()) != 1 or not options.model:
        example = "python -m feedrate_loaders certify --device h100 --model bridgetower-large"
        raise UsageError(f"name one --device and one --model, as in: {example}")
    forms = plugins.declared(LIBRARIES, "FORMS")
    for name in options.library or ():
        if name not in forms:
            raise UsageError(f"--library: {not_one_of(name, forms, 'libraries')}")
    given = snakemake.check_call(options, others)
    called = snakemake.check_configuration(options, ())
    project = with_all_studies(Path(), called)
    pace, settings = choose(project, options.device[0], options.model, options.pace)
    tell("feedrate certify", f"the pace of {pace.device} is emulated: {pace.source}")
    manifest = Path(Graph(called, Path().resolve()).data.manifest(called.config.dataset))
    code = snakemake.run_snakemake(options, str(manifest), *others, held_back=True)
    if code or given.dryrun:
        return code
    out = Path(FILE.format(device=pace.device, model=pace.model))
    levels = *PATHS, *library_levels(options.library)
    made = measure(pace, feed_spec(project, pace, settings), levels, manifest, out.parent / "runs")
    text = page(made)
    write_text(out.with_suffix(".txt"), text)
    write_json(out, msgspec.to_builtins(made))
    print(f"\n{text}\nWritten: {out}")
    return 0


def with_all_studies(root: Path, project: Project) -> Project:
    """The project with all studies under `root`, on the registry's first device. Raises ConfigError
    for an error in one of them."""
    chosen = {"studies": study_names(root), "devices": [next(iter(project.devices))]}
    return load_project(root, msgspec.to_builtins(project.config) | chosen)


def choose(project: Project, device: str, model: str, named: str | None) -> tuple[Pace, Settings]:
    """The pace that `named` gives, or the default, with its settings. Raises UsageError without."""
    found = [*measured(device), *published(project, device)]
    known = {one[0].partition(": ")[0]: one for one in found if one[1].model.label == model}
    if not known:
        models = ", ".join(sorted({settings.model.label for _, settings, _ in found})) or "none"
        raise UsageError(
            f"--model {model}: it has no published rate and no finished run on {device}; those "
            f"that have: {models}"
        )
    own = [name for name in known if "/" in name]  # a folder, and not the id of a row
    of_sample_s = {name: fmean(s) / made.train.batch_size for name, (_, made, s) in known.items()}
    name = named.rstrip("/") if named else min(own or known, key=of_sample_s.__getitem__)
    if name not in known:
        raise UsageError(f"--pace {named}: not among: {', '.join(known)}")
    source, settings, step_s = known[name]
    entry = project.devices[device]
    pace = Pace(
        device=device,
        label=entry.label or device,
        accelerators=entry.count,
        model=model,
        batch_size=settings.train.batch_size,
        step_s=step_s,
        source=source,
    )
    return pace, settings


def published(project: Project, device: str) -> Iterator[Found]:
    """The published rates of training on a device; of several editions, the headline's."""
    for name, study in project.studies.items():
        told = project.published[name] if study.task == "training" else ()
        rows = [one for one in told if (one.device, one.metric) == (device, "samples_per_s")]
        for row in [one for one in rows if one.headline] or rows:
            settings = published_settings(project, name, row)
            says = f"{row.value:,g} samples/s on {row.count}, {row.edition}, {row.source}"
            step_s = settings.train.batch_size * row.count / row.value
            yield f"{row.id}: {says}", settings, [step_s]


def measured(device: str) -> Iterator[Found]:
    """The recorded steps of this project's own runs on a device, without their data wait."""
    files = sorted(Path(paths.RESULTS).glob(f"*/{device}/{RECORDS_NAME}"))
    for record in (one for file in files for one in read_records(file.parents[1], device)):
        if record.status != "ok" or record.spec is None or record.spec.task != "training":
            continue
        settings = record.spec.settings
        steps = [one for one in read_run_events(Path(record.folder))[0].steps if not one.warmup]
        batches = settings.train.gradient_accumulation
        step_s = [(one.step_s - one.data_wait_s) / batches for one in steps]
        says = f"{len(steps)} recorded steps of rank 0, without their data wait"
        yield f"{record.folder}: {says}", settings, step_s


def feed_spec(project: Project, pace: Pace, settings: Settings) -> RunSpec:
    """The spec of the measurement: one process on the host, whatever device it emulates."""
    return RunSpec(
        study="certificate",
        device=pace.device,
        kind="cpu",
        count=1,
        launcher=default_launcher("process"),
        cell=pace.model,
        levels={},
        repeat=1,
        seed=1,
        dataset=project.config.dataset,
        settings=settings,
        protocol=Protocol(steps=1, warmup_steps=1),
    )


def library_levels(named: Sequence[str] | None) -> list[Level]:
    """All forms of these loader libraries, or of those that are installed; each decodes."""
    forms = plugins.declared(LIBRARIES, "FORMS")
    return [
        Level("host", library=name, best=form == "best")
        for name in named or forms
        for form in forms[name]
        if named or not missing_packages(name, form)
    ]


def measure(
    pace: Pace, spec: RunSpec, levels: Sequence[Level], manifest: Path, folder: Path
) -> Certificate:
    """Feed emulated accelerators, with `folder` for the job. Raises ExpectedError."""
    request, started = Request(step_s=pace.step_s, levels=tuple(levels)), datetime.now(UTC)
    options = ["--data", str(manifest.parent.absolute())]
    options += ["--request", msgspec.json.encode(request).decode()]
    what = "the feed certificate"
    run_ranks(spec, "worker", folder.absolute(), options, what, LIMIT_S, "feedrate_loaders")
    answer = msgspec.json.decode((folder / ANSWER).read_bytes(), type=Answer)
    return Certificate(
        pace=pace,
        dataset=spec.dataset,
        data_digest=digest_file(manifest),
        started_at=started.isoformat(timespec="seconds"),
        ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=read_commit(),
        machine=host_facts(),
        protocol={"busy": BUSY, "warmup_s": WARMUP_S, "window_s": WINDOW_S},
        host=answer,
        levels=list(judge(answer, pace)),
    )
