import ast

import msgspec
import pytest
from feedrate.report.settings import FigureSettings, OverviewSettings, TableSettings
from report_samples import EVIL, FIGURES, STUDY, TABLES, make_project

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan
from feedrate.report import settings


def plain(value):
    if isinstance(value, dict):
        return all(isinstance(k, str) and plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize("kind", TABLES)
def test_table_settings_survive_as_a_param(project, kind):
    param = settings.table_settings(project, STUDY, kind)
    assert plain(param)
    read = settings.from_param(repr(param), TableSettings)
    assert read.table == project.studies[STUDY].tables[TABLES.index(kind)]
    assert read.label("gaudi2") == "Gaudi2"
    assert read.label("unheard-of") == "unheard-of"


@pytest.mark.parametrize("kind", FIGURES)
def test_figure_settings_survive_as_a_param(project, kind):
    param = settings.figure_settings(project, STUDY, kind)
    assert plain(param)
    read = settings.from_param(repr(param), FigureSettings)
    assert read.figure == project.studies[STUDY].figures[FIGURES.index(kind)]


def test_overview_settings_tell_what_was_trained_where(project):
    param = settings.overview_settings(project, make_plan(project))
    study = settings.from_param(repr(param), OverviewSettings).studies[0]
    assert study.size == "large"
    assert study.setups["cpu"].size == "tiny"
    assert study.setups["cpu"].batch_size == 8
    assert study.setups["cpu"].warmup_steps == 5


def test_no_text_in_a_param_can_end_a_script_element():
    project = make_project(question=EVIL)
    param = settings.overview_settings(project, make_plan(project))
    assert "<" not in repr(param)
    read = settings.from_param(repr(param), OverviewSettings)
    assert read.studies[0].question == EVIL


def changed(project, **changes):
    study = msgspec.structs.replace(project.studies[STUDY], **changes)
    return msgspec.structs.replace(project, studies={STUDY: study})


def test_another_title_touches_one_figure_only(project):
    figures = list(project.studies[STUDY].figures)
    figures[0] = msgspec.structs.replace(figures[0], title="Another")
    other = changed(project, figures=figures)
    differing = [
        name
        for name in FIGURES
        if settings.figure_settings(project, STUDY, name)
        != settings.figure_settings(other, STUDY, name)
    ]
    assert differing == ["answer"]


def test_another_published_number_touches_only_what_shows_it(project):
    first, *others = project.published[STUDY]
    rows = [msgspec.structs.replace(first, value=1.0), *others]
    other = msgspec.structs.replace(project, published={STUDY: rows})
    tables = [
        name
        for name in TABLES
        if settings.table_settings(project, STUDY, name)
        != settings.table_settings(other, STUDY, name)
    ]
    figures = [
        name
        for name in FIGURES
        if settings.figure_settings(project, STUDY, name)
        != settings.figure_settings(other, STUDY, name)
    ]
    assert tables == ["published", "speedup", "editions"]
    assert figures == ["throughput", "reach", "speedup"]


def test_a_price_or_peak_touches_no_page(project):
    cpu = msgspec.structs.replace(project.devices["cpu"], price_usd_per_hour=3.0, power_w=100.0)
    other = msgspec.structs.replace(project, devices={**project.devices, "cpu": cpu})
    for name in TABLES:
        assert settings.table_settings(project, STUDY, name) == settings.table_settings(
            other, STUDY, name
        )


@pytest.mark.parametrize("kind", sorted({*TABLES, *FIGURES}))
def test_every_kind_names_its_inputs(kind):
    for path in settings.inputs_of(kind, STUDY, "generated"):
        assert "{" not in path
        assert path.startswith((f"results/{STUDY}/", "resources/datasets/generated/"))


@pytest.mark.parametrize("text", ["{'study': 1}", "no mapping", "{}"])
def test_wrong_settings_are_told(text):
    with pytest.raises(ConfigError, match="--settings"):
        settings.from_param(text, TableSettings)


def test_a_param_is_a_python_literal(project):
    param = settings.overview_settings(project, make_plan(project))
    assert ast.literal_eval(repr(param)) == param
