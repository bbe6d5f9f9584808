"""Batches of the media pipeline on the stand-in, held against those of the host path."""

import pytest
import torch
from accelerate import PartialState
from accelerate.data_loader import prepare_data_loader
from PIL import Image
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import ignored_settings
from feedrate.devices.base import UnsupportedError
from feedrate.jobs.blocks import EndlessBatches
from feedrate.jobs.worker import classify
from feedrate.loading.dataset import collate
from feedrate.loading.decoders.gaudi import MediaError
from feedrate.loading.path import HostPath, open_path

HOST = HostPath(LoaderSettings(), pin_memory=False)
BATCH = 4


def prepared_loader(dataset, *, shuffle=True, rank=0, ranks=1):
    """A loader as the Trainer has accelerate make it; training drops the last batch."""
    PartialState(cpu=True)
    return prepare_data_loader(
        DataLoader(dataset, BATCH, shuffle=shuffle, collate_fn=collate, drop_last=shuffle),
        device=torch.device("cpu"),
        num_processes=ranks,
        process_index=rank,
        put_on_device=True,
        use_seedable_sampler=True,
        data_seed=3,
    )


def epochs(loader, count=2):
    """The batches of each epoch."""
    return [list(loader) for _ in range(count)]


def captions(batches):
    """Which rows came, by their tokens."""
    return torch.cat([batch["input_ids"] for batch in batches]).tolist()


def level_difference(one, other):
    """Mean absolute difference of pixels before normalisation, of 255."""
    std = torch.tensor([0.25, 0.3, 0.35]).view(3, 1, 1)
    return ((one - other) * std).abs().mean().item() * 255


def test_batches_are_those_of_the_host_path(on_device, make_pairs):
    host = epochs(HOST.wrap(prepared_loader(make_pairs("train"))))
    device = epochs(on_device.wrap(prepared_loader(make_pairs("train"))))
    assert [len(epoch) for epoch in device] == [6, 6]
    for ours, theirs in zip(device[0] + device[1], host[0] + host[1], strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("input_ids", "attention_mask"):
            assert torch.equal(ours[name], theirs[name])
            assert ours[name].dtype == theirs[name].dtype
        pixels, expected = ours["pixel_values"], theirs["pixel_values"]
        assert pixels.dtype == expected.dtype
        assert pixels.shape == expected.shape
        assert ours["return_loss"] is True
        # Crop and resize swap places, so that lines move by up to half a pixel.
        assert level_difference(pixels, expected) < 15
        swapped = expected.roll(1, dims=0)
        assert level_difference(pixels, swapped) > 2 * level_difference(pixels, expected)


class Rows(list):
    """A given order."""

    batch_size = BATCH


def test_pixels_are_the_hosts_but_for_rounding_where_nothing_is_cropped(
    on_device, make_pairs, tmp_path
):
    dataset = make_pairs("train")
    for i, mode in enumerate(["RGB", "L", "RGB", "L"]):
        with Image.open(dataset.paths[2 * i]) as drawing:
            drawing.convert(mode).crop((20, 10, 140, 130)).save(tmp_path / f"{i}.jpg")
    dataset.paths[:] = [tmp_path / f"{i % 4}.jpg" for i in range(24)]
    (ours,) = on_device.batches(dataset, Rows([[0, 1, 2, 3]]))
    (theirs,) = HOST.batches(dataset, Rows([[0, 1, 2, 3]]))
    # The host keeps bicubic's overshoot, bytes cannot: compare where it stayed in range.
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (dataset.mean, dataset.std))
    levels = (theirs["pixel_values"] * std + mean) * 255
    inside = (levels > 1) & (levels < 254)
    difference = ((ours["pixel_values"] - theirs["pixel_values"]) * std).abs() * 255
    assert inside.float().mean() > 0.2
    assert difference[inside].mean() < 0.5
    assert difference[inside].quantile(0.99) < 3
    assert level_difference(ours["pixel_values"], theirs["pixel_values"]) < 1.5


def test_one_pipeline_serves_all_epochs_and_each_loader_has_its_own(on_device, make_pairs, media):
    train = on_device.wrap(prepared_loader(make_pairs("train")))
    other = on_device.wrap(prepared_loader(make_pairs("validation"), shuffle=False))
    epochs(train, 3)
    epochs(other, 2)
    assert len(media.MADE) == 2
    assert media.MADE[0].pipe_name != media.MADE[1].pipe_name


def test_training_and_evaluation_do_not_disturb_each_other(on_device, make_pairs):
    alone = epochs(on_device.wrap(prepared_loader(make_pairs("train"))))
    validation = make_pairs("validation")
    train = on_device.wrap(prepared_loader(make_pairs("train")))
    for undisturbed in alone:
        seen = []
        for batch in train:
            seen.append(batch)
            evaluated = list(on_device.wrap(prepared_loader(validation, shuffle=False)))
            assert captions(evaluated) == validation.input_ids.tolist()  # in order, all rows
        assert captions(seen) == captions(undisturbed)


