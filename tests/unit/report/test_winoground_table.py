"""The table of Winoground: measured scores before and after training, and published scores."""

import re

import msgspec
import pytest
from report_samples import STUDY, table

from feedrate.config.study import BenchmarkAccuracy
from feedrate.config.workflow import HubExamples, LocalExamples


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


def test_a_line_has_the_three_scores_and_the_intervals_of_gains(project, inputs):
    found = [line for line in lines(rendered(project, inputs)) if len(line) == 7]
    # Means over repeats 1 to 3: by chance, 0.3 more, and 0.02 as the mean of 0.01 a repeat.
    before, after = found[:2]
    name, *rest = before
    assert name == ["0,", "host"]
    assert rest == [["contrastive"], ["before"], ["27%"], ["27%"], ["19%"], ["100"]]
    gain = ["gain", "+20", "to", "+40"]
    assert after[2:] == [["after"], ["57%", *gain], ["57%", *gain], ["49%", *gain], ["100"]]


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
