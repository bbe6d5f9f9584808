import msgspec
import pytest
from msgspec.structs import replace
from record_builder import a_device, make_measurement, make_spec

from feedrate.jobs.events import Data, Machine, Model, RankEvents, Start, Step, Strategy, Window
from feedrate.results.checks import CHECKS, ONLY_OF, check_run
from feedrate.results.conformity import Evidence
from feedrate.results.record import Outcome

GOOD = {
    "start": Start(rank=0, world_size=1, device_model="NVIDIA H100 80GB HBM3"),
    "model": Model(rank=0),
    "data": Data(rank=0, digest="d" * 64, decode="host"),
    "window": Window(rank=0, first_step=3, last_step=12, steps=10, samples=40, wall_s=4.0),
}
"""Events of a good run of `make_spec()`, besides its steps."""


@pytest.mark.parametrize(
    ("start", "machine", "granted", "words"),
    [
        ({"cores": "0-1", "cores_granted": 2}, {"cores": "0-1"}, 2, ""),
        ({"cores": "0-1", "cores_granted": 2}, {"cores": "0-3"}, 2, ""),  # a library's own threads
        (
            {"cores": "0-1", "cores_granted": 2},
            {"cores": "0"},
            2,
            "the cores 0-1, and could use 0.",
        ),
        ({"cores": "0", "cores_granted": 1}, {"cores": "0"}, 2, "saw 1 of 2 granted cores"),
        ({"cores": "0-3", "cores_granted": 8}, {"cores": "0-3"}, 8, ""),  # the device's NUMA node
        ({"cores": "0-1"}, {}, None, ""),  # of an earlier version
    ],
)
def test_a_run_that_lost_cores_is_invalid_and_names_the_variable(start, machine, granted, words):
    environment = {"FEEDRATE_UNSET_OMP_PLACES": "{0}", "ACCELERATE_CPU_AFFINITY": "1", "NCCL_X": ""}
    first = replace(GOOD["start"], environment=environment, **start)
    ranks = {0: RankEvents(start=first, machines=[Machine(rank=0, **machine)])}
    outcome = Outcome(status="ok", machine_before={"cores_granted": granted})
    evidence = Evidence(make_spec(), make_measurement(), a_device(), ranks, outcome)
    (check,) = [check for check in check_run(evidence) if check.name == "cores_kept"]
    assert check.passed == (words == "")
    assert words in check.detail
    names = "has OMP_PLACES={0}, ACCELERATE_CPU_AFFINITY=1."
    assert check.detail.endswith(names) == (words != "")


def test_a_variable_that_may_be_why_a_check_failed_is_named():
    environment = {"ACCELERATE_DYNAMO_BACKEND": "inductor", "PYTORCH_ALLOC_CONF": "x", "OMP_X": "1"}
    details = failed(start={"environment": environment}, strategy={"fp32": "tf32"})
    assert details["fp32"].endswith("has ACCELERATE_DYNAMO_BACKEND=inductor, PYTORCH_ALLOC_CONF=x.")


@pytest.mark.parametrize(
    ("name", "skipped", "passed"),
    [("grad_norm", None, False), ("eval_loss", None, False), ("eval_loss", 0, False)]
    + [("grad_norm", 0, True)],
)
def test_figures_of_the_trainer_that_are_no_numbers_fail(name, skipped, passed):
    """In fp16 an update whose gradients overflow is skipped, and counted by a check of its own."""
    measurement = make_measurement(skipped_updates=skipped)
    steps = [Step(rank=0, step=1, step_s=0.4, loss=1.0)]
    ranks = {0: RankEvents(steps=steps)}
    evidence = Evidence(make_spec(), measurement, a_device(), ranks, not_finite=[name])
    assert CHECKS["loss_finite"](evidence)[0] == passed


def failed(
    measurement=None,
    pattern="NVIDIA H100 80GB HBM3",
    spec=None,
    *,
    losses=(2.0, 1.0),
    step_s=0.4,
    fallback="",
    other_jobs=0,
    digest="d" * 64,
    strategy=None,
    **changes,
):
    """The checks that fail, with their details, where the events differ from GOOD by `changes`."""
    events = {
        name: replace(event, **changes.get(name) or {})
        for name, event in GOOD.items()
        if changes.get(name, {}) is not None
    }
    steps = [
        Step(rank=0, step=number, step_s=step_s, loss=loss)
        for number, loss in enumerate([*losses, *[None] * (12 - len(losses))], start=1)
    ]
    if strategy is not None:
        strategy = Strategy(**{"rank": 0, "name": "ddp", **strategy})
    machine = {"other_training_jobs": other_jobs}
    checks = check_run(
        Evidence(
            spec or make_spec(),
            measurement or make_measurement(),
            a_device(model_pattern=pattern, power_w=700),
            {0: RankEvents(**events, steps=steps, strategy=strategy)},
            Outcome(status="ok", data_digest=digest, machine_before=machine),
            f"Using Pytorch native dataloader because: {fallback}." if fallback else "",
        )
    )
    assert [c.name for c in checks] == [n for n in CHECKS if ONLY_OF.get(n) != "inference"]
    assert all(c.detail.endswith(".") and "\n" not in c.detail for c in checks)
    return {c.name: c.detail for c in checks if not c.passed}


