"""The levels of factors: settings, bundles of settings, and what does not work together."""

import pytest

from feedrate.config.plan import make_plan
from feedrate.data.manifest import store_spec


def cells(project, device, network="bridgetower"):
    """The settings of a device's cells, by technique."""
    return {
        str(spec.levels["technique"]): spec.settings
        for spec in make_plan(project).runs.values()
        if (spec.device, spec.levels["network"]) == (device, network)
    }


@pytest.fixture
def ladder(copy):
    """The plan's settings by level, on a device."""

    def ladder(device, count=None, network="bridgetower"):
        if count is not None:
            h100 = "h100:\n  label: H100\n  kind: cuda\n  count: "
            copy.edit("devices.yaml", (f"{h100}8", f"{h100}{count}"))
        project = copy.load(studies=["gaudi-accelerations"], devices=[device])
        return cells(project, device, network)

    return ladder


def test_options_of_exchange_are_for_several_devices(ladder):
    options = {"ddp-large-buckets", "ddp-static-graph", "ddp-bucket-view"}
    assert options <= set(ladder("h100"))
    assert not options & set(ladder("h100", count=1))


def test_a_smaller_last_batch_is_for_one_device(ladder):
    """On several, accelerate fills it, and nothing would be left to compare."""
    assert "last-batch-kept" not in ladder("h100")
    assert "last-batch-kept" in ladder("h100", count=1)


def planned_cells(copy, device):
    plan = make_plan(copy.load(studies=["dataloading-levels"], devices=[device]))
    return plan, {spec.cell: spec for spec in plan.runs.values()}


def test_one_store_serves_all_cells(copy):
    _, found = planned_cells(copy, "cpu")
    assert len({s.key for spec in found.values() if (s := store_spec(spec.settings))}) == 1
