"""Scores before and after, and settings that learn something else."""

import csv
import re

import msgspec
import pytest
from report_samples import STUDY, make_project, write_results

from feedrate.config.plan import make_plan
from feedrate.report import figure, findings, qualities, settings, table
from feedrate.report.rows import CellRow, Inputs, QualityRow
from feedrate.report.settings import FigureSettings, OverviewSettings, TableSettings


def score(moment, value, *, repeat=1, low=None, high=None, **changes):
    return QualityRow(
        **{
            "study": STUDY,
            "device": "cpu",
            "cell": "workers=0~decode=host",
            "repeat": repeat,
            "status": "ok",
            "moment": moment,
            "on": "test",
            "metric": "matching_accuracy",
            "value": value,
            "low": low,
            "high": high,
            "n": 60,
            "chance": 0.2,
            "seconds": 3.0,
            "job_s": 20.0,
            **changes,
        }
    )


def cell(**changes):
    common = {"study": STUDY, "device": "cpu", "cell": "workers=1~decode=host", "status": "ok"}
    return CellRow(**{**common, "samples_per_s": 12.0, "ok_runs": 2, **changes})


BASELINE = {"workers": 0, "decode": "host"}
ROWS = [
    score("before", 0.2, low=0.1, high=0.3),
    score("after", 0.5, low=0.4, high=0.6),
    score("before", 0.22, repeat=2, low=0.12, high=0.32),
    score("after", 0.6, repeat=2, low=0.45, high=0.7),
]


def edited(tmp_path, project, file, change):
    """The sample's files with one of them changed, row by row."""
    files = write_results(tmp_path, project)
    path = next(one for one in files if one.name == file)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        change(row)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return Inputs(files)


def rendered(project, inputs, kind):
    param = settings.table_settings(project, STUDY, kind)
    return table.render(settings.from_param(repr(param), TableSettings), inputs)


def test_repeats_stand_together_with_the_widest_ends():
    shown = qualities.over_repeats(row for row in ROWS if row.moment == "after")
    assert shown.value == pytest.approx(0.55)
    assert (shown.low, shown.high, shown.repeats, shown.chance) == (0.4, 0.7, 2, 0.2)
    assert qualities.over_repeats([]) is None


def test_a_repeat_without_a_value_is_left_out_of_the_mean():
    shown = qualities.over_repeats([ROWS[1], score("after", None, repeat=2)])
    assert (shown.value, shown.repeats) == (0.5, 1)


def test_words_for_shares_and_for_losses():
    shown = qualities.over_repeats(ROWS[:1])
    assert qualities.said(shown, "matching_accuracy") == ("20%", "10\N{EN DASH}30%")
    assert qualities.said(shown, "contrastive_loss") == ("0.200", "0.1000 to 0.3000")
    assert qualities.said(None, "accuracy")[1] == ""


def headline(rows):
    return qualities.headline(rows, "cpu", BASELINE)


def test_the_headline_tells_what_training_adds():
    assert headline(ROWS).endswith("from 21% to 55% (40\N{EN DASH}70%; by chance 20%)")


def test_the_headline_is_the_baselines_whatever_others_gain():
    more = [
        msgspec.structs.replace(row, cell="workers=1~decode=host", value=value)
        for row, value in zip(ROWS, (0.1, 0.9, 0.1, 0.9), strict=True)
    ]
    said = headline([*more, *ROWS])
    assert said.endswith("(40\N{EN DASH}70%; by chance 20%) with workers = 0, decode = host")
    worse = [msgspec.structs.replace(row, value=0.2) for row in ROWS]
    assert headline([*more, *worse]) == ""


def test_without_scores_of_the_baseline_the_headline_is_of_who_gained_most():
    other = [msgspec.structs.replace(row, cell="model=clip") for row in ROWS]
    least = [msgspec.structs.replace(row, cell="model=vit", value=0.2) for row in ROWS]
    for none in ([], [score("before", None), score("after", None)]):
        said = headline([*none, *least, *other])
        assert said.endswith("from 21% to 55% (40\N{EN DASH}70%; by chance 20%) with model = clip")


def test_the_answer_of_a_study_of_quality_is_that_headline(project, inputs):
    study = project.studies[STUDY]
    gain = [figure for figure in study.figures if figure.kind == "gain"]
    asking = msgspec.structs.replace(study, figures=gain)
    asked = msgspec.structs.replace(project, studies={STUDY: asking})
    param = settings.overview_settings(asked, make_plan(asked))
    (shown,) = settings.from_param(repr(param), OverviewSettings).studies
    more = [
        msgspec.structs.replace(r, cell="workers=1~decode=host", value=float(r.moment == "after"))
        for r in ROWS
    ]
    rows = [*more, *ROWS]
    answer = findings.answer(shown, inputs.cells(STUDY), "cpu", rows)
    assert answer.headline == f"CPU: {headline(rows)}."
    assert "from 21% to 55%" in answer.headline


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [score("before", 0.5), score("after", 0.4)],
        [score("after", 0.4)],
        [score("before", None), score("after", None)],
    ],
    ids=["nothing", "no gain", "no before", "no value"],
)
def test_without_a_gain_there_is_no_headline(rows):
    assert headline(rows) == ""


