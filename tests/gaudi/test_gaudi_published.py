"""The command that the post prints: every flag of it is a setting of a study, or needs none."""

import msgspec
import pytest
from gaudi_software import make_spec, run_inside

POST = """
--output_dir out
--model_name_or_path BridgeTower/bridgetower-large-itm-mlm-itc
--dataset_name jmhessel/newyorker_caption_contest --dataset_config_name matching
--image_column image --caption_column image_description
--remove_unused_columns=False
--do_train --do_eval --do_predict
--per_device_train_batch_size=40 --per_device_eval_batch_size=16
--num_train_epochs 5
--learning_rate=1e-5
--push_to_hub --report_to tensorboard --hub_model_id bridgetower
--overwrite_output_dir
--use_habana --use_lazy_mode --use_hpu_graphs_for_inference --gaudi_config_name Habana/clip
--throughput_warmup_steps 3
--logging_steps 10
"""
"""What follows `run_bridgetower.py`; further flags are those of its text and of its columns."""
FAST = " --dataloader_num_workers 2 --mediapipe_dataloader --distribution_strategy fast_ddp"
GUIDE = (
    " --bf16 --use_hpu_graphs_for_training True --pipelining_fwd_bwd True "
    "--non_blocking_data_copy True --dataloader_num_workers 1"
)
"""What the library's guide to fast training advises."""

ASKED = {
    "train": {"batch_size": 40, "eval_batch_size": 16, "learning_rate": 1e-5},
    "steps": 150,
    "warmup_steps": 3,
}
LINES = {
    "post": (POST, {}),
    "fast": (POST + FAST, {"train": {"strategy": "fast_ddp"}, "loader": {"workers": 2}}),
    "guide": (
        POST + GUIDE,
        {
            "loader": {"workers": 1},
            "hpu": {
                "hpu_graphs_for_training": True,
                "pipelining_fwd_bwd": True,
                "non_blocking_data_copy": True,
            },
        },
    ),
}
"""By name: a command line, and the settings that say the same."""

ELSEWHERE = {
    "output_dir": "each run has a folder of its own",
    "logging_dir": "below it",
    "overwrite_output_dir": "a run starts in an empty folder",
    "do_train": "a flag of the script: every run trains",
    "do_eval": "protocol.evaluate",
    "do_predict": "protocol.evaluate",
    "num_train_epochs": "protocol.steps",
    "max_steps": "protocol.steps",
    "push_to_hub": "config.yaml, after all measurements",
    "hub_model_id": "the same",
    "bf16": "train.precision: the published configuration on the hub turns it on, and this flag",
    "gaudi_config_name": "a file of the run's own, from train.precision and hpu",
    "seed": "protocol.seed",
    "data_seed": "protocol.seed",
    "save_strategy": "protocol.save_checkpoints",
    "save_steps": "protocol.save_checkpoints",
    "save_total_limit": "two checkpoints are enough",
    "dataloader_drop_last": "all steps have one size, so that rates compare",
    "dataloader_prefetch_factor": "loader.prefetch_factor: torch's own default, told",
    "disable_tqdm": "a log, not a screen",
    "run_name": "the run, for experiment trackers",
    "ddp_broadcast_buffers": "no model here has buffers that training changes",
    "accelerator_config": "hpu.non_blocking_data_copy",
}
"""Arguments that differ from the published ones, and where they are set or why they do."""

SCRIPTS = {
    "--model_name_or_path": "model.checkpoint",
    "--dataset_name": "the dataset's own configuration",
    "--dataset_config_name": "the dataset's own configuration",
    "--image_column": "the dataset's own configuration",
    "--caption_column": "the dataset's own configuration",
    "--mediapipe_dataloader": "loader.decode",
}
"""Flags that the script itself reads, and what says the same here."""


@pytest.fixture(scope="module")
def theirs():
    """What the library's own parser makes of each command line."""
    lines = [line for line, _ in LINES.values()]
    return dict(zip(LINES, run_inside("parse_command_lines.py", lines=lines), strict=True))


@pytest.fixture(scope="module")
def ours():
    """What the library gets from settings that ask for the same."""
    specs = []
    for _, settings in LINES.values():
        train = {"precision": "bf16", **ASKED["train"], **settings.get("train", {})}
        specs.append(make_spec(**{**ASKED, **settings, "train": train}))
    answers = run_inside("parse_arguments.py", lines=map(msgspec.to_builtins, specs))
    return dict(zip(LINES, answers, strict=True))


@pytest.mark.parametrize("name", LINES)
def test_settings_say_what_the_published_flags_say(theirs, ours, name):
    published, made = theirs[name]["arguments"], ours[name]["arguments"]
    assert published.keys() == made.keys()
    differing = {key for key in made if made[key] != published[key]}
    assert differing <= set(ELSEWHERE), {
        key: (published[key], made[key]) for key in differing - set(ELSEWHERE)
    }


@pytest.mark.parametrize("name", LINES)
def test_the_config_file_of_a_run_says_what_the_published_one_says(theirs, ours, name):
    assert ours[name]["config"] == theirs[name]["config"]


def test_every_explanation_is_needed(theirs, ours):
    differing = {
        key
        for name in LINES
        for key, value in ours[name]["arguments"].items()
        if value != theirs[name]["arguments"][key]
    }
    assert differing == set(ELSEWHERE)


def test_flags_of_the_script_itself_are_known(theirs):
    flags = {part for name in LINES for part in theirs[name]["rest"] if part.startswith("--")}
    assert flags == set(SCRIPTS)
