import msgspec
import pytest
from report_samples import STUDY, make_project, write_results

from feedrate.report import gains, grid, settings
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings


@pytest.fixture
def shown(project):
    return settings.from_param(
        repr(settings.figure_settings(project, STUDY, "throughput")), FigureSettings
    )


def test_lines_run_along_the_factor_in_the_order_of_the_study(shown, inputs):
    lines = grid.measured_lines(shown, inputs.cells(STUDY), "workers")
    assert [line.rest for line in lines] == [{"decode": "host"}, {"decode": "device"}]
    assert [spot.value for spot in lines[0].spots] == pytest.approx([11.2, 14.1, 14.3, 12.6])
    assert {spot.status for spot in lines[1].spots} == {"unsupported"}
    assert grid.tried(lines) == lines[:1]


def test_a_cell_without_a_row_is_absent(shown):
    lines = grid.measured_lines(shown, [], "workers")
    assert {spot.status for line in lines for spot in line.spots} == {"absent"}
    assert grid.state(lines[0], lines[0].spots[0]) == "not run"


def test_published_lines_use_the_headline_edition_alone(shown):
    lines = [line for line in grid.published_lines(shown, "workers") if line.has_numbers]
    gaudi2 = lines[0]
    assert [spot.value for spot in gaudi2.spots] == [601.5, 747.4, 768.7, None]
    h100 = next(x for x in grid.published_lines(shown, "workers") if x.device == "h100")
    assert grid.state(h100, h100.spots[1]) == "–"  # noqa: RUF001 (a dash is what is shown)
    other = [x for x in grid.published_lines(shown, "workers") if x.device == "h100"][1]
    assert grid.state(other, other.spots[2]) == "/"


def test_names_of_cells_tell_only_what_differs(inputs):
    cells = [cell for cell in inputs.cells(STUDY) if cell.status == "ok"]
    assert grid.short_names(cells)["workers=2~decode=host"] == "workers = 2"
    assert grid.short_names(cells[:1]) == {"workers=0~decode=host": "workers = 0, decode = host"}
    assert grid.short_names([]) == {}


def test_what_is_off_is_not_in_a_cells_name(inputs):
    (first, *_) = inputs.cells(STUDY)
    names = ["decode=host~scaled=false", "decode=host~scaled=true", "decode=cache~scaled=false"]
    cells = [msgspec.structs.replace(first, cell=name) for name in names]
    assert list(grid.short_names(cells).values()) == [
        "decode = host",
        "decode = host, scaled = true",
        "decode = cache",
    ]
    assert grid.short_names(cells[:2])[names[0]] == "decode = host, scaled = false"


def test_of_two_recommended_cells_within_noise_the_plainer_one_is_used(tmp_path):
    project = make_project(("gaudi2",))
    inputs = Inputs(write_results(tmp_path, project))
    shown = settings.from_param(
        repr(settings.figure_settings(project, STUDY, "answer")), FigureSettings
    )
    cells = inputs.cells(STUDY)
    assert sum(cell.recommended for cell in cells) == 2
    assert grid.recommended_cell(shown, cells, "gaudi2").cell == "workers=1~decode=host"
    assert grid.recommended_cell(shown, cells, "cpu") is None


def test_what_a_device_lacks_is_said(shown):
    said = grid.lacking_text(shown, "cpu")
    assert said == "Not supported on CPU: decode = device (needs decode_device)."
    assert grid.lacking_text(shown, "gaudi2") == ""


def test_gains_over_the_own_baseline_and_of_device_over_device(shown, inputs):
    cells = inputs.cells(STUDY)
    own = {line.name: line.gains for line in gains.gain_lines(shown, cells, "workers")}
    assert [gain.value for gain in own["CPU, here"]] == pytest.approx(
        [1.0, 14.1 / 11.2, 14.3 / 11.2, 12.6 / 11.2]
    )
    assert own["CPU, here"][0].low is None
    assert own["H100, published"][2].value == pytest.approx(602.1 / 336.5)
    assert own["Gaudi2, published, decode = device"][2].value == pytest.approx(847.7 / 601.5)
    across = {line.name: line.gains for line in gains.device_lines(shown, cells, "workers")}
    assert list(across) == ["Gaudi2 over H100, published"]
    values = [gain.value for gain in across["Gaudi2 over H100, published"]]
    assert values == pytest.approx([601.5 / 336.5, None, 768.7 / 602.1, None], nan_ok=True)
