"""How fast a batch is ready, by ways of loading."""

import msgspec
from report_samples import STUDY, make_project, write_results

from feedrate.config.plan import make_plan
from feedrate.report import settings
from feedrate.report.rows import Inputs
from feedrate.report.sentences import loaders_alone
from feedrate.report.settings import OverviewSettings

TIMES = "\N{MULTIPLICATION SIGN}"


def study_and_cells(tmp_path, device):
    project = make_project((device,))
    param = settings.overview_settings(project, make_plan(project))
    study = settings.from_param(repr(param), OverviewSettings).studies[0]
    return study, Inputs(write_results(tmp_path, project)).cells(STUDY)


def test_ways_of_loading_are_held_to_the_baselines(tmp_path):
    study, cells = study_and_cells(tmp_path, "gaudi2")
    first = next(c for c in cells if c.levels == {"workers": 0, "decode": "host"})
    fast = msgspec.structs.replace(
        first, cell="workers=0~decode=device", loader_samples_per_s=8000.0
    )
    others = [c for c in cells if c.levels["workers"] != 0]
    assert loaders_alone(study, [first, fast, *others]) == (
        "No model beside it, with workers = 0: the baseline 40.0 samples/s "
        f"({TIMES}1.00) and decode = device 8,000 samples/s ({TIMES}200). "
        "The model alone takes 14.8."
    )


def test_a_single_way_is_not_compared(tmp_path):
    study, cells = study_and_cells(tmp_path, "cpu")
    assert loaders_alone(study, [c for c in cells if c.levels["workers"] != 1]) == ""
    assert loaders_alone(study, []) == ""
