"""Datasets of all levels from the same files, and a Gaudi that is the CPU with a stand-in."""

import multiprocessing
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.data.manifest import store_folder, store_spec
from feedrate.devices.kinds import cpu
from feedrate.jobs.store import write_store
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import open_path

PX, TOKENS = 32, 10
MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.3, 0.35)
STANDIN = Path(__file__).with_name("standin")
OURS = "feedrate.loading.decoders._gaudi_pipe"
MODEL = ModelSettings(name="bridgetower", size="tiny")


@pytest.fixture(scope="session", autouse=True)
def short_waits():
    """A loader that ends with a traceback ends in garbage collection, after its queues: then its
    workers hear nothing, and torch waits this long for each of them."""
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5


@pytest.fixture(scope="session", autouse=True)
def warm_forkserver():
    """Processes of a forkserver find the libraries imported."""
    modules = ["feedrate.jobs.store", "feedrate.loading.workers"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(modules)


def model_inputs(tokenizer, image_px=PX, mean=MEAN, std=STD):
    """What a dataset takes of a model."""
    return SimpleNamespace(
        tokenizer=tokenizer, image_px=image_px, mean=mean, std=std, column="caption"
    )


@pytest.fixture(scope="session")
def tokenizer(tiny_prepared):
    return PreTrainedTokenizerFast.from_pretrained(tiny_prepared / "tokenizer")


@pytest.fixture(scope="session")
def store_of(tiny_prepared, tokenizer):
    """The folder of the store that settings need, made once."""

    def _make(loader, image_px=PX):
        settings = Settings(model=MODEL, loader=loader)
        folder = store_folder(settings, tiny_prepared)
        if folder and not folder.exists():
            spec = store_spec(settings)
            model = model_inputs(tokenizer, image_px)
            write_store(tiny_prepared, spec, model, folder / "index.json", 1)
        return folder

    return _make


@pytest.fixture(scope="session")
def make_pairs(tiny_prepared, tokenizer, store_of):
    """A split, read as the loader settings say."""

    def _make(split="train", image_px=PX, **settings):
        loader = LoaderSettings(**{"max_tokens": TOKENS, **settings})
        model, store = model_inputs(tokenizer, image_px), store_of(loader, image_px)
        return PairDataset(tiny_prepared, split, model, loader, store or "")

    return _make


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


class Cuda(cpu.DeviceAdapter):
    """The CPU under another name."""

    kind = "cuda"


@pytest.fixture
def cuda():
    return Cuda(0, 1)


@pytest.fixture
def decode_with(monkeypatch):
    """Install a torchvision whose `decode_jpeg` is the function given."""
    import datasets  # noqa: F401  # it looks for torchvision once, and must not find this one

    def _install(decode_jpeg):
        module = ModuleType("torchvision.io")
        module.decode_jpeg, module.ImageReadMode = decode_jpeg, SimpleNamespace(RGB="RGB")
        monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
        monkeypatch.setitem(sys.modules, "torchvision.io", module)

    return _install


@pytest.fixture
def calls(decode_with):
    """A torchvision whose decoder runs on the CPU; what it was called with."""
    import simplejpeg

    made = []

    def decode_jpeg(files, mode, device):
        assert mode == "RGB"
        made.append((len(files), str(device), threading.current_thread().name))
        try:
            decoded = [simplejpeg.decode_jpeg(file.numpy().tobytes(), "RGB") for file in files]
        except ValueError as error:
            raise RuntimeError(f"nvjpeg: {error}") from None
        return [torch.from_numpy(levels).permute(2, 0, 1) for levels in decoded]

    decode_with(decode_jpeg)
    return made


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
