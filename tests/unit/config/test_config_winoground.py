"""Which copy of Winoground is meant, and what is wrong with a choice."""

from feedrate.config.workflow import GeneratedExamples, HubExamples, LocalExamples


def test_there_are_three_kinds_and_the_default_needs_no_network(project):
    kinds = {name: type(entry) for name, entry in project.config.winoground_sets.items()}
    assert kinds == {"generated": GeneratedExamples, "hub": HubExamples, "folder": LocalExamples}
    assert project.config.winoground == "generated"
    assert project.config.winoground_sets["hub"].name == "facebook/winoground"


def test_none_is_a_choice(copy):
    assert copy.load(winoground=None).config.winoground is None