def test_a_good_run_passes_all_checks():
    assert failed() == {}


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"start": {"world_size": 2}}, "world_size", "is 2, expected 1"),
        ({"window": {"first_step": 1}}, "window_after_warmup", "steps 1 to 12"),
        ({"window": {"last_step": 11}}, "window_after_warmup", "steps 3 to 11"),
        ({"window": {"samples": 41}}, "samples_identity", "40 samples per rank"),
        ({"step_s": 0.3}, "step_times_sum", "3 s, the window took 4 s"),
        ({"data": {"pixel_mean_abs_diff": 4.0, "pixel_worst_abs_diff": 47.0}}, "pixels", "47 of"),
        ({"data": {"pixel_mean_abs_diff": 30.0}}, "pixels", "30 of 255"),
        ({"losses": []}, "loss_finite", "No loss"),
        ({"losses": [1.0, float("nan")]}, "loss_finite", "1 of 2"),
        ({"losses": [float("inf")]}, "loss_finite", "not finite"),
        ({"losses": [1.0, 0.0]}, "loss_finite", "exactly 0"),
        ({"start": {"device_model": "NVIDIA A100-SXM4-80GB"}}, "device_model", "A100"),
        ({"start": {"device_model": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}}, "device_model", "MIG"),
        ({"start": {"device_model": None}}, "device_model", "unknown"),
        ({"data": {"decode": "device"}}, "decode_path", "device was used"),
        ({"data": {"decode": None}}, "decode_path", "an unknown one was used"),
        ({"data": {"digest": "e" * 64}}, "data_digest", "eeeeeeeeeeee was used"),
        ({"data": {"digest": None}}, "data_digest", "an unknown one was used"),
        ({"other_jobs": 2}, "alone_on_host", "2"),
    ],
)
def test_a_difference_from_what_was_asked_for_fails_its_check(changes, name, words):
    found = failed(**changes)
    # Other steps in the window also have another sum.
    assert list(found) == [name] or list(found) == [name, "step_times_sum"]
    assert words in found[name]


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"window": None}, "all_ranks_reported", "rank 0 of 1"),
        ({"window": None}, "window_after_warmup", "expected 3 to 12"),
        ({"window": None}, "step_times_sum", "no step times"),
        ({"start": None}, "world_size", "is unknown"),
        ({"data": None}, "decode_path", "an unknown one was used"),
    ],
)
def test_what_is_missing_fails_its_check(changes, name, words):
    assert words in failed(**changes)[name]


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


@pytest.mark.parametrize(
    ("asked", "used", "words"),
    [
        ({}, ("torch", "same"), ""),
        ({}, (None, None), ""),
        ({"library": "torch"}, ("torch", "same"), ""),
        ({}, ("spdl-core 0.8.0", "same"), "torch, same, was requested; spdl-core 0.8.0"),
    ],
)
def test_a_run_with_another_library_than_asked_for_is_invalid(asked, used, words):
    loader = {"workers": 1, "decode": "host", **asked}
    library, form = used
    found = failed(spec=make_spec(loader=loader), data={"library": library, "form": form})
    assert list(found) == ["library"] * bool(words)
    assert words in found.get("library", "")


@pytest.mark.parametrize("decode", ["host", "device"])
def test_a_fallback_fails_the_run_whatever_was_asked_for(decode):
    found = failed(spec=make_spec(decode=decode), data={"decode": decode}, fallback="no JPEG")
    assert list(found) == ["decode_path"]
    assert "`Using Pytorch native dataloader because: no JPEG`" in found["decode_path"]


def test_what_nobody_asked_for_is_not_held_against_the_run():
    assert failed(pattern=None, start={"device_model": None}, digest="") == {}
    assert failed(other_jobs=None) == {}


def test_forgotten_accumulation_is_caught():
    spec = make_spec()
    train = type(spec.settings.train)(batch_size=4, gradient_accumulation=2)
    spec = make_spec(settings=type(spec.settings)(model=spec.settings.model, train=train))
    assert "samples_identity" in failed(spec=spec)


def test_another_attention_than_asked_for_is_told():
    assert failed(model={"attention": "eager"}) == {}
    words = failed(model={"attention": "eager+sdpa"})["attention"]
    assert words == "attention: eager was requested, eager+sdpa was used."


def spec_sharing(strategy, count=2, checkpointing=False):
    spec = make_spec()
    settings = msgspec.structs.replace(
        spec.settings,
        train=msgspec.structs.replace(spec.settings.train, strategy=strategy),
        model=msgspec.structs.replace(spec.settings.model, checkpointing=checkpointing),
    )
    return msgspec.structs.replace(spec, settings=settings, count=count)


