"""The card of a kept model: its training, speed, scores before and after, and how to load it.

A copy next to the weights, named README.md, is what the hub shows.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from feedrate import __version__
from feedrate.config.spec import RunSpec
from feedrate.core.files import write_text
from feedrate.report import text
from feedrate.report.params import CardSettings, from_param
from feedrate.results.quality import Quality, Score, read_quality
from feedrate.results.record import Record, read_record

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCardData

README = "README.md"
TASKS = {"clip": "zero-shot-image-classification", "vit": "image-classification"}
"""The hub's name for the task of a model, where it has one."""
HUB_COPY = re.compile(r"hub \((?P<repository>.+) at (?P<commit>.+)\)")
"""The hub's copy of Winoground, as quality.json describes it."""
_MARKS = re.compile(r"([\\`*_{}\[\]|~#])")


def write_card(
    settings: dict[str, Any], record: Path, quality: Path, model: Path, out: Path
) -> None:
    """Write the card of a run from its record.json and quality.json; `model` is the kept model's
    folder."""
    about = from_param(settings, CardSettings)
    measured, scored = read_record(record), read_quality(quality)
    kept = scored.status != "no_model" and any(model.glob("*.safetensors"))
    if measured.spec and kept:
        written = card(about, measured.spec, measured, scored)
        write_text(model / README, written)
    else:
        cause = measured.cause or scored.cause or "its weights were not kept"
        written = f"No model ({text.STATUS_WORDS[measured.status]}): {plain(cause)}\n"
    write_text(out, written)


def plain(text: str) -> str:
    """A text on one line, with all Markdown and HTML in it escaped."""
    return _MARKS.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """A name or a digest as code; `unknown` without one."""
    words = " ".join(text.split()).replace("`", "'").replace("|", r"\|")
    return f"`{words}`" if words else "unknown"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of texts that are escaped already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def hub_page(data: "ModelCardData", *blocks: str) -> str:
    """A page of the hub: its metadata in YAML, then blocks of Markdown."""
    return "\n\n".join([f"---\n{data.to_yaml()}\n---", *blocks]) + "\n"


def card(settings: CardSettings, spec: RunSpec, record: Record, quality: Quality) -> str:
    """The text of the card."""
    from huggingface_hub import ModelCardData

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
    return hub_page(
        data,
        f"# {plain(model)}, {plain(spec.study)}",
        _summary(settings, spec, record),
        "## Scores",
        _scores(quality),
        "## Training speed",
        _speed(settings, record),
        "## How to load the model",
        _loading(settings, spec),
        "## Training settings",
        _settings(spec),
        "## Provenance",
        _provenance(settings, spec, record),
    )


def _summary(settings: CardSettings, spec: RunSpec, record: Record) -> str:
    model = spec.settings.model
    parameters = f", {record.model_parameters:,} parameters" if record.model_parameters else ""
    start = "random weights"
    if settings.base_model:
        start = code(settings.base_model)
    elif model.checkpoint:
        start = f"local weights, {code(Path(model.checkpoint).name)},"
    return (
        f"{plain(model.name)} ({plain(model.size)}{parameters}), trained from {start} on "
        f"{plain(settings.device)}. It comes from a run of *{plain(settings.title)}* with "
        "feedrate, a benchmark suite for training throughput. The purpose of the run was the "
        "measurement; the model was evaluated only as shown below."
    )


def _results(settings: CardSettings, spec: RunSpec, quality: Quality) -> Iterator["EvalResult"]:
    """The scores after training, as metadata of the hub."""
    from huggingface_hub import EvalResult

    vit = spec.settings.model.name == "vit"
    for score in quality.scores:
        if score.moment == "after" and score.value is not None:
            own = settings.dataset or spec.dataset, settings.dataset_revision
            data, revision = _winoground(quality) if score.on == "winoground" else own
            yield EvalResult(
                task_type="image-classification" if vit else "image-text-retrieval",
                dataset_type=data,
                dataset_name=data,
                dataset_split="test" if score.on == "winoground" else score.on,
                dataset_revision=revision,
                metric_type=score.metric,
                metric_name=f"{score.metric}, {score.head} head" if score.head else score.metric,
                metric_value=score.value,
            )


