"""A kept model is scored on the stand-in, in the Gaudi software that trained it."""

import msgspec
from gaudi_software import in_warm_processes, make_spec, run_inside

from feedrate.cli import jobs
from feedrate.config.workflow import GeneratedExamples
from feedrate.core.files import write_json
from feedrate.data.winoground import fetch_winoground
from feedrate.results.record import read_quality


def test_untrained_weights_score_the_same_before_and_after(prepared, tmp_path):
    spec = in_warm_processes(make_spec(save_checkpoints=True))
    built, run = msgspec.to_builtins(spec), tmp_path / "rep1"
    run_inside("keep_model.py", str(prepared), str(run / "trainer/model"), lines=[built])
    write_json(run / "outcome.json", {"status": "ok", "cause": ""})
    examples = tmp_path / "winoground/examples.json"
    fetch_winoground("generated", GeneratedExamples(examples=2), examples, workers=1)
    files = {
        "--outcome": run / "outcome.json",
        "--model": run / "trainer/model",
        "--data": prepared / "manifest.json",
        "--winoground": examples,
        "--out": run / "quality.json",
    }
    given = [str(word) for pair in files.items() for word in pair]
    assert jobs.run("score", ["--spec", repr(built), *given]) == 0
    quality = read_quality(run / "quality.json")
    assert (quality.status, quality.cause, quality.winoground) == ("ok", "", "generated")
    before, after = (
        {(s.on, s.metric, s.head): s.value for s in quality.scores if s.moment == moment}
        for moment in ("before", "after")
    )
    assert before == after
    assert before["test", "contrastive_loss", ""] is not None
    assert before["winoground", "group_score", "contrastive"] is not None
    assert {on for on, _, _ in before} == {"validation", "test", "winoground"}
