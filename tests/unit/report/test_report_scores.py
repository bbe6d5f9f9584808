"""Scores before and after training, and settings whose training departs from the baseline's."""

import csv
import re

import msgspec
import pytest
from report_samples import STUDY, figure, make_project, study_of, table, with_study, write_results

from feedrate.config.study import Exclude
from feedrate.report import findings
from feedrate.report.answers import answer
from feedrate.report.rows import CellRow, Results, RunRow, ScoreRow
from feedrate.report.scores import gain_text, over_repeats
from feedrate.results.record import Score


def score(before, after, *, repeat=1, low=None, high=None, **changes):
    facts = {"study": STUDY, "device": "cpu", "cell": "workers=0~decode=host", "repeat": repeat}
    return ScoreRow(
        **{**facts, **changes},
        score=Score(
            on="test",
            metric="matching_accuracy",
            before=before,
            after=after,
            gain_low=low,
            gain_high=high,
            n=60,
            chance=0.2,
        ),
    )


def cell(**changes):
    common = {"study": STUDY, "device": "cpu", "cell": "workers=1~decode=host", "status": "ok"}
    return CellRow(**{**common, "samples_per_s": 12.0, "ok_runs": 2, **changes})


ROWS = [
    score(0.2, 0.5, low=0.2, high=0.4),
    score(0.22, 0.6, repeat=2, low=0.25, high=0.5),
]


def edited(tmp_path, project, file, change):
    """The sample's files with one of them changed, row by row."""
    inputs = write_results(tmp_path, project)
    path = tmp_path / f"results/{STUDY}/{file}"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        change(row)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return inputs


def test_repeats_are_combined_with_the_outermost_ends_of_their_intervals():
    shown = over_repeats(ROWS)
    assert (shown.before, shown.after) == pytest.approx((0.21, 0.55))
    assert (shown.gain_low, shown.gain_high, shown.chance) == (0.2, 0.5, 0.2)
    assert gain_text(shown) == ("+34", "+20 to +50")
    assert over_repeats([]) is None


def test_a_repeat_without_a_value_is_left_out_of_the_mean():
    assert over_repeats([ROWS[0], score(None, None, repeat=2)]).after == 0.5
    assert gain_text(score(None, 0.4).score)[1] == ""


@pytest.fixture
def asking(project):
    """The sample as a study of quality."""
    gain = [figure for figure in project.studies[STUDY].figures if figure.kind == "gain"]
    return study_of(with_study(project, figures=gain))


@pytest.fixture
def headline(asking, inputs):
    """The headline of a study of quality; without a gain, of the cells' rates."""
    cells = inputs.cells(STUDY)
    return lambda rows, runs=(): answer(asking, Results(cells, runs, scores=rows), "cpu").headline


def test_the_headline_gives_the_effect_of_training(headline):
    assert headline(ROWS).startswith("CPU: training raises")
    assert headline(ROWS).endswith(
        "from 21% to 55% (paired interval +20 to +50 percentage points; by chance 20%)."
    )


def run(**changes):
    common = {"study": STUDY, "device": "cpu", "cell": ROWS[0].cell, "status": "ok"}
    facts = {"model": "clip-tiny", "checkpoint": "none", "dataset": "generated"}
    return RunRow(**{**common, **facts, **changes})


def test_the_headline_says_from_which_weights_and_on_which_pictures(asking, inputs, headline):
    said = headline(ROWS, [run(), run()])
    assert "training clip-tiny from random weights on drawn pictures raises" in said
    assert "random" not in headline(ROWS, [run(checkpoint="org/weights")])
    assert "from org/weights on drawn" in headline(ROWS, [run(checkpoint="org/weights")])
    setup = msgspec.structs.replace(asking.setups["cpu"], drawn=False)
    found = msgspec.structs.replace(asking, setups={"cpu": setup})
    said = answer(
        found, Results(inputs.cells(STUDY), [run(dataset="hub")], scores=ROWS), "cpu"
    ).headline
    assert "from random weights on the dataset hub" in said


def test_the_headline_of_one_run_says_that_it_is_single(headline):
    assert "(a single run) raises" in headline(ROWS, [run(), run(status="failed")])
    assert "single" not in headline(ROWS, [run(), run()])


