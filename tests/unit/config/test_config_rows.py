"""The number of generated rows: enough for the run's global batch, and for nothing else."""

import pytest

from feedrate.config.plan import make_plan
from feedrate.config.spec import FULL_EPOCH_STEPS
from feedrate.config.workflow import find_dataset

LOADING, LEARNING, VIT = "bridgetower-dataloading", "bridgetower-learning", "vit-speedups"
SEARCH = "flava-batch-search"


def rows_of(project):
    """Rows of the training split by the names of the plan's datasets."""
    names = {spec.dataset for spec in make_plan(project).runs.values()}
    return {name: find_dataset(project.config, name).train for name in names}


def specs(project):
    return make_plan(project).runs


@pytest.mark.parametrize(
    ("study", "devices", "rows"),
    [
        (LOADING, ["cpu"], {"generated": 480}),
        (LEARNING, ["cpu"], {"generated": 480}),
        (LOADING, ["h100"], {"generated-7680": 7680}),  # 8 x 48 x 20
        (VIT, ["h100"], {"generated-15360": 15360}),  # 8 x 70 x 20 = 11,200
        (LOADING, ["cpu", "h100"], {"generated": 480, "generated-7680": 7680}),
    ],
)
def test_rows_follow_from_the_global_batch(copy, study, devices, rows):
    assert rows_of(copy.load(studies=[study], devices=devices)) == rows


@pytest.mark.parametrize("device", ["cpu", "cpu-x2", "gaudi2", "h100", "rtx-4090", "a100-40gb-x64"])
def test_every_run_of_every_study_has_twenty_steps_in_an_epoch(copy, root, device):
    names = sorted(path.stem for path in (root / "config/studies").glob("*.yaml"))
    project = copy.load(studies=names, devices=[device])
    for spec in specs(project).values():
        rows = find_dataset(project.config, spec.dataset).train
        batch = spec.settings.train.batch_size * spec.settings.train.gradient_accumulation
        if spec.task == "inference":
            assert rows >= batch * spec.count
        else:
            epoch = min(FULL_EPOCH_STEPS, spec.protocol.steps)
            assert rows // (batch * spec.count) >= epoch, spec.cell


def test_another_device_or_study_in_the_plan_changes_no_run(copy):
    """So `DEVICE="a b"` trains nothing again that a and b have trained by themselves."""
    alone = specs(copy.load(studies=[LOADING], devices=["cpu"]))
    alone |= specs(copy.load(studies=[LOADING], devices=["h100"]))
    both = specs(copy.load(studies=[LOADING, VIT, SEARCH], devices=["cpu", "h100", "cpu-x2"]))
    assert {key: both[key] for key in alone} == alone


def test_a_given_number_of_rows_is_taken_as_it_is(copy):
    mine = {"mine": {"source": "generated", "train": 500}}
    project = copy.load(studies=[LOADING], devices=["h100"], dataset="mine", datasets=mine)
    assert rows_of(project) == {"mine": 500}
