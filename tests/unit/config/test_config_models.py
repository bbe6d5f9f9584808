"""Models and their sizes: the plan refuses those that no file in feedrate.models declares."""

from typing import get_args

from transformers.training_args import OptimizerNames

from feedrate.config.settings import Optimizer


def test_the_optimizers_are_those_that_the_trainer_knows_and_we_can_set():
    """adamw_apex_fused is known to transformers 4.55 alone, which trains on Gaudi."""
    ours = {"adamw_torch_loop", "adamw_torch_foreach", "adamw_apex_fused"}
    known = {one.value for one in OptimizerNames}
    listed = set(get_args(Optimizer))
    assert listed - ours <= known
    others = known - listed  # for other devices, or with an argument that no setting has
    assert all(any(word in n for word in ("galore", "apollo", "xla", "npu")) for n in others)