def test_the_gains_of_other_cells_and_what_is_left_out_are_findings(asking, inputs):
    other = [msgspec.structs.replace(row, cell="workers=1~decode=host") for row in ROWS]
    apart = Exclude(levels={"workers": 2}, unless={"decode": ["host"]}, why="It is slow.")
    able = Exclude(levels={"decode": "device"}, unless_able="bf16", why="Not here.")
    asking = msgspec.structs.replace(asking, exclude=[apart, able])
    found = findings.findings(asking, Results(inputs.cells(STUDY), scores=[*ROWS, *other]))
    told = {one.lead: one.text for one in found}
    assert "from 21% to 55% (paired interval +20 to +50" in told["Other settings"]
    assert "with workers = 1, decode = host" in told["Other settings"]
    assert "workers = 0" not in told["Other settings"], "the answer gives it"
    assert told["Left out"] == "workers = 2, except with decode = host: It is slow."
    alone = findings.findings(asking, Results(inputs.cells(STUDY), scores=ROWS))
    assert "Other settings" not in {one.lead for one in alone}


def changed(rows, **changes):
    scores = [msgspec.structs.replace(row.score, **changes) for row in rows]
    return [msgspec.structs.replace(row, score=one) for row, one in zip(rows, scores, strict=True)]


def test_a_difference_that_its_paired_interval_does_not_tell_from_none_is_no_change(headline):
    said = headline(changed(ROWS, after=0.22, gain_low=-0.03, gain_high=0.05))
    assert "raises" not in said
    assert "no measurable change" in said
    assert (
        "(21% before, 22% after; paired interval -3 to +5 percentage points; by chance 20%)" in said
    )
    single = headline(changed(ROWS[:1], gain_low=None, gain_high=None))
    assert "it is unknown whether training changes" in single, "one example has no interval"
    assert "no measurable change" not in single


def test_a_score_that_falls_is_said_to_fall(headline):
    said = headline(changed(ROWS, after=0.1, gain_low=-0.2, gain_high=-0.1))
    assert "training lowers" in said
    assert "from 21% to 10% (paired interval -20 to -10 percentage points" in said


def test_the_headline_is_the_baselines_whatever_others_gain(headline):
    more = [score(0.1, 0.9, cell="workers=1~decode=host", low=0.7, high=0.9)]
    said = headline([*more, *ROWS])
    assert "to 55%" in said
    assert said.endswith("by chance 20%) with workers = 0, decode = host.")


def test_without_scores_of_the_baseline_the_headline_is_of_the_first_cell_not_of_the_best(headline):
    other = [msgspec.structs.replace(row, cell="model=clip") for row in ROWS]
    least = changed([msgspec.structs.replace(row, cell="model=vit") for row in ROWS], after=0.4)
    for none in ([], [score(None, None)]):
        said = headline([*none, *least, *other])
        assert "to 40%" in said
        assert said.endswith("with model = vit.")


@pytest.mark.parametrize(
    "rows",
    [[], [score(None, 0.4)], [score(None, None)]],
    ids=["nothing", "no before", "no value"],
)
def test_without_both_scores_the_headline_has_none(headline, rows):
    assert "%" not in headline(rows)


def points(project, cells, rows, runs=()):
    found = findings.findings(study_of(project), Results(cells, runs, scores=rows))
    return {one.lead: one.text for one in found}


def test_findings_name_departing_cells_and_the_cost_of_evaluation(project):
    departing = cell(loss_shift=0.5, loss_seeds=0.1, loss_departs=True)
    runs = [run(evaluation_s=20.0), run(evaluation_s=20.0)]
    found = points(project, [departing, cell(loss_shift=0.01)], ROWS, runs)
    said = found[findings.LOSSES]
    assert said.startswith("A warning, not a test: the loss of 1, host differs from the baseline's")
    other = cell(cell="workers=2~decode=host", loss_shift=0.4, loss_departs=True)
    two = points(project, [departing, other], ROWS)
    assert "the losses of 1, host; 2, host differ from" in two[findings.LOSSES]
    assert "20.0 s" in found["Cost of evaluation"]
    assert "2 runs" in found["Cost of evaluation"]


def test_a_loss_that_departs_names_its_device_where_there_are_several():
    departing = cell(loss_shift=0.5, loss_seeds=0.1, loss_departs=True)
    said = points(make_project(("cpu", "gaudi2")), [departing], [])[findings.LOSSES]
    assert "the loss of CPU: 1, host differs" in said


def test_findings_say_that_no_loss_departs(project):
    found = points(project, [cell(loss_shift=0.01, loss_seeds=0.1)], [])
    assert found[findings.LOSSES] == (
        "None differs from the baseline's by more than the effect of seeds (1 setting compared). "
        "This does not show that they are equal."
    )
    assert not re.search("(?i)equal quality|same quality", " ".join([*found, *found.values()]))
    assert findings.LOSSES not in points(project, [cell()], [])


