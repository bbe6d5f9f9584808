"""Which loading path a run takes, and the sentences of those that it cannot take."""

import sys

import pytest

from feedrate.config.settings import LoaderSettings
from feedrate.devices.base import UnsupportedError
from feedrate.devices.kinds import cpu
from feedrate.jobs.worker import classify
from feedrate.loading.path import HostPath, open_path

HOST, DEVICE = LoaderSettings(decode="host"), LoaderSettings(decode="device")


class Cuda(cpu.DeviceAdapter):
    kind = "cuda"
    pins_memory = True


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (cpu.DeviceAdapter, "a cpu has no JPEG decoder; "),
        (Cuda, "torchvision cannot be imported .*, or "),
    ],
)
def test_a_kind_that_decodes_nothing_is_told_and_never_replaced(kind, why):
    open_path(kind(0, 1), HOST)
    with pytest.raises(
        UnsupportedError, match=rf"^loader\.decode: device: {why}use host or cache$"
    ):
        open_path(kind(0, 1), DEVICE)


def test_the_host_path_needs_no_gaudi_software(gaudi, without_media):
    path = open_path(gaudi, HOST)
    assert isinstance(path, HostPath)
    assert (path.decode, path.by_torch) == ("host", True)
    assert not [name for name in sys.modules if name.startswith("habana_frameworks.mediapipe")]


def test_a_missing_media_loader_is_named(gaudi, without_media):
    with pytest.raises(
        UnsupportedError, match=r"habana-media-loader .* cannot be imported"
    ) as error:
        open_path(gaudi, DEVICE)
    failure = classify(error.value)
    assert not failure.infrastructure  # another try would end the same
    assert "install it where the training processes run, or use host" in failure.message


@pytest.mark.parametrize("model", ["GAUDI", "Gaudi1", "HL-205"])
def test_the_first_generation_has_no_decoder(media, gaudi, model):
    gaudi.model = model
    with pytest.raises(UnsupportedError, match=f"{model}, the first generation"):
        open_path(gaudi, DEVICE)
