"""Splits of the tiny dataset, and a Gaudi that is the CPU with the stand-in's media pipeline."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.registry import open_path
from feedrate.devices import cpu

STANDIN = Path(__file__).with_name("standin")
OURS = "feedrate.data.loading.media_pipe"


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Threads that wait for each other on a busy machine would make tests slow."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def split(tiny_prepared):
    """A split of the tiny dataset, by name."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny_prepared / "tokenizer")

    def _split(name, **values):
        settings = {"max_tokens": 10, "image_px": 32}
        statistics = {"mean": (0.5, 0.4, 0.3), "std": (0.25, 0.3, 0.35)}
        return PairDataset(tiny_prepared, name, tokenizer, **settings | statistics | values)

    return _split


class Gaudi(cpu.DeviceAdapter):
    """The CPU under another name."""

    kind = "hpu"
    model = "GAUDI2"
    handed_over = 0

    def device_model(self):
        return self.model

    def end_of_step(self):
        self.handed_over += 1


@pytest.fixture
def gaudi():
    return Gaudi(0, 1)


def vendor_modules():
    return [name for name in sys.modules if name.split(".")[0] == "habana_frameworks"]


@pytest.fixture
def without_media(monkeypatch):
    """No media pipeline is installed, whatever else is; what is imported here is forgotten."""
    for name in [*vendor_modules(), OURS]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in [*vendor_modules(), OURS]:
        sys.modules.pop(name, None)


@pytest.fixture
def media(without_media, monkeypatch):
    """The stand-in's pipeline module; MADE lists the pipelines that a test makes."""
    monkeypatch.syspath_prepend(STANDIN)
    import habana_frameworks.mediapipe.mediapipe as module

    yield module
    for pipe in module.MADE:
        pipe.close()


@pytest.fixture
def on_device(media, gaudi):
    """The path of `decode: device` on the stand-in."""
    return open_path(gaudi, LoaderSettings(decode="device"))
