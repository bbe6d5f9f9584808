"""FLOPs of published models, as config/published has them, counted again."""

from pathlib import Path

import pytest

from feedrate.config.plan import published_settings
from feedrate.config.project import load_project, study_names
from feedrate.config.values import read_yaml
from feedrate.models.build import build_bare
from feedrate.models.flops import count_flops

ROOT = Path(__file__).parents[3]


def stated():
    """Settings of a model, its limit of tokens and its FLOPs, each once."""
    config = read_yaml(ROOT / "config/config.yaml")
    project = load_project(ROOT, config | {"studies": study_names(ROOT)})
    found = {}
    for study, rows in project.published.items():
        for row in rows:
            if value := row.flops_per_sample:
                settings = published_settings(project, study, row)
                key = repr((settings.model, settings.loader.max_tokens))
                found[key, value] = settings
    return [(settings, value) for (_, value), settings in found.items()]


def test_flops_of_published_models(labelled):
    found = stated()
    assert len(found) >= 3
    for settings, flops in found:
        built = build_bare(settings.model, settings.loader, labelled)
        counted = count_flops(built, settings.loader.max_tokens)
        assert counted == pytest.approx(flops, rel=1e-6), settings.model
