"""The table of Winoground: measured scores before and after training, and published scores."""

import re

import msgspec
import pytest
from report_samples import EVIL, STUDY, make_project, table, write_results

from feedrate.config.study import BenchmarkAccuracy
from feedrate.config.workflow import HubExamples, LocalExamples
from feedrate.report import params
from feedrate.report.rows import Inputs


def rendered(project, inputs):
    return table(project, inputs, "winoground")


def lines(page):
    """The texts of the cells by row, without headings."""
    body = page.partition("<tbody>")[2]
    return [
        [re.sub(r"<[^>]+>", " ", cell).split() for cell in re.findall(r"<t[hd].*?</t[hd]>", line)]
        for line in re.findall(r"<tr.*?</tr>", body)
    ]


def configured(project, chosen, name="mine"):
    sets = {name: chosen} if chosen else {}
    config = msgspec.structs.replace(
        project.config, winoground=name if chosen else None, winoground_sets=sets
    )
    return msgspec.structs.replace(project, config=config)


def test_a_line_has_the_three_scores_with_intervals(project, inputs):
    after = next(line for line in lines(rendered(project, inputs)) if ["after"] in line)
    # Means over repeats 1 to 3: by chance, 0.3 more, and 0.02 as the mean of 0.01 a repeat.
    name, head, moment, text, image, group, count = after
    assert (name, head, moment, count) == (["0,", "host"], ["contrastive"], ["after"], ["100"])
    assert text == image == ["57%", "48\N{EN DASH}66%"]
    assert group == ["49%", "40\N{EN DASH}58%"]


def test_before_is_above_after_for_every_cell_and_chance_is_below(project, inputs):
    found = [line for line in lines(rendered(project, inputs)) if len(line) == 7]
    ours = [line[2][0] for line in found if line[2] in (["before"], ["after"])]
    assert ours == ["before", "after"] * 4
    (chance,) = [line for line in found if line[0][:2] == ["by", "chance,"]]
    assert "ties" in chance[0], "tied scores are wrong, and have another chance level"
    assert chance[3:6] == [["25%"], ["25%"], ["17%"]]


def test_a_head_that_is_not_scored_says_why_once_and_shows_no_number(project, inputs):
    (found,) = [line for line in lines(rendered(project, inputs)) if len(line) == 2]
    assert found[0] == ["matching", "head"]
    words = " ".join(found[1])
    assert words.startswith("not scored training starts from random weights")
    assert "%" not in words


def test_published_scores_are_below_as_printed(project, inputs):
    page = rendered(project, inputs)
    assert page.index("after") < page.index("A paper on words in another order")
    (clip,) = [line for line in lines(page) if line[0] == ["CLIP", "(ViT-B/32)"]]
    assert [" ".join(cell) for cell in clip[1:]] == [
        "contrastive", "\N{EN DASH}", "30.75%", "10.50%", "8.00%", "\N{EN DASH}",
    ]  # fmt: skip


def test_accuracies_on_other_benchmarks_are_below_them(project, inputs):
    one = BenchmarkAccuracy(
        id="vqa", model="A tower", benchmark="VQA, test", accuracy=78.7, edition="", source="A post"
    )
    page = rendered(msgspec.structs.replace(project, accuracies={STUDY: [one]}), inputs)
    scores, accuracies = page.split("Published, not measured here: accuracy on VQA, test: A post")
    assert "A paper on words in another order" in scores
    assert lines(f"<tbody>{accuracies}")[-1] == [["A", "tower"], ["78.70%"]]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (
            HubExamples(name="facebook/winoground", revision="4d3"),
            "CPU: facebook/winoground at 4d3",
        ),
        (LocalExamples(path="/somewhere/secret"), "CPU: a local copy, mine"),
    ],
)
def test_the_table_names_the_copy_of_winoground(project, inputs, chosen, said):
    page = rendered(configured(project, chosen), inputs)
    assert said in page
    assert "/somewhere" not in page


def test_the_stand_in_is_not_called_winoground(project, inputs):
    page = rendered(project, inputs)
    assert "CPU: a drawn stand-in of 100 examples, not Winoground itself" in page


def test_none_is_scored_where_the_configuration_says_so(project, inputs):
    page = rendered(configured(project, None), inputs)
    assert "No model is scored on Winoground" in page
    assert "<table" not in page


def test_a_run_without_a_model_is_a_line_with_its_cause(tmp_path):
    project = make_project()
    inputs = Inputs(write_results(tmp_path, project, bad={("cpu", 2): "out_of_memory"}))
    page = rendered(project, inputs)
    found = [line for line in lines(page) if line[0][:2] == ["2,", "host,"]]
    assert [line[0][2:] for line in found] == [["repeat", str(n)] for n in (1, 2, 3)]
    assert all(line[1][:2] == ["not", "scored"] for line in found)
    assert not [line for line in lines(page) if line[0] == ["2,", "host"]]
    assert EVIL not in page


def test_published_scores_and_the_copy_are_what_the_table_depends_on(project):
    def param(changed):
        return params.page_settings(changed, STUDY, "table", "winoground")

    other = msgspec.structs.replace(project, scores={STUDY: project.scores[STUDY][:1]})
    assert param(other) != param(project)
    hub = HubExamples(name="facebook/winoground", revision="4d3")
    assert param(configured(project, hub)) != param(project)
    cells = params.page_settings(configured(project, hub), STUDY, "table", "cells")
    assert cells == params.page_settings(project, STUDY, "table", "cells")
