"""What is advised, from rates that were measured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.cli import advice
from feedrate.cli.advice import Model, Run, better_scaled, choose, expected, overlap
from feedrate.jobs.drain import Loader, Refused

RATES = st.floats(0.1, 1e5)
LOADERS = st.builds(
    Loader,
    st.sampled_from(["reference", "host", "cache", "device"]),
    st.integers(0, 8),
    RATES,
    st.just(0.1),
    st.floats(0, 1),
)
MODELS = st.builds(Model, RATES, st.floats(0, 1), st.sampled_from([1, 2, 16, math.inf]))


MODEL = Model(100.0)


def loader(decode, workers, rate):
    return Loader(decode, workers, rate, 0.2)


def test_without_workers_one_thing_comes_after_the_other():
    assert expected(loader("host", 0, 100.0), Model(100.0)) == pytest.approx(50.0)
    assert expected(loader("host", 1, 100.0), Model(150.0)) == pytest.approx(100.0)
    assert expected(loader("host", 4, 900.0), Model(150.0)) == pytest.approx(150.0)
    # The device decodes beside the step, whatever the number of threads that read.
    assert expected(loader("device", 0, 900.0), Model(150.0)) == pytest.approx(150.0)


def test_loading_and_computing_beside_it_share_the_cores():
    # As measured here: a model on both cores, and a worker that takes its time from them.
    model = Model(38.0, cpu_s=2 / 38, cores=2)
    worker = Loader("host", 1, 200.0, 0.1, cpu_s=1 / 200)
    assert expected(worker, model) == pytest.approx(2 / (2 / 38 + 1 / 200))
    assert expected(worker, model._replace(cores=16)) == pytest.approx(38.0)
    # In turn they never run at the same time.
    alone = Loader("host", 0, 200.0, 0.1, cpu_s=1 / 200)
    assert expected(alone, model) == pytest.approx(1 / (1 / 38 + 1 / 200))
    said = advice.why(choose([worker], model), [worker], model)
    for part in ("5.26 times the model's rate", "share 2 cores", "loading needs 9%"):
        assert part in said


def test_the_cores_of_a_device_are_told_if_they_are_known():
    model, worker = Model(80.0), Loader("host", 1, 200.0, 0.1, cpu_s=0.01)
    assert advice.cores_of_loading(2, worker, model) == pytest.approx(0.9 * 40 * 0.01)
    assert "0.36 for loading" in advice.cores_line(2, worker, model)
    assert "not known" in advice.cores_line(2, loader("host", 1, 200.0), model)


@given(loaders=st.lists(LOADERS, min_size=1, max_size=8), model=MODELS)
def test_what_is_chosen_is_as_good_as_the_best(loaders, model):
    chosen = choose(loaders, model)
    found = expected(chosen, model)
    assert chosen in loaders
    assert found <= model.samples_per_s * 1.0001
    assert found <= chosen.samples_per_s * 1.0001
    assert all(expected(one, model) * 0.98 <= found * 1.0001 for one in loaders)


def test_the_simplest_of_equals_is_chosen():
    many = [
        loader("cache", 0, 1e6),
        loader("host", 4, 2000.0),
        loader("host", 2, 1000.0),
        loader("host", 0, 500.0),
        loader("reference", 8, 1000.0),
    ]
    assert choose(many, MODEL).name == "decode: host, workers: 2"
    assert choose(many, Model(5000.0)).name == "decode: cache, workers: 0"


def test_overlap_is_a_share():
    ours = loader("host", 2, 200.0)
    assert overlap(ours, MODEL, Run(100.0, 100.0, MODEL)) == pytest.approx(1.0)
    in_turn = 1 / (1 / 200 + 1 / 100)
    assert overlap(ours, MODEL, Run(in_turn, in_turn, MODEL)) == pytest.approx(0.0)
    assert overlap(ours, MODEL, Run(150.0, 150.0, MODEL)) == 1.0
    # Training does more in a step than the model alone, which is no lack of overlap.
    run = Run(34.8, 34.8, Model(37.96))
    assert overlap(loader("cache", 1, 5000.0), Model(34.8), run) == pytest.approx(1.0)


def test_what_computes_is_the_slower_of_alone_and_in_the_loop():
    assert Run(30.0, 34.8, Model(37.96)).computes_per_s == 34.8
    assert Run(30.0, 99.0, Model(37.96)).computes_per_s == 37.96
    assert Run(30.0, 34.8, None).computes_per_s == 34.8


def test_the_advice_says_what_to_use_why_and_how_far_off_it_was():
    loaders = [loader("reference", 0, 50.0), loader("host", 0, 200.0), loader("host", 1, 190.0)]
    refused = [Refused("device", "a cpu has no JPEG decoder")]
    choice = choose(loaders, MODEL)
    text = "\n".join(advice.advice(loaders, refused, MODEL, choice, Run(95.0, 95.0, MODEL)))
    assert "Use loader: {decode: host, workers: 1}" in text
    for part in ("1.9 times", "the model is the limit", "x3.00", "Expect: 100 samples/s", "+5.3%"):
        assert part in text
    assert "90% of loading and computing overlapped" in text
    assert "device does not work: a cpu has no JPEG decoder" in text


def test_a_level_that_failed_with_more_workers_can_be_used_with_fewer():
    loaders = [loader("host", 0, 200.0), loader("host", 1, 190.0)]
    refused = [Refused("host", "a loader worker was killed", workers=8)]
    choice = choose(loaders, MODEL)
    text = "\n".join(advice.advice(loaders, refused, MODEL, choice, Run(95.0, 95.0, MODEL)))
    assert "host failed with 8 workers: a loader worker was killed" in text
    assert "does not work" not in text


def scaled(workers, rate):
    return Loader("host", workers, rate, 0.1, scaled=True, psnr_db=28.2)


def test_other_pixels_are_never_chosen_but_told_where_they_gain():
    plain = [loader("host", 1, 50.0), loader("cache", 0, 70.0)]
    many = [*plain, scaled(0, 90.0), scaled(1, 80.0)]
    choice = choose(many, MODEL)
    assert choice is plain[0]
    other = better_scaled(many, MODEL, choice)
    assert other.name == "decode: host, scaled_decode: true, workers: 1"
    assert expected(other, MODEL) == pytest.approx(80.0)
    assert better_scaled(plain, MODEL, choice) is None
    # Where the model alone decides, nothing is gained.
    slow = Model(10.0)
    assert better_scaled([*plain, scaled(1, 80.0)], slow, choose(plain, slow)) is None
    text = "\n".join(advice.advice(many, [], MODEL, choice, Run(50.0, 50.0, MODEL)))
    assert "Use loader: {decode: host, workers: 1}" in text
    *_, last = text.splitlines()
    for part in ("{decode: host, scaled_decode: true, workers: 1}", "80 samples/s", "28 dB"):
        assert part in last
    assert text.count("host scaled") == 2


def test_the_models_rate_is_told_with_how_it_was_measured():
    plain = Run(30.0, 34.8, Model(37.96))
    said = advice.model_line("cpu", plain, 34.8, sharded=False)
    assert "model-only throughput is 37.96 samples/s; its rate in training" in said
    said = advice.model_line("h100", Run(30.0, 99.0, Model(12345.6)), 12345.6, sharded=False)
    assert said.endswith("throughput is 12,346 samples/s.")
    said = advice.model_line("h100", Run(30.0, 34.8, Model(34.8)), 34.8, sharded=True)
    assert "34.8 samples/s in training steps" in said
    assert "throughput is" not in said


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (loader("cache", 0, 10_000.0), "without workers, loading takes 1.0% of a step"),
        (loader("host", 2, 60.0), "loading reaches 60% of the model's rate, and no loader here"),
    ],
)
def test_why(one, said):
    assert advice.why(choose([one], MODEL), [one], MODEL).startswith(said)


def test_why_not_what_loads_more():
    near = [loader("host", 1, 98.5), loader("cache", 0, 1e6), loader("cache", 1, 100.0)]
    text = advice.why(choose(near, MODEL), near, MODEL)
    assert text == "loading reaches 98% of the model's rate, and faster loaders gain less than 2%"
    # Loaders and model share the cores: more workers would load more, and take it from the model.
    model = Model(100.0, cpu_s=0.02, cores=2)
    many = [Loader("host", n, rate, 0.1, cpu_s=0.011) for n, rate in ((1, 90.0), (2, 170.0))]
    text = advice.why(choose(many, model), many, model)
    for part in ("90% of the model's rate", "share 2 cores", "needs 35%"):
        assert part in text
