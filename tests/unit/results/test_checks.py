import msgspec
import pytest
from record_builder import make_measurement, make_spec

from feedrate.results.checks import CHECKS, ONLY_OF, Evidence, Observed, check_run
from feedrate.results.settings import DeviceFacts

GOOD = {
    "ranks": [0],
    "world_sizes": [1],
    "device_models": ["NVIDIA H100 80GB HBM3"],
    "decode": "host",
    "data_digests": ["d" * 64],
    "data_digest_asked": "d" * 64,
    "losses": [2.0, 1.0],
    "rank_samples": [40],
    "first_step": 3,
    "last_step": 12,
    "step_sum_s": 4.01,
    "other_training_jobs": 0,
}


def failed(measurement=None, pattern="NVIDIA H100 80GB HBM3", spec=None, **observed):
    evidence = Evidence(
        spec or make_spec(),
        measurement or make_measurement(),
        Observed(**(GOOD | observed)),
        DeviceFacts(model_pattern=pattern, power_w=700),
    )
    checks = check_run(evidence)
    assert [c.name for c in checks] == [n for n in CHECKS if ONLY_OF.get(n) != "inference"]
    assert all(c.detail.endswith(".") and "\n" not in c.detail for c in checks)
    return {c.name: c.detail for c in checks if not c.passed}


def test_a_good_run_passes_all_checks():
    assert failed() == {}


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"ranks": []}, "all_ranks_reported", "rank 0 of 1"),
        ({"world_sizes": [2]}, "world_size", "is 2, asked for 1"),
        ({"world_sizes": []}, "world_size", "is nothing"),
        ({"first_step": 1}, "window_after_warmup", "steps 1 to 12"),
        ({"first_step": None}, "window_after_warmup", "asked for 3 to 12"),
        ({"last_step": 11}, "window_after_warmup", "steps 3 to 11"),
        ({"rank_samples": [41]}, "samples_identity", "40 samples a rank"),
        ({"step_sum_s": 3.0}, "step_times_sum", "3 s, the window took 4 s"),
        ({"step_sum_s": None}, "step_times_sum", "No step times"),
        ({"losses": []}, "loss_finite", "No loss"),
        ({"losses": [1.0, float("nan")]}, "loss_finite", "1 of 2"),
        ({"losses": [float("inf")]}, "loss_finite", "not finite"),
        ({"losses": [1.0, 0.0]}, "loss_finite", "exactly 0"),
        ({"device_models": ["NVIDIA A100-SXM4-80GB"]}, "device_model", "A100"),
        ({"device_models": ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"]}, "device_model", "MIG"),
        ({"device_models": []}, "device_model", "nothing"),
        ({"decode": "device"}, "decode_path", "used was device"),
        ({"decode": None}, "decode_path", "not said"),
        ({"data_digests": ["e" * 64]}, "data_digest", "eeeeeeeeeeee was read"),
        ({"data_digests": []}, "data_digest", "no digest was read"),
        ({"other_training_jobs": 2}, "alone_on_host", "2"),
    ],
)
def test_what_was_seen_and_not_asked_for_fails_its_check_alone(changes, name, words):
    found = failed(**changes)
    assert list(found) == [name]
    assert words in found[name]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"samples": 39}, "samples_identity"),
        ({"mfu": 1.01}, "mfu_at_most_100_percent"),
        ({"mfu_achievable": 1.2}, "mfu_at_most_100_percent"),
        ({"wall_s": 8.0}, "step_times_sum"),
        ({"power_w": 900.0}, "power_within_rating"),
    ],
)
def test_impossible_measurements_are_rejected(changes, name):
    assert list(failed(make_measurement(**changes))) == [name]


def test_power_is_held_against_the_rating_of_all_devices():
    assert failed(make_measurement(power_w=800.0)) == {}
    eight = make_spec(count=8)
    found = failed(make_measurement(power_w=7000.0), spec=eight)
    assert "power_within_rating" in found
    assert "took 7000 W on average, rated for 5600 W" in found["power_within_rating"]
    assert "power_within_rating" not in failed(make_measurement(power_w=5600.0), spec=eight)


def test_the_data_sheets_peak_decides_where_it_is_known():
    assert failed(make_measurement(mfu=0.9, mfu_achievable=1.05)) == {}


@pytest.mark.parametrize("decode", ["host", "device"])
def test_a_fallback_fails_the_run_whatever_was_asked_for(decode):
    found = failed(spec=make_spec(decode=decode), decode=decode, fallback="no JPEG")
    assert list(found) == ["decode_path"]
    assert "`Using Pytorch native dataloader because: no JPEG`" in found["decode_path"]


def test_what_nobody_asked_for_is_not_held_against_the_run():
    assert failed(pattern=None, device_models=[], data_digest_asked="") == {}
    assert failed(other_training_jobs=None) == {}


