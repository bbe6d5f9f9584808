"""`python -m feedrate.report.card --settings … --record … --quality … --out card.md`: a model card.

It tells what the model is, how it was trained, how fast, and what it scores, before and after. A
copy goes beside the weights, as README.md, which is what the hub shows.
"""

import argparse
import html
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate import __version__
from feedrate.config.errors import ConfigError
from feedrate.config.spec import RunSpec
from feedrate.core.errors import fail
from feedrate.core.files import write_text
from feedrate.report import text
from feedrate.report.settings import CardSettings, from_param
from feedrate.results.quality import Quality, QualityError, Score, read_quality
from feedrate.results.record import Record, RecordError, read_record

# Markdown made from text: every text is escaped, so that none can be markup.

_MARKS = re.compile(r"([\\`*_{}\[\]|~#])")


def plain(text: str) -> str:
    """A text on one line, with nothing in it that Markdown or HTML would take for its own."""
    return _MARKS.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """A name or a digest, as code; nothing where there is none."""
    words = " ".join(text.split()).replace("`", "'").replace("|", r"\|")
    return f"`{words}`" if words else "unknown"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts that are escaped already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(said: Mapping[str, str]) -> str:
    """A list of what is known, each after its name."""
    return "\n".join(f"- {name}: {value}" for name, value in said.items())


def fenced(language: str, lines: Iterable[str]) -> str:
    """A block of code; a fence in it could end it, and becomes none."""
    inside = "\n".join(lines).replace("```", "'''")
    return f"```{language}\n{inside}\n```"


def settings_table(spec: RunSpec) -> str:
    """Every setting that is not null, as the configuration names it; of local weights the folder's
    name alone."""
    settings = msgspec.to_builtins(spec.settings)
    parts: dict[str, Any] = {name: settings[name] for name in ("model", "loader", "train")}
    if spec.kind == "hpu":
        parts["hpu"] = settings["hpu"]
    if spec.settings.model.checkpoint and Path(spec.settings.model.checkpoint).is_absolute():
        parts["model"]["checkpoint"] = Path(spec.settings.model.checkpoint).name
    parts["protocol"] = msgspec.to_builtins(spec.protocol)
    rows = [
        [code(f"{part}.{key}"), code(str(value))]
        for part, values in parts.items()
        for key, value in values.items()
        if value is not None
    ]
    return table(["Setting", "Value"], [*rows, [code("seed"), code(str(spec.seed))]])


README = "README.md"
TASKS = {"clip": "zero-shot-image-classification", "vit": "image-classification"}
"""The hub's word for what a model does, where it has one."""
HUB_COPY = re.compile(r"hub \((?P<repository>.+) at (?P<commit>.+)\)")
"""Winoground of the hub, as quality.json describes it."""


def card(settings: CardSettings, spec: RunSpec, record: Record, quality: Quality) -> str:
    """The card's text: metadata in YAML, then Markdown."""
    from huggingface_hub import ModelCardData  # slow: not for who only asks for help

    model = spec.settings.model.name
    data = ModelCardData(
        base_model=settings.base_model,
        datasets=[settings.dataset] if settings.dataset else None,
        library_name="transformers",
        pipeline_tag=TASKS.get(model),
        tags=["feedrate", model],
        model_name=f"{spec.study}: {spec.cell}",
        eval_results=list(_results(settings, spec, quality)) or None,
    )
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {plain(model)}, {plain(spec.study)}",
        _opening(settings, spec, record),
        "## What it scores",
        _scores(quality),
        "## How fast it was trained",
        _speed(settings, record),
        "## How to load it",
        _loading(settings, spec),
        "## How it was trained",
        settings_table(spec),
        "## Where it comes from",
        _provenance(settings, spec, record),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="feedrate.report.card", description=__doc__)
    parser.add_argument("--settings", required=True, help="a mapping, as Snakemake prints it")
    parser.add_argument("--record", required=True, type=Path, help="record.json of the run")
    parser.add_argument("--quality", required=True, type=Path, help="quality.json of the run")
    parser.add_argument("--model", required=True, type=Path, help="folder of the kept model")
    parser.add_argument("--out", required=True, type=Path, help="card.md")
    options = parser.parse_args(arguments)
    try:
        settings = from_param(options.settings, CardSettings)
        record, quality = read_record(options.record), read_quality(options.quality)
        kept = quality.status != "no_model" and any(options.model.glob("*.safetensors"))
        if record.spec and kept:
            written = card(settings, record.spec, record, quality)
            write_text(options.model / README, written)
        else:
            written = without_model(record, quality)
        write_text(options.out, written)
    except (ConfigError, RecordError, QualityError, OSError) as error:
        return fail(parser.prog, error)
    return 0


def without_model(record: Record, quality: Quality) -> str:
    """What stands in the card's place where a run has left no model."""
    why = record.cause or quality.cause or "its weights were not kept"
    return f"No model ({text.STATUS_WORDS[record.status]}): {plain(why)}\n"


def _opening(settings: CardSettings, spec: RunSpec, record: Record) -> str:
    model = spec.settings.model
    parameters = f", {record.model_parameters:,} parameters" if record.model_parameters else ""
    start = f"local weights, {code(Path(model.checkpoint).name)}," if model.checkpoint else ""
    if settings.base_model:
        start = code(settings.base_model)
    return (
        f"{plain(model.name)} ({plain(model.size)}{parameters}), trained from "
        f"{start or 'random weights'} on {plain(settings.device)}. A run of "
        f"*{plain(settings.title)}* with feedrate, a suite that measures how fast devices are fed "
        "and trained: its purpose was the measurement, and it was tried on nothing but what stands "
        "below."
    )