def test_points_name_what_departs_and_what_scoring_costs():
    departing = cell(loss_shift=0.5, loss_seeds=0.1, loss_departs=True)
    points = dict(qualities.points([departing, cell(loss_shift=0.01)], ROWS))
    assert points["Other quality"].startswith("the loss of 1, host departs")
    assert "20.0 s a model" in points["Cost of scoring"]
    assert "2 models" in points["Cost of scoring"]


def test_points_say_where_nothing_departs():
    points = dict(qualities.points([cell(loss_shift=0.01, loss_seeds=0.1)], []))
    assert "1 setting compared" in points["Equal quality"]
    assert qualities.points([cell()], []) == []


def test_the_table_has_both_moments_chance_and_what_was_not_scored(tmp_path):
    project = make_project()
    bad = {("cpu", 1): "failed"}
    page = rendered(project, Inputs(write_results(tmp_path, project, bad=bad)), "quality")
    assert "<td>before</td>" in page
    assert "<td>after</td>" in page
    assert ">by chance</th>" in page
    assert "Right caption of five" in page
    assert "not scored" in page
    assert "text_score" not in page


def test_a_setting_that_departs_is_flagged_beside_its_speed_in_every_table(tmp_path):
    def depart(row):
        departs = row["cell"].startswith("workers=1") and row["status"] == "ok"
        row |= {"loss_end": 1.5, "loss_shift": 0.5, "loss_seeds": 0.1}
        row["loss_departs"] = str(departs).lower()

    project = make_project()
    inputs = edited(tmp_path, project, "cells.csv", depart)
    flag = "other quality: loss +0.500 off the baseline&#x27;s, where seeds make 0.100"
    for kind in ("equal", "training", "cells"):
        page = rendered(project, inputs, kind)
        assert page.count("other quality") == page.count(flag) >= 1, kind
    assert "as the baseline&#x27;s" in rendered(project, inputs, "equal")


@pytest.mark.parametrize("kind", ["equal", "training"])
def test_the_loss_at_the_end_is_one_number_in_all_tables(tmp_path, kind):
    project = make_project()
    ended = edited(tmp_path, project, "cells.csv", lambda r: r.update(loss_end=1.5, loss_last=9))
    page = rendered(project, ended, kind)
    assert "Loss at the end" in page
    assert "1.500" in page
    assert "9.000" not in page
    unknown = edited(tmp_path, project, "cells.csv", lambda r: r.update(loss_last=9))
    assert "9.000" not in rendered(project, unknown, kind)


def verdicts(page):
    """The last column by what stands in the first."""
    lines = re.findall(r"<tr>.*?</tr>", page.partition("<tbody>")[2])
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]
    return {line[0]: line[-1] for line in cells if len(line) > 2}


def test_the_table_of_equal_quality_knows_the_baseline(project, inputs):
    found = verdicts(rendered(project, inputs, "equal"))
    assert found.pop("0, host") == "the baseline"
    assert all("two repeats of each" in one for one in found.values())


def test_another_setting_of_the_same_rate_is_not_the_baseline(tmp_path, project):
    def alike(row):
        row |= {"speedup": 1.0, "speedup_ci_low": 1.0, "speedup_ci_high": 1.0}

    found = verdicts(rendered(project, edited(tmp_path, project, "cells.csv", alike), "equal"))
    assert [name for name, said in found.items() if said == "the baseline"] == ["0, host"]


def test_within_another_model_has_a_baseline_of_its_own(project, inputs):
    study = msgspec.structs.replace(project.studies[STUDY], within=["workers"])
    held = msgspec.structs.replace(project, studies={STUDY: study})
    assert set(verdicts(rendered(held, inputs, "equal")).values()) == {"the baseline"}


def test_the_figure_says_where_nothing_was_scored(tmp_path):
    project = make_project()
    inputs = edited(tmp_path, project, "quality.csv", lambda row: row.update(value=""))
    param = settings.figure_settings(project, STUDY, "gain")
    drawn = figure.render(settings.from_param(repr(param), FigureSettings), inputs)
    whole = figure.render(
        settings.from_param(repr(param), FigureSettings),
        Inputs(write_results(tmp_path / "whole", project)),
    )
    assert len(drawn) < len(whole) / 2
