"""What the advice reads beside its data."""

import msgspec

from feedrate.cli.tune import short
from feedrate.config.plan import make_plan
from feedrate.core import paths
from feedrate.data.store import store_spec
from feedrate.flow.digests import DigestCache
from feedrate.flow.inputs import Inputs
from feedrate.jobs.drain import with_loader


def test_the_store_is_that_of_a_full_decode_whatever_the_first_run_decodes(project, tmp_path):
    plan, cache = make_plan(project), DigestCache(tmp_path / "digests.json")
    key, spec = next(iter(plan.runs.items()))
    scaled = with_loader(spec, decode="host", scaled_decode=True)
    asked = Inputs(msgspec.structs.replace(plan, runs={key: scaled}), cache).of_tuning("cpu")
    cached = with_loader(short(scaled), decode="cache").settings
    assert asked == [paths.STORE.format(dataset=spec.dataset, store=store_spec(cached).key)]
    assert asked == Inputs(plan, cache).of_tuning("cpu")