def _winoground(quality: Quality) -> tuple[str, str | None]:
    """The copy of Winoground: the hub's repository and commit, or a name of our own."""
    if found := HUB_COPY.fullmatch(quality.winoground):
        return found["repository"], found["commit"]
    local = quality.winoground.startswith("folder")
    return "winoground (local copy)" if local else "winoground-stand-in", None


def _scores(quality: Quality) -> str:
    if quality.status != "ok":
        return f"Not scored: {plain(quality.cause)}"
    rows: dict[tuple[str, str], dict[str, Score]] = {}
    for score in quality.scores:
        head = f", {plain(score.head)} head" if score.head else ""
        metric = plain(score.metric.replace("_", " ")) + head
        rows.setdefault((plain(score.on), metric), {})[score.moment] = score
    lines = [
        [*names, _value(pair.get("before")), _value(pair.get("after"))]
        for names, pair in rows.items()
    ]
    data = f" Winoground: {plain(quality.winoground)}." if quality.winoground else ""
    return (
        f"Values with 95% bootstrap intervals, before and after training.{data}\n\n"
        f"{table(['Data', 'Metric', 'Before', 'After'], lines)}"
    )


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
    rows = {
        "Device": plain(f"{settings.device} ({record.provenance.device_model})"),
        "Throughput (samples/s)": text.number(found.samples_per_s),
        "Median step time": text.seconds(found.step_time_median_s),
        "Data-wait share": text.share(found.data_wait_share),
        "Peak memory (GiB)": text.number(found.peak_memory_gib, 3),
        "Model FLOPs utilisation (MFU)": text.share(found.mfu),
        "Window": f"{found.steps} steps after {found.warmup_steps} warm-up steps",
        "First loss": text.number(found.loss_first),
        "Last loss": text.number(found.loss_last),
    }
    return warning + table(["Quantity", "Value"], rows.items())


def _loading(settings: CardSettings, spec: RunSpec) -> str:
    """Code that loads the model, with feedrate and, for a class of transformers, without it."""
    model, loader = spec.settings.model, spec.settings.loader
    lines = ['folder = "the folder of this card"']
    if settings.repository:
        lines = [
            "from huggingface_hub import snapshot_download",
            "",
            f"repository = snapshot_download({settings.repository!r})",
            f'folder = f"{{repository}}/{settings.place}"',
        ]
    lines += [
        "",
        "# With feedrate, which also sets the tokenizer and the image size:",
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
            "# With transformers only:",
            "from transformers import AutoTokenizer, BridgeTowerForContrastiveLearning",
            "",
            "model = BridgeTowerForContrastiveLearning.from_pretrained(folder)",
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
        ]
    inside = "\n".join(lines).replace("```", "'''")
    return f"```python\n{inside}\n```"


def _settings(spec: RunSpec) -> str:
    """Every setting that is not null; of local weights only the folder's name."""
    settings = msgspec.to_builtins(spec.settings)
    names = ("model", "loader", "train", spec.kind)  # settings of one kind have its name
    parts: dict[str, Any] = {name: settings[name] for name in names if name in settings}
    checkpoint = Path(spec.settings.model.checkpoint or "")
    if checkpoint.is_absolute():
        parts["model"]["checkpoint"] = checkpoint.name
    parts["protocol"] = msgspec.to_builtins(spec.protocol)
    rows = {
        f"{part}.{key}": value
        for part, values in parts.items()
        for key, value in values.items()
        if value is not None
    }
    rows["seed"] = spec.seed
    return table(["Setting", "Value"], ([code(key), code(str(rows[key]))] for key in rows))


def _provenance(settings: CardSettings, spec: RunSpec, record: Record) -> str:
    known = record.provenance
    packages = ", ".join(
        f"{name} {known.packages[name]}"
        for name in ("torch", "transformers", "optimum-habana")
        if name in known.packages
    )
    facts = {
        "Suite": f"feedrate {__version__}, commit {known.commit or 'unknown'}",
        "Digest of the measured code": code(known.source_digest),
        "Data": code(settings.dataset or spec.dataset),
        "Data manifest, SHA-256": code(known.data_digest),
        "Settings, SHA-256": code(known.spec_digest),
        "Run": code(f"{settings.place}, repeat {spec.repeat}"),
        "Trained": f"{known.started_at} to {known.ended_at}" if known.started_at else "",
        "Software": plain(f"{packages}, Python {known.python}") if packages else "",
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
