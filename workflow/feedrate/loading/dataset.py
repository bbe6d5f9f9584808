"""Image-text pairs of a prepared dataset: their batches, reused memory and order."""

import itertools
import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
from torch.utils.data import Dataset, Sampler, get_worker_info

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import DECODERS
from feedrate.config.values import size_text
from feedrate.core import plugins
from feedrate.data.manifest import SAMPLES, DataError
from feedrate.devices.base import UnsupportedError
from feedrate.loading import stages
from feedrate.loading.decoders import Source, constant_of, decoder_of
from feedrate.loading.decoders.cache import Store
from feedrate.loading.pixels import Finish

Tokenizer = Callable[..., Any]
Sample = dict[str, torch.Tensor]

FREE, TAKEN = 0, 1
_numbers = itertools.count()
_BY_NAME: "weakref.WeakValueDictionary[str, Slots]" = weakref.WeakValueDictionary()
"""The slots of this process's loaders, by the names that workers send."""


class Slots:
    """Reused memory for batches of one shape, shared between the workers and their rank. A batch of
    48 pictures of 294 px costs 14 ms of page faults in new shared memory, 1 ms in a used slot. A
    worker sends a slot's number; the rank frees it when no tensor refers to it any more."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, workers: int, per_worker: int
    ) -> None:
        """Reserve slots for batches of at most `shape`; without workers, the rank is one itself.
        Raises UnsupportedError if the host lacks the shared memory."""
        self._per_worker = per_worker
        count = max(1, workers) * per_worker
        size = count * math.prod(shape) * dtype.itemsize
        try:  # reserved without writing to it; moving a tensor there would write
            storage = torch.UntypedStorage._new_shared(size) if workers else None
        except RuntimeError as error:
            raise UnsupportedError(
                f"loader.workers: batches of {workers} workers need {size_text(size)} of shared "
                "memory, more than /dev/shm has; give the container more (docker: --shm-size), or "
                "use fewer workers or a smaller loader.prefetch_factor"
            ) from error
        storage = storage or torch.UntypedStorage(size)
        self.batches = torch.empty(0, dtype=dtype).set_(storage, 0, (count, *shape))  # type: ignore[call-overload]
        self.states = torch.zeros(count, dtype=torch.uint8)
        if workers:
            self.states.share_memory_()
        self.name = f"{os.getpid()}/{next(_numbers)}"
        _BY_NAME[self.name] = self

    def take(self, rows: int) -> "torch.Tensor | Filling":
        """Memory for a batch of `rows`: a free slot (in a worker a Filling), or a new tensor."""
        info = get_worker_info()
        # Each worker takes only its own slots, and only the rank frees them: no lock is needed.
        first = (info.id if info else 0) * self._per_worker
        for slot in range(first, first + self._per_worker):
            if self.states[slot] == FREE and rows <= self.batches.shape[1]:
                self.states[slot] = TAKEN
                return Filling(self, slot, rows) if info else self.open(slot, rows)
        return self.batches.new_empty((rows, *self.batches.shape[2:]))

    def open(self, slot: int, rows: int) -> torch.Tensor:
        """The batch in a slot, which is free again when nothing refers to it any more."""
        view: np.ndarray[Any, Any] = self.batches[slot, :rows].numpy()
        # The tensor's storage holds this array until the storage ends.
        weakref.finalize(view, self.states.__setitem__, slot, FREE).atexit = False
        return torch.from_numpy(view)


class Filling:
    """A slot that a worker fills and sends: pickled as its number, it arrives as the tensor."""

    def __init__(self, slots: Slots, slot: int, rows: int) -> None:
        self.tensor = slots.batches[slot, :rows]
        self._place = (slots.name, slot, rows)

    def __reduce__(self) -> tuple[Callable[..., torch.Tensor], tuple[str, int, int]]:
        return _open, self._place


def _open(name: str, slot: int, rows: int) -> torch.Tensor:
    return _BY_NAME[name].open(slot, rows)


class PairDataset(Dataset[Sample]):
    """One split of the prepared data: texts are tokenised early, images are read on request."""

    slots: dict[str, Slots] | None = None  # memory for the tensors of batches, by name
    recorder: stages.Recorder | None = None  # where its workers record their stages

    def __init__(
        self, prepared: Path, split: str, model: Any, loader: LoaderSettings, store: Path | str = ""
    ) -> None:
        """The split as a model (`models.build.Built`) takes it: with its tokenizer for the texts of
        its `column`, its `image_px`, `mean` and `std`. `store`: the folder for `decode: cache`.
        Raises DataError for a split without rows, or a store of other data."""
        self.loader, self.prepared, self.split = loader, prepared, split
        self.image_px, self.mean, self.std = model.image_px, model.mean, model.std
        self.shape = (3, self.image_px, self.image_px)  # of one sample's pixels
        self.finish = Finish(self.mean, self.std)
        self.dtype = getattr(torch, constant_of(loader.decode, "TRANSFER"))
        self._whole_batches = constant_of(loader.decode, "FETCH") == "batch"
        self.images, texts = read_split(prepared, split, model.column)
        self._store = Store(Path(store), split) if store else None
        if self._store:
            self.input_ids, self.attention_mask = self._store.tokens
        else:
            tokens = tokenise(model.tokenizer, texts, loader.max_tokens)
            self.input_ids, self.attention_mask = tokens
        self._tokens = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        self.paths = [prepared / image for image in self.images]
        source = Source(self.paths, self.image_px, loader, self._store)
        # If the host needs pixels that a device would decode, it reads them as `decode: host` does.
        level = "host" if loader.decode == "device" else loader.decode
        self.read = partial(plugins.load(DECODERS, decoder_of(level) or "").read, source)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> Sample:
        """pixel_values (3, px, px), uint8 or float32; input_ids, attention_mask (max_tokens,)."""
        sample = {"pixel_values": self._pixels(row).expand(self.shape)}
        return sample | {name: values[0] for name, values in self.tokens_of([row]).items()}

    @property
    def __getitems__(self) -> Callable[[list[int]], dict[str, Any]] | None:
        """The function that a loader calls for a whole batch; None: it asks for single samples."""
        return self.batch if self._whole_batches else None

    def batch(self, rows: list[int]) -> dict[str, Any]:
        """The samples of these rows as one batch, in a slot if one is free."""
        slots = self.slots or {}
        batch: dict[str, Any] = {}
        for name, (shape, dtype) in self.shapes().items():
            if name in slots:
                batch[name] = slots[name].take(len(rows))
            else:
                batch[name] = torch.empty((len(rows), *shape), dtype=dtype)
        tensors = {n: t.tensor if isinstance(t, Filling) else t for n, t in batch.items()}
        self._fill(tensors["pixel_values"], rows)
        with stages.span("tokenise", len(rows)):
            index = torch.tensor(rows)
            for name, tokens in self._tokens.items():
                torch.index_select(tokens, 0, index, out=tensors[name])
        return batch

    def pixels(self, rows: list[int]) -> torch.Tensor:
        """Only the pixels of these rows, in new memory; several threads may call this."""
        pixels = torch.empty((len(rows), *self.shape), dtype=self.dtype)
        self._fill(pixels, rows)
        return pixels

    def tokens_of(self, rows: list[int]) -> Sample:
        """The parts of a batch of these rows without its pixels."""
        with stages.span("tokenise", len(rows)):
            return {name: tokens[rows] for name, tokens in self._tokens.items()}

    def shapes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of one sample's tensors, by name."""
        tokens = {name: (tuple(rows.shape[1:]), rows.dtype) for name, rows in self._tokens.items()}
        return {"pixel_values": (self.shape, self.dtype)} | tokens

    def _fill(self, batch: torch.Tensor, rows: list[int]) -> None:
        """Write the samples' pixels to `batch`, (rows, 3, h, w) of `dtype`."""
        if self._store and self.dtype == torch.uint8:
            with stages.span("read", len(rows)):
                self._store.gather(rows, batch)
            return
        for sample, row in zip(batch, rows, strict=True):
            pixels = self._pixels(row)
            with stages.span("collate"):
                sample.copy_(pixels)

    def _pixels(self, row: int) -> torch.Tensor:
        """Pixels for the transfer: uint8 (1 or 3, h, w), or finished float32 (3, h, w)."""
        pixels = self.read(row)
        if self.dtype == torch.uint8:
            return pixels
        with stages.span("resize", 0):  # of the sample that the decoder has counted
            return self.finish.pixels(pixels.expand(3, -1, -1)[None])[0]


