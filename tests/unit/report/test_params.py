import ast

import msgspec
import pytest
from feedrate.results.params import claim_settings
from report_samples import (
    EVIL,
    FIGURES,
    STUDY,
    TABLES,
    make_project,
    overview_of,
    settings_of,
    study_of,
    with_study,
)

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan
from feedrate.config.study import Exclude
from feedrate.core import plugins
from feedrate.report import params
from feedrate.report.context import OverviewSettings, PageSettings

PAGES = [("table", name) for name in TABLES] + [("figure", name) for name in FIGURES]


def plain(value):
    if isinstance(value, dict):
        return all(isinstance(k, str) and plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def param_of(project, page):
    return params.page_settings(project, STUDY, *page)


@pytest.mark.parametrize("page", PAGES)
def test_page_settings_survive_as_a_param(project, page):
    assert plain(param_of(project, page))
    read = settings_of(project, *page)
    assert (read.part, read.kind) == page
    assert read.title == f"{page[0].title()} of {page[1]}"
    assert read.factor == "workers"
    assert read.label("gaudi2") == "Gaudi2"
    assert read.label("unheard-of") == "unheard-of"


def test_pages_are_ordered_by_the_order_of_their_kinds(project):
    order = study_of(project).order
    assert sorted(order) == sorted(f"{part}-{name}" for part, name in PAGES)
    declared = {
        f"{part}-{kind}": number
        for part in ("table", "figure")
        for kind, number in plugins.declared(f"feedrate.report.{part}s", "ORDER").items()
    }
    numbers = [declared[one] for one in order]
    assert numbers == sorted(numbers)
    assert order.index("figure-latency") < order.index("table-latency")


def test_no_text_in_a_param_can_end_a_script_element():
    project = make_project(question=EVIL)
    param = params.overview_settings(project, make_plan(project))
    assert "<" not in repr(param)
    assert overview_of(project).studies[0].question == EVIL


def differing(project, other):
    return {page for page in PAGES if param_of(project, page) != param_of(other, page)}


def test_another_published_number_touches_only_what_shows_it(project):
    first, *others = project.published[STUDY]
    rows = [msgspec.structs.replace(first, value=1.0), *others]
    other = msgspec.structs.replace(project, published={STUDY: rows})
    names = ("published", "speedup", "editions", "comparability")
    tables = {("table", name) for name in names}
    figures = {("figure", name) for name in ("throughput", "reach", "speedup")}
    assert differing(project, other) == tables | figures


@pytest.mark.parametrize("page", PAGES)
def test_every_kind_names_its_inputs(page):
    part, kind = page
    needs = plugins.declared(f"feedrate.report.{part}s", "NEEDS")[kind]
    assert set(needs) <= {*params.FILES, "published", "peaks", "winoground"}
    found = params.inputs_of(part, kind, STUDY, "generated")
    assert len(found) == len(set(needs) & set(params.FILES))
    for path in found:
        assert "{" not in path
        assert path.startswith((f"results/{STUDY}/", "resources/datasets/generated/"))


@pytest.mark.parametrize("param", [{"study": 1}, {}])
def test_wrong_settings_are_an_error(param):
    with pytest.raises(ConfigError, match="--settings"):
        params.from_param(param, PageSettings)


@pytest.mark.parametrize("text", [EVIL, "&lt;b&gt; &amp;amp; &copy", '"quoted" \\ \n\t ü'])
def test_any_text_survives_as_a_param(text):
    project = make_project(question=text)
    param = params.overview_settings(project, make_plan(project))
    assert ast.literal_eval(repr(param)) == param
    (study,) = params.from_param(param, OverviewSettings).studies
    assert study.question == text


@pytest.mark.parametrize(("unless", "shown"), [({}, False), ({"decode": ["host"]}, True)])
def test_a_level_is_shown_if_any_cell_has_it(project, unless, shown):
    """A level that only one cell has was not drawn once."""
    left_out = Exclude(levels={"workers": 16}, unless=unless, why="too many")
    told = settings_of(with_study(project, exclude=[left_out]), "figure", "throughput")
    assert (16 in told.factors["workers"].levels) is shown


def test_pages_of_merged_results_show_only_devices_of_sites_that_have_the_study(project):
    both = msgspec.structs.replace(project.config, devices=["cpu", "gaudi2"])
    project = msgspec.structs.replace(project, config=both, measured={STUDY: ["gaudi2"]})
    assert study_of(project).measured == ["gaudi2"]
    assert settings_of(project, "table", "claims").measured == ["gaudi2"]
    (study,) = claim_settings(project).studies.values()
    assert (study.measured, list(study.able)) == (["gaudi2"], ["gaudi2"])
    assert make_plan(project).devices_of(STUDY) == ["cpu", "gaudi2"]
    assert make_plan(project).devices_of("another") == []
