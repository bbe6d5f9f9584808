"""The published numbers in config/published, recomputed from each other and from the models."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from feedrate.config.plan import published_settings
from feedrate.config.project import load_project, study_names
from feedrate.config.settings import LoaderSettings
from feedrate.config.values import read_yaml
from feedrate.data.manifest import TOKENIZER
from feedrate.data.prepare import train_tokenizer
from feedrate.models.build import build_bare
from feedrate.models.memory import ERROR, peak_gib, room_gib, states_gib, trace_of
from feedrate.results import audit
from feedrate.results.claims import claim_rows
from feedrate.results.params import ClaimSettings, claim_settings

ROOT = Path(__file__).resolve().parents[3]
PER_UNIT = {"parameters": 1, "model_size_gib": 2**30 / 4}
"""Metrics of models to the parameters in a unit; a size is that of fp32."""


@pytest.fixture(scope="module")
def project():
    config = read_yaml(ROOT / "config/config.yaml")
    return load_project(ROOT, config | {"studies": study_names(ROOT)})


def rows(project, *metrics):
    """The published numbers of these metrics, with their study and settings."""
    for study, published in project.published.items():
        for row in published:
            if row.metric in metrics:
                yield study, row, published_settings(project, study, row)


def test_printed_ratios_follow_from_the_printed_rates(project):
    known = 0
    for name, study in claim_settings(project).studies.items():
        devices = list(dict.fromkeys(row.device for row in study.published))
        alone = ClaimSettings(studies={name: msgspec.structs.replace(study, measured=devices)})
        for row in (row for row in claim_rows([], alone) if row.get("published_verdict")):
            known += 1
            about_ten = "trains a model about 10 times as large as DDP" in row["statement"]
            assert row["published_verdict"] == ("not" if about_ten else "consistent"), row
    assert known >= 20


def test_printed_sizes_are_those_of_the_models(project, tmp_path):
    train_tokenizer(["any"], tmp_path / TOKENIZER)
    wrong, counts = [], {}
    for _, row, settings in rows(project, *PER_UNIT):
        model = msgspec.structs.replace(settings.model, checkpoint=None, revision=None)
        if model not in counts:
            counts[model] = build_bare(model, LoaderSettings(max_tokens=1), tmp_path).parameters
        value = counts[model] / PER_UNIT[row.metric]
        # Rounded or cut to the printed digits: 866.6e6 is 866e6.
        digit = 10.0 ** int(Decimal(repr(row.value)).normalize().as_tuple().exponent)
        if abs(value - row.value) >= min(digit, row.value / 10):
            wrong.append(row.id)
    assert wrong == ["draft-parameters"], "the draft prints 955M for 866M"
    assert {row.counted for _, row, _ in rows(project, *PER_UNIT)} <= {None, *counts.values()}


def test_no_printed_rate_is_above_the_peak(project):
    for study, row, settings in rows(project, audit.RATE):
        peaks = {one.precision: one.datasheet_tflops for one in project.devices[row.device].peaks}
        found = audit.rate(row, settings.train.precision.removesuffix("_full"), peaks)
        assert not found.mfu or found.mfu < 1, (study, row.id)


def test_batches_of_printed_rates_fit_into_memory(project):
    for study, row, settings in rows(project, audit.RATE):
        device = msgspec.structs.replace(project.devices[row.device], count=row.count)
        room = room_gib(settings, device) if project.studies[study].task == "training" else None
        if room is not None:
            counted = peak_gib(settings, device, settings.train.batch_size)
            assert counted * (1 - ERROR) <= room, (study, row.id)


def active_gib(settings, device, batch):
    """Tensors on each device at the end of the forward pass; gradients are not there yet."""
    found = trace_of(settings, device)
    parts = states_gib(found.built.model, settings.train, device.count)
    return parts.weights + parts.states + float(found.live_gib(batch)[found.forward - 1])


def test_printed_memory_is_about_the_counted_memory(project):
    for _, row, settings in rows(project, "peak_memory_gib", "active_memory_reduction"):
        device = msgspec.structs.replace(project.devices[row.device], count=row.count)
        batch = settings.train.batch_size
        value = peak_gib(settings, device, batch)
        if row.metric == "active_memory_reduction":
            model = msgspec.structs.replace(settings.model, checkpointing=False)
            plain = msgspec.structs.replace(settings, model=model)
            value = active_gib(plain, device, batch) / active_gib(settings, device, batch)
        assert value == pytest.approx(row.value, rel=ERROR), row.id
