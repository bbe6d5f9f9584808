import msgspec
import pytest
from report_samples import STUDY, make_project, settings_of, study_of, write_results

from feedrate.config.study import Exclude
from feedrate.report import lines, text


@pytest.fixture
def shown(project):
    return settings_of(project, "figure", "throughput")


def test_lines_run_along_the_factor_in_the_order_of_the_study(shown, inputs):
    cells = inputs.cells(STUDY)
    found = lines.measured_lines(shown, cells, "workers")
    assert [line.others for line in found] == [{"decode": "host"}, {"decode": "device"}]
    assert [point.value for point in found[0].points] == pytest.approx([11.2, 14.1, 14.3, 12.6])
    assert (found[0].largest.value, found[0].fastest.value) == pytest.approx((12.6, 14.3))
    assert {point.status for point in found[1].points} == {"unsupported"}
    assert lines.tried_lines(shown, cells, "workers") == found[:1]


def test_a_cell_without_a_row_is_absent(shown):
    found = lines.measured_lines(shown, [], "workers")
    assert {point.status for line in found for point in line.points} == {"absent"}
    assert lines.point_status(found[0], found[0].points[0]) == "not run"


def test_an_excluded_cell_is_not_an_absent_one(project, inputs):
    study = study_of(project)
    more = msgspec.structs.replace(study.factors["workers"], levels=[0, 3, 5])
    study = msgspec.structs.replace(
        study,
        exclude=[Exclude(levels={"workers": 3}, unless_able="magic", why="w")],
        factors={**study.factors, "workers": more},
    )
    line = lines.measured_lines(study, inputs.cells(STUDY), "workers")[0]
    assert [point.status for point in line.points] == ["ok", "excluded", "absent"]


def test_published_lines_use_only_the_headline_edition(shown):
    found = lines.published_lines(shown, "workers")
    assert [point.value for point in found[0].points] == [601.5, 747.4, 768.7, None]
    (h100,) = [line for line in found if line.device == "h100"]
    assert lines.point_status(h100, h100.points[1]) == text.DASH
    found = lines.published_lines(shown, "decode")
    h100 = next(line for line in found if line.device == "h100")
    assert lines.point_status(h100, h100.points[1]) == "not supported", "it cannot decode"


def test_speedups_over_a_devices_own_baseline_and_over_another_device(shown, inputs):
    cells = inputs.cells(STUDY)
    own = lines.baseline_speedups(shown, cells, "workers")
    assert [gain.value for gain in own["CPU, here"]] == pytest.approx(
        [1.0, 14.1 / 11.2, 14.3 / 11.2, 12.6 / 11.2]
    )
    assert own["CPU, here"][0].low is None
    assert own["H100, published"][2].value == pytest.approx(602.1 / 336.5)
    assert own["Gaudi2, published, decode = host"][0].value == 1, "beside another line of it"
    assert own["Gaudi2, published, decode = device"][2].value == pytest.approx(847.7 / 601.5)
    across = lines.device_speedups(shown, cells, "workers")
    assert list(across) == ["Gaudi2 over H100, published"]
    values = [gain.value for gain in across["Gaudi2 over H100, published"]]
    assert values == pytest.approx([601.5 / 336.5, None, 768.7 / 602.1, None], nan_ok=True)


def test_published_speedups_cross_no_factor_of_within(shown):
    """847.7 with decode = device has no ratio to 601.5 with decode = host."""
    apart = msgspec.structs.replace(shown, within=["decode"])
    found = lines.baseline_speedups(apart, [], "workers")
    ratios = {name: [one.value for one in line] for name, line in found.items()}
    assert not any(ratios["Gaudi2, published, decode = device"])
    assert ratios["Gaudi2, published, decode = host"][2] == pytest.approx(768.7 / 601.5)


def test_a_measured_ratio_names_both_of_its_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(("cpu", "gaudi2"))
    shown = settings_of(project, "table", "speedup")
    cells = [
        msgspec.structs.replace(cell, samples_per_s=cell.samples_per_s and 2 * cell.samples_per_s)
        if cell.device == "gaudi2"
        else cell
        for cell in write_results(tmp_path, project).cells(STUDY)
    ]
    ratio = lines.device_speedups(shown, cells, "workers")["Gaudi2 over CPU, here"][2]
    named = [(cell.device, cell.levels["workers"]) for cell in ratio.cells]
    assert named == [("gaudi2", 2), ("cpu", 2)]
    gain = lines.baseline_speedups(shown, cells, "workers")["CPU, here"][2]
    named = [(cell.device, cell.levels["workers"]) for cell in gain.cells]
    assert named == [("cpu", 2), ("cpu", 0)]
