"""The study of the levels of data loading."""

from feedrate.config.plan import make_plan
from feedrate.data.store import store_spec


def cells(copy, device):
    plan = make_plan(copy.load(studies=["dataloading-levels"], devices=[device]))
    return plan, {spec.cell: spec for spec in plan.runs.values()}


def test_all_levels_of_the_host_stand_beside_each_other(copy):
    plan, found = cells(copy, "cpu")
    levels = {
        (spec.settings.loader.decode, spec.settings.loader.scaled_decode) for spec in found.values()
    }
    assert levels == {("reference", False), ("host", False), ("host", True), ("cache", False)}
    assert len(found) == 4 * 3
    assert {spec.settings.loader.workers for spec in found.values()} == {0, 1, 2}
    assert {cell.levels["decode"] for cell in plan.unsupported} == {"device"}


def test_an_accelerator_decodes_itself_too(copy):
    for device in ("h100", "a100-80gb", "gaudi2"):
        plan, found = cells(copy, device)
        assert not plan.unsupported
        assert "device" in {spec.settings.loader.decode for spec in found.values()}


def test_one_store_serves_all_cells(copy):
    _, found = cells(copy, "cpu")
    assert len({s.key for spec in found.values() if (s := store_spec(spec.settings))}) == 1