def test_losses_that_are_equal_by_construction_are_no_equal_quality(project):
    same = cell(loss_shift=0.0, loss_seeds=0.1, loss_identical=True)
    found = points(project, [same, same], [])
    assert findings.LOSSES not in found
    assert found["Equal losses"].startswith("The losses of 2 settings equal the baseline's bit for")
    found = points(project, [same, cell(loss_shift=0.01, loss_seeds=0.1)], [])
    assert "1 setting compared" in found[findings.LOSSES]
    assert "1 setting equal" in found["Equal losses"]


def test_the_table_has_shares_gain_and_chance(project, inputs):
    page = table(project, inputs, "quality")
    line = next(line for line in page.split("<tr") if "Right caption of five" in line)
    fields = [re.sub("<[^>]+>", " ", one).split() for one in re.findall(r"<td.*?</td>", line)]
    assert fields[1:] == [["22%"], ["52%"], ["+30", "+20", "to", "+40"], ["20%"], ["100"]]
    assert "Text score" not in page


def test_a_setting_that_departs_is_flagged_next_to_its_speed_in_every_table(tmp_path):
    def depart(row):
        departs = row["cell"].startswith("workers=1") and row["status"] == "ok"
        row |= {"loss_end": 1.5, "loss_shift": 0.5, "loss_seeds": 0.1}
        row["loss_departs"] = str(departs).lower()

    project = make_project()
    inputs = edited(tmp_path, project, "cells.csv", depart)
    for kind in ("equal", "training", "cells"):
        page = table(project, inputs, kind)
        flags = re.findall(r"loss differs: [^<]*", page)
        assert flags, kind
        assert all("+0.500" in flag and "0.100" in flag for flag in flags)
        assert "loss differs" not in page.split(">2, host<")[1].split("</tr>")[0]
    assert "not shown to be equal" in verdicts(table(project, inputs, "equal"))["2, host"]


@pytest.mark.parametrize("kind", ["equal", "training"])
def test_the_loss_at_the_end_is_one_number_in_all_tables(tmp_path, kind):
    project = make_project()
    ended = edited(tmp_path, project, "cells.csv", lambda r: r.update(loss_end=1.5, loss_last=9))
    page = table(project, ended, kind)
    assert "Loss at the end" in page
    assert "1.500" in page
    assert "9.000" not in page
    unknown = edited(tmp_path, project, "cells.csv", lambda r: r.update(loss_last=9))
    assert "9.000" not in table(project, unknown, kind)


def verdicts(page):
    """The last column, by the text of the first."""
    page = re.sub(r"</?a\b[^>]*>", "", page)  # without links to records
    lines = re.findall(r"<tr>.*?</tr>", page.partition("<tbody>")[2])
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]
    return {line[0]: line[-1] for line in cells if len(line) > 2}


def test_the_table_of_losses_tells_equal_batches_from_equal_learning(tmp_path, project):
    def same(row):
        row.update(loss_shift="0.0", loss_seeds="0.1", loss_departs="false", loss_identical="true")

    page = table(project, edited(tmp_path, project, "cells.csv", same), "equal")
    assert "equal bit for bit" in page
    assert "within the effect of seeds" not in page


def test_the_table_of_losses_knows_the_baseline(project, inputs):
    found = verdicts(table(project, inputs, "equal"))
    assert found.pop("0, host") == "the baseline"
    assert all("two repeats" in one for one in found.values())


def test_another_setting_of_the_same_rate_is_not_the_baseline(tmp_path, project):
    def alike(row):
        row |= {"speedup": 1.0, "speedup_ci_low": 1.0, "speedup_ci_high": 1.0}

    found = verdicts(table(project, edited(tmp_path, project, "cells.csv", alike), "equal"))
    assert [name for name, said in found.items() if said == "the baseline"] == ["0, host"]


def test_each_level_of_a_factor_in_within_has_its_own_baseline(project, inputs):
    held = with_study(project, within=["workers"])
    assert set(verdicts(table(held, inputs, "equal")).values()) == {"the baseline"}


def test_the_figure_says_where_nothing_was_scored(tmp_path, project, inputs):
    assert "No model was asked" not in figure(project, inputs, "gain")
    none = edited(tmp_path, project, "results.csv", lambda row: row.update(evaluation_s=""))
    assert "No model was asked" in figure(project, none, "gain")
