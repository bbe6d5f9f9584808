"""The specs of the configuration as committed: their digests name every run that users have made.

A change here makes finished runs train again. It may follow from a change in config/, never from
one in the code; then put the new digests here and say so in the changelog.
"""

import msgspec

from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core.files import canonical_json, digest_text

DEFAULT = (13, "c960f08cdd76543800eb710dfe8023e8cccdc062686559835a3d8a80fa1ae372")
ALL_STUDIES = (3010, "a74ad508b28e439a82f10ab67fee7a37559c0ff906000d5364b3a6890ab01c9b")
DEVICES = ["cpu", "gaudi2", "h100"]


def digests(root, **changes):
    config = read_yaml(root / "config/config.yaml") | changes
    specs = [msgspec.to_builtins(s) for s in make_plan(load_project(root, config)).runs.values()]
    return len(specs), digest_text(canonical_json(specs))


def test_a_setting_that_is_absent_leaves_a_spec_as_it_was(root):
    """A run that is traced is another run; without a trace, it is the one of earlier versions."""
    project = load_project(root, read_yaml(root / "config/config.yaml"))
    spec = next(iter(make_plan(project).runs.values()))
    assert "profile_steps" not in msgspec.to_builtins(spec)["protocol"]
    traced = msgspec.structs.replace(spec.protocol, profile_steps=3)
    traced = msgspec.to_builtins(msgspec.structs.replace(spec, protocol=traced))
    assert traced["protocol"]["profile_steps"] == 3
    assert msgspec.convert(traced, type(spec)).protocol.profile_steps == 3


def test_the_default_plan_has_the_same_specs(root):
    assert digests(root) == DEFAULT


def test_a_tracker_is_no_part_of_a_spec(root):
    assert digests(root, trackers=["mlflow", "wandb"]) == DEFAULT


def test_all_studies_have_the_same_specs(root):
    studies = sorted(path.stem for path in (root / "config/studies").glob("*.yaml"))
    assert digests(root, studies=studies, devices=DEVICES) == ALL_STUDIES
