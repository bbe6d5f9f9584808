"""The card of a kept model, and the push of both to the hub, which shows the card that lies next to
the weights as README.md."""

import html
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import huggingface_hub as hub
import msgspec

from feedrate import __version__
from feedrate.config.spec import RunSpec
from feedrate.core.errors import MASK, ExpectedError, first_line
from feedrate.core.files import write_json, write_text
from feedrate.report import text
from feedrate.report.params import CardSettings, from_param
from feedrate.results.record import Quality, Record, Score, read_quality, read_record

README = "README.md"
PUSHED = ("*.safetensors", "*.json", "*.txt", "*.model", README)
"""Weights, configuration, tokenizer and card; not the Trainer's pickle of its arguments."""
FROM_HUB = """\
from huggingface_hub import snapshot_download

repository = snapshot_download({repository!r})
folder = f"{{repository}}/{place}\""""
WITH_FEEDRATE = """\
# With feedrate, which also sets the tokenizer and the image size:
from pathlib import Path
from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import build

settings = ModelSettings(name={model.name!r}, size={model.size!r}, checkpoint=folder)
built = build(settings, LoaderSettings(max_tokens={max_tokens}), Path())
model, tokenizer = built.model, built.tokenizer"""
WITH_TRANSFORMERS = """\
# With transformers only:
from transformers import AutoTokenizer, BridgeTowerForContrastiveLearning

model = BridgeTowerForContrastiveLearning.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""
HUB_COPY = re.compile(r"hub \((?P<repository>.+) at (?P<commit>.+)\)")
"""The hub's copy of Winoground, as quality.json describes it."""
_MARKS = re.compile(r"([\\`*_{}\[\]|~#])")


def write_card(
    settings: dict[str, Any], record: Path, quality: Path, model: Path, out: Path
) -> None:
    """Write the card of a run from its record.json and quality.json; `model` is its folder."""
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


def plain(source: str) -> str:
    """A text on one line, with all Markdown and HTML in it escaped."""
    return _MARKS.sub(r"\\\1", html.escape(" ".join(source.split()), quote=False))


def code(source: str) -> str:
    """A name or a digest as code; `unknown` where it is empty."""
    words = " ".join(source.split()).replace("`", "'").replace("|", r"\|")
    return f"`{words}`" if words else "unknown"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of texts that are escaped already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def hub_page(data: hub.ModelCardData, *blocks: str) -> str:
    """A page of the hub: its metadata in YAML, then blocks of Markdown."""
    return "\n\n".join([f"---\n{data.to_yaml()}\n---", *blocks]) + "\n"


def card(settings: CardSettings, spec: RunSpec, record: Record, quality: Quality) -> str:
    """The text of the card."""
    model = spec.settings.model.name
    data = hub.ModelCardData(
        base_model=settings.base_model,
        datasets=[settings.dataset] if settings.dataset else None,
        library_name="transformers",
        pipeline_tag=spec.settings.model.task,
        tags=["feedrate", model],
        model_name=f"{spec.study}: {spec.cell}",
        eval_results=list(_results(settings, spec, quality)) or None,
    )
    title = f"# {plain(model)}, {plain(spec.study)}"
    sections = {
        "Scores": _scores(quality),
        "Training speed": _speed(settings, record),
        "How to load the model": _loading(settings, spec),
        "Training settings": _settings(spec),
        "Provenance": _provenance(settings, spec, record),
    }
    parts = (f"## {heading}\n\n{part}" for heading, part in sections.items())
    return hub_page(data, title, _summary(settings, spec, record), *parts)


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


def _results(settings: CardSettings, spec: RunSpec, quality: Quality) -> Iterator[hub.EvalResult]:
    """The scores after training, as metadata of the hub."""
    task = "image-classification" if spec.settings.model.classifies else "image-text-retrieval"
    for score in quality.scores:
        if score.moment == "after" and score.value is not None:
            own = settings.dataset or spec.dataset, settings.dataset_revision
            data, revision = _winoground(quality) if score.on == "winoground" else own
            yield hub.EvalResult(
                task_type=task,
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
        f"Values with 95% intervals, before and after training.{data}\n\n"
        f"{table(['Data', 'Metric', 'Before', 'After'], lines)}"
    )