def test_forgotten_accumulation_is_caught():
    spec = make_spec()
    train = type(spec.settings.train)(batch_size=4, gradient_accumulation=2)
    spec = make_spec(settings=type(spec.settings)(model=spec.settings.model, train=train))
    assert "samples_identity" in failed(spec=spec)


def test_another_attention_than_asked_for_is_told():
    assert failed(attention="eager") == {}
    words = failed(attention="eager+sdpa")["attention"]
    assert words == "attention: eager was asked for, eager+sdpa was run."


def spec_sharing(strategy, count=2, checkpointing=False):
    spec = make_spec()
    settings = msgspec.structs.replace(
        spec.settings,
        train=msgspec.structs.replace(spec.settings.train, strategy=strategy),
        model=msgspec.structs.replace(spec.settings.model, checkpointing=checkpointing),
    )
    return msgspec.structs.replace(spec, settings=settings, count=count)


def test_fp32_by_another_precision_is_told():
    assert "fp32" not in failed(fp32="ieee")
    assert "tf32 was computed in its place" in failed(fp32="tf32")["fp32"]


@pytest.mark.parametrize(
    ("strategy", "checkpointing", "seen", "words"),
    [
        ("fsdp", False, {"strategy": "ddp", "layers": 4}, "fsdp was asked for, ddp was run"),
        ("fsdp", False, {"strategy": "fsdp", "layers": 4}, "0 of 4 layers were sharded"),
        ("fsdp", False, {}, "what ran was not said"),
        ("ddp", False, {"strategy": "none", "layers": 4}, "ddp was asked for, none was run"),
        ("fast_ddp", False, {"strategy": "ddp", "layers": 4}, "ddp was run"),
        ("ddp", True, {"strategy": "ddp", "layers": 4}, "0 of 4 layers were checkpointed"),
        (
            "fsdp",
            False,
            {"strategy": "fsdp", "layers": 4, "sharded_layers": 4, "offloaded_layers": 4},
            "4 of 4 layers were offloaded, asked for 0",
        ),
        (
            "ddp",
            False,
            {"strategy": "ddp", "layers": 4, "ddp": {"ddp_bucket_view": True}},
            "train.ddp_bucket_view: False was asked for, True was used",
        ),
        (
            "ddp",
            False,
            {"strategy": "ddp", "layers": 4, "checkpointed_layers": 4},
            "4 of 4 layers were checkpointed, asked for 0",
        ),
    ],
)
def test_another_strategy_than_asked_for_is_told(strategy, checkpointing, seen, words):
    spec = spec_sharing(strategy, checkpointing=checkpointing)
    assert words in failed(spec=spec, **seen)["strategy"]


@pytest.mark.parametrize(
    ("strategy", "checkpointing", "seen"),
    [
        ("ddp", False, {}),
        ("ddp", False, {"strategy": "ddp", "layers": 4}),
        ("fast_ddp", False, {"strategy": "fast_ddp", "layers": 4}),
        ("fsdp", False, {"strategy": "fsdp", "layers": 4, "sharded_layers": 4}),
        (
            "fsdp",
            True,
            {"strategy": "fsdp", "layers": 4, "sharded_layers": 4, "checkpointed_layers": 4},
        ),
    ],
)
def test_the_strategy_asked_for_passes(strategy, checkpointing, seen):
    spec = spec_sharing(strategy, checkpointing=checkpointing)
    assert "strategy" not in failed(spec=spec, **seen)


@pytest.mark.parametrize("count", [1, 2])
def test_offloading_asked_for_is_seen(count):
    spec = spec_sharing("fsdp", count=count)
    train = msgspec.structs.replace(spec.settings.train, cpu_offload=True)
    spec = msgspec.structs.replace(
        spec, settings=msgspec.structs.replace(spec.settings, train=train)
    )
    seen = {"strategy": "fsdp", "layers": 4, "sharded_layers": 4}
    words = failed(spec=spec, **seen)["strategy"]
    assert words == "0 of 4 layers were offloaded, asked for 4."
    assert "strategy" not in failed(spec=spec, **seen, offloaded_layers=4)
    assert "fsdp was asked for" in failed(spec=spec, strategy="alone", layers=4)["strategy"]


def test_a_kept_last_batch_may_be_smaller_and_not_larger():
    spec = make_spec()
    loader = msgspec.structs.replace(spec.settings.loader, last_batch="keep")
    settings = msgspec.structs.replace(spec.settings, loader=loader)
    spec = msgspec.structs.replace(spec, settings=settings)
    assert failed(spec=spec, measurement=make_measurement(samples=37), rank_samples=[37]) == {}
    found = failed(spec=spec, measurement=make_measurement(samples=41), rank_samples=[41])
    assert "At most" in found["samples_identity"]