def _results(settings: CardSettings, spec: RunSpec, quality: Quality) -> Iterator[Any]:
    """The scores after training, as the hub's metadata have them."""
    from huggingface_hub import EvalResult

    name = spec.settings.model.name
    task = "image-classification" if name == "vit" else "image-text-retrieval"
    for score in quality.scores:
        if score.moment != "after" or score.value is None:
            continue
        wino = score.on == "winoground"
        data, revision = settings.dataset or spec.dataset, settings.dataset_revision
        if wino:
            data, revision = _winoground(quality)
        yield EvalResult(
            task_type=task,
            dataset_type=data,
            dataset_name=data,
            dataset_split="test" if wino else score.on,
            dataset_revision=revision,
            metric_type=score.metric,
            metric_name=f"{score.metric}, {score.head} head" if score.head else score.metric,
            metric_value=score.value,
        )


def _winoground(quality: Quality) -> tuple[str, str | None]:
    """Which copy of Winoground was scored: the hub's repository with its commit, or what it is."""
    if found := HUB_COPY.fullmatch(quality.winoground):
        return found["repository"], found["commit"]
    local = quality.winoground.startswith("folder")
    return "winoground (local copy)" if local else "winoground-stand-in", None


def _scores(quality: Quality) -> str:
    if quality.status != "ok":
        return f"Not scored: {plain(quality.cause)}"
    rows: dict[tuple[str, str, str], dict[str, Score]] = {}
    for score in quality.scores:
        rows.setdefault((score.on, score.metric, score.head), {})[score.moment] = score
    lines = [
        [plain(on), _metric(metric, head), _value(pair.get("before")), _value(pair.get("after"))]
        for (on, metric, head), pair in rows.items()
    ]
    data = f" Winoground: {plain(quality.winoground)}." if quality.winoground else ""
    said = f"With 95% bootstrap intervals; before is the model that training started from.{data}"
    return f"{said}\n\n{table(['On', 'Figure', 'Before', 'After'], lines)}"


def _metric(metric: str, head: str) -> str:
    words = plain(metric.replace("_", " "))
    return f"{words}, {plain(head)} head" if head else words


def _value(score: Score | None) -> str:
    if score is None:
        return text.DASH
    if score.value is None:
        return plain(f"not scored: {score.note}")
    interval = text.interval(score.low, score.high)
    return f"{text.number(score.value)}{f' ({interval})' if interval else ''}"


def _speed(settings: CardSettings, record: Record) -> str:
    found = record.measurement
    if found is None:
        return f"Not measured: {plain(record.cause or record.status)}"
    warning = "" if record.status == "ok" else f"Rejected by a check: {plain(record.cause)}\n\n"
    rows = [
        ["Device", plain(f"{settings.device} ({record.provenance.device_model})")],
        ["Samples/s", text.number(found.samples_per_s)],
        ["Step, median", text.seconds(found.step_time_median_s)],
        ["Share of the time spent waiting for data", text.share(found.data_wait_share)],
        ["Peak memory, GiB", text.number(found.peak_memory_gib, 3)],
        ["Model FLOPs over the device's peak (MFU)", text.share(found.mfu)],
        ["Measured over", f"{found.steps} steps after {found.warmup_steps} of warm-up"],
        ["First loss", text.number(found.loss_first)],
        ["Last loss", text.number(found.loss_last)],
    ]
    return warning + table(["What", "Measured"], rows)


def _loading(settings: CardSettings, spec: RunSpec) -> str:
    """Code that loads the model: with the suite, and where its class is plain, without."""
    model, loader = spec.settings.model, spec.settings.loader
    lines = []
    if settings.repository:
        lines += [
            "from huggingface_hub import snapshot_download",
            "",
            f"repository = snapshot_download({settings.repository!r})",
            f'folder = f"{{repository}}/{settings.place}"',
        ]
    else:
        lines += ['folder = "the folder of this card"']
    lines += [
        "",
        "# With feedrate, which knows the model's tokens and pixels:",
        "from pathlib import Path",
        "from feedrate.config.settings import LoaderSettings, ModelSettings",
        "from feedrate.models.build import build",
        "",
        f"settings = ModelSettings(name={model.name!r}, size={model.size!r}, checkpoint=folder)",
        f"built = build(settings, LoaderSettings(max_tokens={loader.max_tokens}), Path())",
        "model, tokenizer = built.model, built.tokenizer",
    ]
    if model.name == "bridgetower":
        lines += [
            "",
            "# With the library alone:",
            "from transformers import AutoTokenizer, BridgeTowerForContrastiveLearning",
            "",
            "model = BridgeTowerForContrastiveLearning.from_pretrained(folder)",
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
        ]
    return fenced("python", lines)


def _provenance(settings: CardSettings, spec: RunSpec, record: Record) -> str:
    known = record.provenance
    packages = ", ".join(
        f"{name} {known.packages[name]}"
        for name in ("torch", "transformers", "optimum-habana")
        if name in known.packages
    )
    said = {
        "Suite": f"feedrate {__version__}, commit {known.commit or 'unknown'}",
        "Code of the measured work": code(known.source_digest),
        "Data": code(settings.dataset or spec.dataset),
        "Data manifest, SHA-256": code(known.data_digest),
        "Settings, SHA-256": code(known.spec_digest),
        "Run": code(f"{settings.place}, repeat {spec.repeat}"),
        "Trained": f"{known.started_at} to {known.ended_at}" if known.started_at else "",
        "Software": plain(f"{packages}, Python {known.python}") if packages else "",
    }
    return bullets({name: value for name, value in said.items() if value})


if __name__ == "__main__":
    sys.exit(main())
