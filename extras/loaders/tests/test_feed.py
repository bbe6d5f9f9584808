"""The search for the largest number of fed accelerators, refusals, and one small real run."""

import functools
import json

import msgspec
import pytest

import fake_library
from feed_builder import feeding
from feedrate.config.errors import ConfigError
from feedrate_loaders import accelerator, feed
from feedrate_loaders.accelerator import BUSY
from feedrate_loaders.feed import Fed, Host, Level, Request, count_fed, search
from tiny_spec import tiny_spec


def tried(fed, first, most=64):
    """The numbers that a search tries on a host that feeds `fed` accelerators."""
    return [
        one.accelerators
        for one in search(lambda n: feeding(n, 1.0 if n <= fed else 0.8, 1.0), first, most)
    ]


@pytest.mark.parametrize(
    ("fed", "first", "numbers"),
    [
        (3, 3, [3, 4]),
        (5, 3, [3, 4, 5, 6]),
        (2, 4, [4, 3, 2]),
        (0, 0, [1]),
        (0, 2, [2, 1]),
        (64, 200, [64]),
    ],
)
def test_a_search_ends_when_one_more_is_not_fed(fed, first, numbers):
    assert tried(fed, first) == numbers


def test_the_rate_limit_says_how_many_are_fed():
    # 230 samples/s, and accelerators that take 48 in 0.64 s: 75 samples/s, of which 90%.
    assert count_fed(230.0, [0.64], 48) == pytest.approx(230 / 67.5)
    assert count_fed(230.0, [0.32, 0.96], 48) == pytest.approx(230 / 67.5)


@pytest.fixture
def host(tiny_prepared):
    return Host(tiny_spec(), tiny_prepared, cores=1)


@pytest.mark.parametrize("level", [Level("reference"), Level("host"), Level("host", True)])
def test_paths_that_decode_at_each_read_are_certified(host, level):
    dataset = host.dataset(level)
    assert list(host.refusals(level)) == []
    assert host.decodes(level, dataset)
    dataset.read = functools.cache(dataset.read)
    assert not host.decodes(level, dataset)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_library_that_keeps_pixels_is_refused(keeps, host, monkeypatch):
    kept = {}

    def batches(work):
        for numbers in work.order:
            if not keeps or not kept:
                kept[None] = work.make(numbers)
            yield kept[None]

    fake_library.install(monkeypatch, batches)
    monkeypatch.setattr(host, "feed", lambda *_, **__: feeding(1, 0.5, 1.0))
    fed = host.certify(Level("host", library=fake_library.NAME), Request(step_s=[1.0]))
    assert fed.refused == (feed.NOT_DECODED if keeps else "")


def test_a_library_that_fails_when_it_is_asked_is_refused_with_its_cause(host, monkeypatch):
    def batches(work):
        raise accelerator.FeedError("it fails")
        yield

    fake_library.install(monkeypatch, batches)
    fed = host.certify(Level("host", library=fake_library.NAME), Request(step_s=[1.0]))
    assert fed.refused == "it fails"


def test_a_form_that_records_no_stage_is_not_asked(host):
    assert host.decodes(Level("host", library="dali", best=True), dataset=None)


@pytest.mark.parametrize(
    ("decode", "why"), [("cache", "nothing is decoded"), ("device", "emulated")]
)
def test_paths_that_do_not_decode_here_are_refused(host, decode, why):
    fed = host.certify(Level(decode), Request(step_s=[1.0]))
    assert why in fed.refused
    assert fed.limit is None
    assert fed.runs == []


@pytest.mark.parametrize(
    ("library", "why"),
    [("grain", "does not have the form"), ("spld", "library")],
)
def test_libraries_that_have_no_such_form_are_refused(host, library, why):
    level = Level("host", library=library, best=library == "grain")
    assert why in host.certify(level, Request(step_s=[1.0])).refused


def test_a_path_that_fails_is_refused_with_its_cause(host, monkeypatch):
    def fails(*_):
        raise accelerator.FeedError("an accelerator got no whole batch in 8 s")

    monkeypatch.setattr(feed, "measure", fails)
    fed = host.certify(Level("host"), Request(step_s=[1.0]))
    assert fed.refused == "an accelerator got no whole batch in 8 s"


def test_many_expected_accelerators_are_drained_together(host, monkeypatch):
    """One loader gives 100 accelerators' samples, ten together only 80 times that of one."""
    size, tried = host._spec.settings.train.batch_size, []

    def fed(level, dataset, count, step_s):
        tried.append((count, step_s[0]))
        rate = {1: 10.5, 10: 8.5}.get(count, 7.5) * BUSY * size
        return feeding(count, min(1.0, 7.5 * BUSY / count), rate)

    monkeypatch.setattr(host, "feed", fed)
    found = host.certify(Level("host"), Request(step_s=[1.0]))
    assert tried[:3] == [(1, 0.0), (10, 0.0), (8, 1.0)]
    assert found.limit.accelerators == 10


def test_a_dataset_that_fills_no_batch_is_an_error(tiny_prepared):
    with pytest.raises(ConfigError, match="needs 100 training rows"):
        Host(tiny_spec(train={"batch_size": 100}), tiny_prepared, cores=1)


def test_real_loaders_feed_emulated_accelerators(tiny_prepared, tmp_path, monkeypatch, capfd):
    """At most two, which take 4 samples every 0.2 s at most, however slow this machine is."""
    monkeypatch.setattr(accelerator, "WARMUP_S", 0.1)
    monkeypatch.setattr(accelerator, "WINDOW_S", 1.5)
    monkeypatch.setattr(accelerator, "WINDOW_STEPS", 3)
    monkeypatch.setattr(feed, "COPIED_BYTES", 2**20)
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(tiny_spec()))
    levels = (Level("host"), Level("device"))
    request = Request(step_s=[0.2], levels=levels, most=2)
    feed.feed_accelerators(tmp_path, tiny_prepared, request)
    answer = msgspec.convert(json.loads((tmp_path / "fed.json").read_text()), feed.Answer)
    found, refused = answer.fed
    assert not found.refused
    assert found.limit.samples_per_s > 0
    for run in found.runs:
        assert 1 <= run.accelerators <= 2
        assert 0 < run.samples_per_s <= 20.01 * run.accelerators
        assert all(0 < busy <= 1 for busy in run.busy)
    assert refused == Fed(level=Level("device"), refused=refused.refused)
    assert (answer.rows, answer.crop_bytes) == (24, 3 * 128 * 128)
    assert answer.picture_bytes > answer.file_bytes > 0 < answer.copy_bytes_per_s
    said = capfd.readouterr().err
    assert f"host: {found.runs[0].accelerators} busy" in said
    assert "device: refused" in said