def _value(score: Score | None) -> str:
    if score is None:
        return text.DASH
    if score.value is None:
        return plain(f"not scored: {score.note}")
    return text.with_interval(score.value, score.low, score.high)


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
    model = spec.settings.model
    folder = 'folder = "the folder of this card"'
    if settings.repository:
        folder = FROM_HUB.format(repository=settings.repository, place=settings.place)
    built = WITH_FEEDRATE.format(model=model, max_tokens=spec.settings.loader.max_tokens)
    alone = [WITH_TRANSFORMERS] if model.name == "bridgetower" else []
    inside = "\n\n".join([folder, built, *alone]).replace("```", "'''")
    return f"```python\n{inside}\n```"


def _settings(spec: RunSpec) -> str:
    """Every setting that is not null; of local weights only the folder's name."""
    parts = {**msgspec.to_builtins(spec.settings), "protocol": msgspec.to_builtins(spec.protocol)}
    names = ("model", "loader", "train", spec.kind, "protocol")  # settings of a kind have its name
    checkpoint = Path(spec.settings.model.checkpoint or "")
    if checkpoint.is_absolute():
        parts["model"]["checkpoint"] = checkpoint.name
    rows = {
        f"{part}.{key}": value
        for part in names
        for key, value in parts.get(part, {}).items()
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


# The push to the hub


class PushError(ExpectedError):
    """The model cannot be pushed; the message gives the reason."""


def push(model: Path, quality: Path, repository: str, place: str, out: Path) -> None:
    """Push a kept model to the folder `place` of a repository, and write the commit to `out`. Where
    a run has no model, or scoring failed, `out` gives the cause, and that is no error."""
    scored, cause, commit = read_quality(quality), "", None
    if scored.status != "ok":
        cause = f"not scored: {scored.cause}"
    elif not any(model.glob("*.safetensors")):
        cause = f"no weights in {model}"
    else:
        commit = push_model(model, repository, place)
    print(f"{place}: nothing to push: {cause}" if cause else f"pushed {place} to {repository}")
    write_json(out, {"repository": repository, "place": place, "commit": commit, "cause": cause})


def push_model(folder: Path, repository: str, place: str) -> str:
    """Upload a folder of weights to the folder `place` of a repository, which is created, private,
    if it is missing. Returns the commit's address. The token in HF_TOKEN is never shown. Raises
    PushError where it is not set, and where the hub refuses or cannot be reached."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise PushError("push_to_hub needs a token in the environment variable HF_TOKEN")
    api = hub.HfApi(token=token)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            path_in_repo=place,
            allow_patterns=list(PUSHED),
            commit_message=f"feedrate: {place}",
        )
        push_index(api, repository)
    except Exception as error:  # the client's network errors differ between its versions
        reason = first_line(error).replace(token, MASK)
        raise PushError(f"{repository}: not pushed: {reason}") from None
    return str(commit.commit_url)


def push_index(api: hub.HfApi, repository: str) -> None:
    """Write the root page, which lists all folders with a card: the hub shows no other page. It is
    written again if another push adds a folder meanwhile."""
    data = hub.ModelCardData(library_name="transformers", tags=["feedrate"])
    about = "Trained with feedrate: one model per study, device and cell, each with its own card."
    is_card = re.compile(f".+/{README}").fullmatch
    listed: list[str] | None = None
    while (cards := sorted(filter(is_card, api.list_repo_files(repository)))) != listed:
        lines = [f"- [`{Path(card).parent}`]({quote(card, safe='/=~')})" for card in cards]
        api.upload_file(
            repo_id=repository,
            path_or_fileobj=hub_page(data, "# Models", about, "\n".join(lines)).encode(),
            path_in_repo=README,
            commit_message="feedrate: list of models",
        )
        listed = cards
