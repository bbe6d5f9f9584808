"""A model is evaluated before and after training on the stand-in, also on Winoground."""

from gaudi_software import Job, make_spec

from feedrate.config.workflow import GeneratedExamples
from feedrate.data.winoground import fetch_winoground


def test_a_model_is_scored_before_and_after_training(prepared, tmp_path):
    examples = tmp_path / "winoground/examples.json"
    fetch_winoground("generated", GeneratedExamples(examples=2), examples)
    spec = make_spec(evaluate=True)
    job = Job(spec, prepared, tmp_path / "rep1", "--winoground", str(examples))
    assert job.exit_code == 0, job.stderr
    before, after = job.events("evaluation")
    assert (before["moment"], after["moment"]) == ("before", "after")
    scores = {(one.on, one.metric): one for one in job.record().scores}
    assert {on for on, _ in scores} == {"validation", "test", "winoground"}
    for one in scores.values():
        assert 0 <= one.before <= 1
        assert 0 <= one.after <= 1
    assert scores["winoground", "group_score"].n == 2
    assert job.record().winoground == "generated"
    assert not [note for note in job.events("note") if "evaluation" in note["about"]]