def read_split(prepared: Path, split: str, column: str) -> tuple[list[str], list[str]]:
    """Images (paths in the prepared folder) and texts (`column`) of a split. Raises DataError."""
    table = pyarrow.parquet.read_table(
        prepared / SAMPLES,
        columns=["image", column],
        filters=[("split", "=", split)],
        # Arrow would wait forever for threads that a memory limit keeps from starting.
        use_threads=False,
        pre_buffer=False,
    )
    if not table.num_rows:
        raise DataError(f"{prepared / SAMPLES}: no rows in split {split!r}")
    return table["image"].to_pylist(), [str(value) for value in table[column].to_pylist()]


def tokenise(
    tokenizer: Tokenizer, texts: list[str], max_tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token numbers and attention mask, each (rows, max_tokens) int64."""
    lengths = {"padding": "max_length", "truncation": True, "max_length": max_tokens}
    tokens = tokenizer(texts, **lengths, return_tensors="pt")
    return tokens["input_ids"], tokens["attention_mask"]


def collate(samples: Sequence[Sample] | dict[str, Any]) -> dict[str, Any]:
    """Stack samples, unless they came as a batch; `return_loss` asks for the contrastive loss."""
    if not isinstance(samples, dict):
        with stages.span("collate", len(samples)):
            samples = {name: torch.stack([s[name] for s in samples]) for name in samples[0]}
    return samples | {"return_loss": True} | stages.stamp()


class EpochOrder(Sampler[int]):
    """All rows in a new order each epoch, which depends only on seed and epoch."""

    def __init__(self, rows: int, seed: int, *, step_samples: int = 1, fill: bool = False) -> None:
        """Rows after the last whole step are left out, or completed (`fill`) from the start."""
        self._rows, self._seed = rows, seed
        steps = math.ceil(rows / step_samples) if fill else rows // step_samples
        self._length = steps * step_samples
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch; without this call, epochs follow one another."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        epoch = self._epoch
        generator = torch.Generator().manual_seed(self._seed + epoch)
        order = torch.randperm(self._rows, generator=generator).tolist()
        yield from itertools.islice(itertools.cycle(order), self._length)
        self._epoch = epoch + 1
