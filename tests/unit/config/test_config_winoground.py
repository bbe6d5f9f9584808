"""Which copy of Winoground is meant, and what is wrong with a choice."""

import pytest

from feedrate.config.workflow import GeneratedExamples, HubExamples, LocalExamples


def test_there_are_three_kinds_and_the_default_needs_no_network(project):
    kinds = {name: type(entry) for name, entry in project.config.winoground_sets.items()}
    assert kinds == {"generated": GeneratedExamples, "hub": HubExamples, "folder": LocalExamples}
    assert project.config.winoground == "generated"
    assert project.config.winoground_sets["hub"].name == "facebook/winoground"


def test_none_is_a_choice(copy):
    assert copy.load(winoground=None).config.winoground is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"winoground": "other"},
            "winoground: 'other' is not allowed; entries of winoground_sets: generated",
        ),
        ({"winoground_sets": {"generated": {"source": "drawn"}}}, "winoground_sets.generated"),
        (
            {"winoground_sets": {"generated": {"source": "generated", "examples": 0}}},
            "winoground_sets.generated.examples",
        ),
        (
            {"winoground_sets": {"generated": {"source": "hub", "name": "a/b"}}},
            "winoground_sets.generated.revision",
        ),
        (
            {"winoground_sets": {"generated": {"source": "folder", "path": ""}}},
            "winoground_sets.generated.path",
        ),
        (
            {"winoground_sets": {"generated": {"source": "generated", "seeds": 1}}},
            "winoground_sets.generated",
        ),
    ],
)
def test_a_wrong_choice_is_one_line_with_its_key(copy, changes, says):
    said = copy.error(**changes)
    assert says in said
    assert len(said.splitlines()) == 1


def test_unknown_files_of_scores_are_told(copy):
    copy.edit("studies/bridgetower-quality.yaml", ("[winoground.csv]", "[wino.csv]"))
    said = copy.error(studies=["bridgetower-quality"])
    assert "published_scores[0]: 'wino.csv'" in said
    copy.edit(
        "studies/bridgetower-quality.yaml", ("[wino.csv]", "[winoground.csv, winoground.csv]")
    )
    assert "published_scores" in copy.error(studies=["bridgetower-quality"])


def test_a_wrong_row_names_the_file(copy):
    copy.edit("published/winoground.csv", ("37.75", "137.75"))
    said = copy.error(studies=["bridgetower-quality"])
    assert said.startswith("config/published/winoground.csv, line 4: text_score")
