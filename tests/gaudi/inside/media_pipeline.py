"""Our pipeline, made by the Python code of the vendor's habana-media-loader.

Only what is native is replaced: the library libmedia.so, the extension modules `media_pipe_*`, and
the parts of `habana_frameworks.torch` that reach the device. Nobody has run this with the package
yet: it was written from the package's documentation and from a description of its build steps.

Prints what the vendor's code made: the pipeline's class hierarchy, the classes of its outputs, and
the build steps that ran.
"""

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

STEPS = ("definegraph", "create_opnodes", "segment_graph", "process_and_validate_graph")
"""The steps of the vendor's `build()` before anything is compiled for the device."""


class Native(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the extension modules, which accept every call."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        device = name.startswith("habana_frameworks.torch")
        if name.startswith("media_pipe_") or device:
            return importlib.machinery.ModuleSpec(name, self, is_package=device)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        module = MagicMock(name=spec.name)
        module.__spec__, module.__name__, module.__path__ = spec, spec.name, []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def load(path: Any, *args: Any, **kwargs: Any) -> Any:
    """The real libraries, but a stand-in for the vendor's."""
    return MagicMock(name=str(path)) if "media" in str(path) else real(path, *args, **kwargs)


real, ctypes.CDLL = ctypes.CDLL, load
sys.meta_path.insert(0, Native())
prepared, tokens = Path(sys.argv[1]), int(sys.argv[2])
paths = sorted((prepared / "images").glob("train-*"))


class Feed:
    """One batch of the dataset, as `loading.decoders.gaudi.Feed` gives it."""

    batch_size = 4
    dataset = SimpleNamespace(
        paths=paths,
        image_px=64,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        input_ids=np.zeros((len(paths), tokens)),
    )

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        numbers = np.zeros((4, tokens), np.uint32)
        yield list(map(str, paths[:4])), numbers, numbers


pipe_module = importlib.import_module("feedrate.loading.decoders._gaudi_pipe")
pipe = pipe_module.ImageTextPipe(Feed())
ran = []
outputs = pipe.definegraph()
pipe.definegraph = lambda: outputs
for step in STEPS:
    if step == "definegraph" or hasattr(pipe, step):
        ran.append(step)
        if step != "definegraph":
            getattr(pipe, step)()
bases = [base.__module__ for base in type(pipe).__mro__]
print(json.dumps([bases, [type(output).__module__ for output in outputs], ran]))
