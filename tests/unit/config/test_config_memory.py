"""Cards with less memory: the studies give them batches that fit."""

import pytest
from msgspec.structs import replace

from feedrate.config.plan import AdaptedStudy, make_plan
from feedrate.config.study import adapt_keys
from feedrate.models.memory import CONTEXT_GIB, needs, peak_gib

LOADING = "bridgetower-dataloading"
TRAINED = (LOADING, "bridgetower-learning", "bridgetower-quality", "dataloading-levels")
TRAINED += ("gaudi-accelerations", "vit-speedups")
USABLE = 0.95
"""Share of a card's memory that fragments leave."""
LONGEST = 128
"""Tokens of the longest texts."""


def cards(project):
    return [name for name, d in project.devices.items() if d.kind == "cuda"]


def test_the_baseline_of_every_study_fits_on_every_card(copy, project):
    """With the longest texts of all studies: shorter ones take less, and a trace takes seconds."""
    loaded = copy.load(studies=list(TRAINED), devices=cards(project))
    seen = set()
    for spec in make_plan(loaded).runs.values():
        if spec.repeat == 1 and spec.levels == loaded.studies[spec.study].baseline:
            seen.add((spec.study, spec.device))
            device, batch = project.devices[spec.device], spec.settings.train.batch_size
            assert spec.settings.loader.max_tokens <= LONGEST
            loader = replace(spec.settings.loader, max_tokens=LONGEST)
            longest = replace(spec.settings, loader=loader)
            needed_gib = peak_gib(longest, device, batch) + CONTEXT_GIB
            assert needed_gib <= USABLE * device.memory_gib, (spec.study, spec.device, batch)
    assert seen == {(study, card) for study in TRAINED for card in cards(project)}


def test_the_published_batch_of_vit_does_not_fit_into_40_gb_and_half_of_it_twice_does(copy):
    """560 on eight: 70 each, or two micro-steps of 35."""
    project = copy.load(studies=["vit-speedups"], devices=["a100-40gb"])
    train = AdaptedStudy(project, "vit-speedups", "a100-40gb").settings.train
    assert train.batch_size * train.gradient_accumulation * 8 == 560
    settings = AdaptedStudy(project, "vit-speedups", "a100-40gb").settings
    whole = replace(train, batch_size=70, gradient_accumulation=1)
    card = project.devices["a100-40gb"]
    found = needs(replace(settings, train=whole), card)
    held_gib = found.weights_gib + found.gradients_gib + found.states_gib
    assert held_gib == pytest.approx(9.4, abs=0.05)
    assert found.activations_gib == pytest.approx(39.0, abs=0.1)
    assert found.verdict == "does not fit"
    runs = make_plan(project).runs.values()
    single = [s for s in runs if s.settings.train.precision in ("fp32", "tf32")]
    assert {s.levels["technique"] for s in single} >= {"baseline", "fp32", "image-256px"}
    peaks = [peak_gib(s.settings, card, s.settings.train.batch_size) for s in single]
    assert max(peaks) + CONTEXT_GIB <= USABLE * card.memory_gib


def test_a_study_may_say_more_about_a_card_than_its_memory_does(copy):
    copy.edit(
        f"studies/{LOADING}.yaml",
        ("adapt:\n", "adapt:\n  rtx-4090: {settings: {train: {batch_size: 3}}}\n"),
    )
    project = copy.load()
    assert AdaptedStudy(project, LOADING, "rtx-4090").settings.train.batch_size == 3
    keys = adapt_keys(project.studies[LOADING], "rtx-4090", project.devices["rtx-4090"])
    assert keys == ["cuda", "below-70-gib", "below-36-gib", "below-30-gib", "rtx-4090"]
