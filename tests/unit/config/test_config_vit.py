"""ViT-H/16: the source's baseline is TF32, and no device computes another precision instead."""

import pytest

from feedrate.config.plan import make_plan

STUDY = "vit-speedups"


@pytest.mark.parametrize("device", ["cpu", "gaudi2", "v100"])
def test_a_level_in_tf32_is_not_planned_on_a_device_without_it(copy, device):
    copy.edit(
        f"studies/{STUDY}.yaml",
        ("amp-bf16: {train.precision: bf16}", "amp-bf16: {train.precision: tf32}"),
        ("amp-bf16: bf16", "amp-bf16: tf32"),
    )
    plan = make_plan(copy.load(studies=[STUDY], devices=[device]))
    lacking = {u.lacks for u in plan.unsupported if u.cell == "size=tiny~technique=amp-bf16"}
    assert lacking == {"tf32"}
    assert "tf32" not in {spec.settings.train.precision for spec in plan.runs.values()}
