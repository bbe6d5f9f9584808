"""The facts that pages show besides results."""

import msgspec
import pytest
from report_samples import FIGURES, STUDY, TABLES, plan_of, settings_of, study_of, with_study

from feedrate.config.plan import make_plan
from feedrate.config.study import Exclude
from feedrate.core import plugins

PAGES = [("table", name) for name in TABLES] + [("figure", name) for name in FIGURES]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_facts_of_its_study(project, page):
    settings = settings_of(project, *page)
    assert (settings.part, settings.kind) == page
    assert settings.title == f"{page[0].title()} of {page[1]}"
    assert settings.factor == "workers"
    assert settings.label("gaudi2") == "Gaudi2"
    assert settings.label("unheard-of") == "unheard-of"


def test_pages_are_ordered_by_the_order_of_their_kinds(project):
    order = study_of(project).order
    assert sorted(order) == sorted(f"{part}-{name}" for part, name in PAGES)
    declared = {
        f"{part}-{name}": kind.place
        for part in ("table", "figure")
        for name, kind in plugins.kinds(f"feedrate.report.{part}s").items()
    }
    numbers = [declared[one] for one in order]
    assert numbers == sorted(numbers)
    assert order.index("figure-latency") < order.index("table-latency")


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
    assert plan_of(project).measured == ["gaudi2"]
    assert make_plan(project).devices_of(STUDY) == ["cpu", "gaudi2"]
    assert make_plan(project).devices_of("another") == []
