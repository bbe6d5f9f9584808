"""ViT-H/16: the source's baseline is TF32, and no device computes another precision instead."""

import pytest

from feedrate.config.plan import make_plan

STUDY = "vit-speedups"
PRECISIONS = {
    "cpu": "fp32",
    "gaudi2": "fp32",
    "v100": "fp32",
    "t4": "fp32",
    "a100-40gb": "tf32",
    "h100": "tf32",
}
"""Of the baseline, by device."""
CHIPS = {"a100-40gb": 8, "a100-40gb-x16": 16, "a100-40gb-x32": 32, "a100-40gb-x64": 64}


@pytest.fixture
def plan(copy):
    return make_plan(copy.load(studies=[STUDY], devices=[*PRECISIONS]))


def test_the_baseline_is_tf32_where_the_device_has_it(plan):
    found = {s.device: s.settings.train.precision for s in plan.runs.values()
             if s.levels["technique"] == "baseline"}  # fmt: skip
    assert found == PRECISIONS


def test_only_devices_with_tf32_run_it_and_fp32_beside_it(plan):
    """On the others the baseline is fp32 already, and says so."""
    able = {name for name, found in PRECISIONS.items() if found == "tf32"}
    runs = plan.runs.values()
    assert {s.device for s in runs if s.settings.train.precision == "tf32"} == able
    apart = {s.device: s.settings.train.precision for s in runs if s.levels["technique"] == "fp32"}
    assert apart == dict.fromkeys(able, "fp32")


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


def test_fp16_amp_is_planned_only_where_a_device_has_it(plan):
    asked = {s.device for s in plan.runs.values() if s.settings.train.precision == "fp16"}
    assert asked == {"v100", "t4", "a100-40gb", "h100"}


def test_every_chip_does_the_same_work_on_eight_to_sixty_four(copy):
    runs = make_plan(copy.load(studies=[STUDY], devices=[*CHIPS])).runs.values()
    chosen = ("baseline", "source-all-256px")
    found = {(s.device, s.levels["technique"]): s for s in runs
             if s.levels == {"size": "huge", "technique": s.levels["technique"]}
             and s.levels["technique"] in chosen}  # fmt: skip
    assert len(found) == len(CHIPS) * len(chosen)
    for (device, _), spec in found.items():
        train = spec.settings.train
        assert (spec.count, spec.nodes) == (CHIPS[device], CHIPS[device] // 8)
        assert (train.batch_size, train.gradient_accumulation) == (35, 2)