def test_fp32_by_another_precision_is_told():
    assert "fp32" not in failed(strategy={"fp32": "ieee"})
    assert "tf32 was used" in failed(strategy={"fp32": "tf32"})["fp32"]


@pytest.mark.parametrize(
    ("used", "passes"), [("tf32", True), ("ieee", False), ("ieee+tf32", False)]
)
def test_tf32_is_as_asked_for_or_the_run_is_invalid(used, passes):
    spec = make_spec()
    train = replace(spec.settings.train, precision="tf32")
    asked = replace(spec, settings=replace(spec.settings, train=train))
    assert ("fp32" not in failed(spec=asked, strategy={"fp32": used})) == passes


@pytest.mark.parametrize(("skipped", "passes"), [(None, True), (5, True), (6, False)])
def test_a_run_that_skips_its_updates_is_invalid(skipped, passes):
    found = failed(make_measurement(skipped_updates=skipped, steps=100))
    assert ("updates_made" not in found) == passes


@pytest.mark.parametrize(
    ("strategy", "checkpointing", "seen", "words"),
    [
        ("fsdp", False, {"name": "ddp", "layers": 4}, "fsdp was requested, ddp was used"),
        ("fsdp", False, {"name": "fsdp", "layers": 4}, "0 of 4 layers were sharded"),
        ("fsdp", False, None, "the run reported none"),
        ("ddp", False, {"name": "none", "layers": 4}, "ddp was requested, none was used"),
        ("fast_ddp", False, {"name": "ddp", "layers": 4}, "ddp was used"),
        ("ddp", True, {"name": "ddp", "layers": 4}, "0 of 4 layers were checkpointed"),
        (
            "fsdp",
            False,
            {"name": "fsdp", "layers": 4, "sharded_layers": 4, "offloaded_layers": 4},
            "4 of 4 layers were offloaded, expected 0",
        ),
        (
            "ddp",
            False,
            {"name": "ddp", "layers": 4, "ddp": {"ddp_bucket_view": True}},
            "train.ddp_bucket_view: False was requested, True was used",
        ),
        (
            "ddp",
            False,
            {"name": "ddp", "layers": 4, "checkpointed_layers": 4},
            "4 of 4 layers were checkpointed, expected 0",
        ),
    ],
)
def test_another_strategy_than_asked_for_is_told(strategy, checkpointing, seen, words):
    spec = spec_sharing(strategy, checkpointing=checkpointing)
    assert words in failed(spec=spec, strategy=seen)["strategy"]


@pytest.mark.parametrize(
    ("strategy", "checkpointing", "seen"),
    [
        ("ddp", False, None),
        ("ddp", False, {"name": "ddp", "layers": 4}),
        ("fast_ddp", False, {"name": "fast_ddp", "layers": 4}),
        ("fsdp", False, {"name": "fsdp", "layers": 4, "sharded_layers": 4}),
        (
            "fsdp",
            True,
            {"name": "fsdp", "layers": 4, "sharded_layers": 4, "checkpointed_layers": 4},
        ),
    ],
)
def test_the_strategy_asked_for_passes(strategy, checkpointing, seen):
    spec = spec_sharing(strategy, checkpointing=checkpointing)
    assert "strategy" not in failed(spec=spec, strategy=seen)


def test_pixels_that_differ_by_rounding_and_scaling_pass():
    near = {"pixel_mean_abs_diff": 2.8, "pixel_worst_abs_diff": 4.5}
    assert "pixels" not in failed(data=near)
    assert "pixels" not in failed(data={"pixel_mean_abs_diff": 0.0, "pixel_worst_abs_diff": 0.0})


@pytest.mark.parametrize("count", [1, 2])
def test_offloading_asked_for_is_seen(count):
    spec = spec_sharing("fsdp", count=count)
    train = msgspec.structs.replace(spec.settings.train, cpu_offload=True)
    spec = msgspec.structs.replace(
        spec, settings=msgspec.structs.replace(spec.settings, train=train)
    )
    seen = {"name": "fsdp", "layers": 4, "sharded_layers": 4}
    words = failed(spec=spec, strategy=seen)["strategy"]
    assert words == "0 of 4 layers were offloaded, expected 4."
    assert "strategy" not in failed(spec=spec, strategy={**seen, "offloaded_layers": 4})
    assert (
        "fsdp was requested"
        in failed(spec=spec, strategy={"name": "alone", "layers": 4})["strategy"]
    )


def test_a_kept_last_batch_may_be_smaller_and_not_larger():
    spec = make_spec()
    loader = msgspec.structs.replace(spec.settings.loader, last_batch="keep")
    settings = msgspec.structs.replace(spec.settings, loader=loader)
    spec = msgspec.structs.replace(spec, settings=settings)
    assert failed(spec=spec, measurement=make_measurement(samples=37), window={"samples": 37}) == {}
    found = failed(spec=spec, measurement=make_measurement(samples=41), window={"samples": 41})
    assert "At most" in found["samples_identity"]