def test_pixels_are_handed_on_as_the_pipeline_gives_them(
    on_device, make_pairs, gaudi, media, monkeypatch
):
    """Without a copy; what is computed from the tokens is submitted batch by batch."""
    run, given = media.MediaPipe.run, []

    def note(pipe):
        given.append(run(pipe))
        return given[-1]

    monkeypatch.setattr(media.MediaPipe, "run", note)
    kept = list(on_device.wrap(prepared_loader(make_pairs("train"))))
    assert gaudi.handed_over == len(kept) == len(given)
    for batch, (pixels, *_) in zip(kept, given, strict=True):
        assert batch["pixel_values"].data_ptr() == pixels.data_ptr()


@pytest.mark.parametrize("ignored", [{"workers": 2}, {"prefetch_factor": 9}])
def test_settings_that_a_decoder_ignores_change_nothing(media, gaudi, make_pairs, ignored):
    """So the plan runs such cells once."""
    assert ignored.keys() <= ignored_settings("device", "hpu")
    for settings in ({}, ignored):
        path = open_path(gaudi, LoaderSettings(decode="device", **settings))
        next(path.batches(make_pairs("train"), EndlessBatches(24, BATCH, seed=1)))
    one, other = (vars(pipe) for pipe in media.MADE)
    for name in ("prefetch_depth", "batch_size", "num_threads"):
        assert one[name] == other[name]
    assert one["prefetch_depth"] == path.round_size


def test_the_pipeline_is_told_the_largest_file(on_device, make_pairs, media, tiny_prepared):
    next(on_device.batches(make_pairs("train"), EndlessBatches(24, BATCH, seed=1)))
    sizes = {path: path.stat().st_size for path in (tiny_prepared / "images").glob("train-*")}
    assert media.MADE[-1].reader_operator.largest == str(max(sizes, key=sizes.get))


def test_an_order_without_end_goes_on_over_the_rows(on_device, make_pairs):
    batches = on_device.batches(make_pairs("train"), EndlessBatches(24, BATCH, seed=1))
    ours = captions([next(batches) for _ in range(14)])
    host = HOST.batches(make_pairs("train"), EndlessBatches(24, BATCH, seed=1))
    assert ours == captions([next(host) for _ in range(14)])


def test_a_loader_that_cannot_be_taken_over_is_refused(on_device, make_pairs):
    plain = DataLoader(make_pairs("train"), BATCH)
    with pytest.raises(UnsupportedError, match="no base_dataloader"):
        on_device.wrap(plain)


def test_odd_sizes_are_refused_before_anything_starts(on_device, make_pairs, media):
    with pytest.raises(UnsupportedError, match="even sizes, and the model takes 33 px"):
        on_device.wrap(prepared_loader(make_pairs("train", image_px=33)))
    assert not media.MADE


def test_a_device_that_is_busy_at_the_start_is_the_machines_fault(
    on_device, make_pairs, media, monkeypatch
):
    def busy(*_args):
        raise RuntimeError("synDeviceAcquireByModuleId failed")

    monkeypatch.setattr(media.MediaPipe, "build", busy)
    with pytest.raises(UnsupportedError) as error:
        next(iter(on_device.wrap(prepared_loader(make_pairs("train")))))
    assert classify(error.value).infrastructure


def test_a_decoder_error_in_mid_epoch_passes_through(on_device, make_pairs, tmp_path):
    dataset = make_pairs("train")
    bad = tmp_path / "progressive.jpg"
    Image.new("RGB", (80, 80)).save(bad, progressive=True)
    dataset.paths[5] = bad
    loader = on_device.wrap(prepared_loader(dataset))
    with pytest.raises(RuntimeError, match="media pipe failed: unsupported JPEG"):
        list(loader)


def test_batches_that_the_pipeline_loses_are_missed(on_device, make_pairs, media, monkeypatch):
    run, given = media.MediaPipe.run, []

    def stop_early(pipe):
        if len(given) == 2:
            raise StopIteration
        given.append(run(pipe))
        return given[-1]

    monkeypatch.setattr(media.MediaPipe, "run", stop_early)
    loader = on_device.wrap(prepared_loader(make_pairs("train")))
    with pytest.raises(MediaError, match=r"ended with \d batches outstanding"):
        list(loader)


def test_a_batch_too_many_is_told(on_device, make_pairs, media, monkeypatch):
    run, given = media.MediaPipe.run, []

    def again(pipe):
        if len(given) < 6:
            given.append(run(pipe))
        return given[-1]

    monkeypatch.setattr(media.MediaPipe, "run", again)
    loader = on_device.wrap(prepared_loader(make_pairs("train")))
    with pytest.raises(MediaError, match="gave a batch that it was not asked for"):
        list(loader)


def test_a_class_that_nobody_knows_stays_negative(on_device, make_pairs):
    """The pipeline carries tokens without signs; a classifier's unknown class is -100."""
    dataset = make_pairs("train")
    dataset.input_ids = torch.full_like(dataset.input_ids, -100)
    batch = next(on_device.batches(dataset, Rows([[0, 1, 2, 3]])))
    assert batch["input_ids"].unique().tolist() == [-100]
