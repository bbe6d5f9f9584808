"""Image-text pairs of a prepared dataset, and their batches."""

import itertools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet
import torch
from torch.utils.data import Dataset, Sampler, get_worker_info

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import CAPTION, SAMPLES, DataError
from feedrate.loading.augment import Augmentation, Draw
from feedrate.loading.decoders.cache import Store
from feedrate.loading.levels import Source, decoders, fetch_of, first, transfer_of
from feedrate.loading.pixels import Finish, Statistics

# Memory for batches that is used again and again, shared between workers and their rank.
# Fresh shared memory costs a page fault every 4 KiB: 14 ms for a batch of 48 pictures of 294
# px, against 1 ms for a slot that was used before. A worker fills a slot and sends its number;
# the rank gives the slot back when the last tensor that looks into it is gone.

_numbers = itertools.count()
_OPEN: "weakref.WeakValueDictionary[str, Slots]" = weakref.WeakValueDictionary()
"""The slots of this process's loaders, by name: where the numbers that workers send lead."""

FREE, TAKEN = 0, 1


class SharedMemoryError(Exception):
    """The host has not the shared memory that slots need; the message says how much that is."""


class Slots:
    """So many batches of one shape for each worker (or for the rank itself, without workers)."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, workers: int, each: int) -> None:
        """`shape` is a full batch's; `each` slots a worker. Shared memory is reserved at once.

        A worker that finds none free makes a fresh tensor, as loaders do that have no slots.
        Raises SharedMemoryError.
        """
        count = max(1, workers) * each
        self._each = each
        size = count * int(np.prod(shape)) * dtype.itemsize
        storage = _shared(size) if workers else torch.UntypedStorage(size)
        self.batches = torch.empty(0, dtype=dtype).set_(storage, 0, (count, *shape))  # type: ignore[call-overload]
        self.states = torch.zeros(count, dtype=torch.uint8)
        if workers:
            self.states.share_memory_()
        self.name = f"{os.getpid()}/{next(_numbers)}"
        _OPEN[self.name] = self

    def take(self, rows: int) -> "torch.Tensor | Filling":
        """Room for a batch of `rows`; a worker sends what `Filling.tensor` was filled with."""
        info = get_worker_info()
        first = (info.id if info else 0) * self._each
        for slot in range(first, min(first + self._each, len(self.states))):
            if self.states[slot] == FREE and rows <= self.batches.shape[1]:
                self.states[slot] = TAKEN
                return Filling(self, slot, rows) if info else self.open(slot, rows)
        return self.batches.new_empty((rows, *self.batches.shape[2:]))

    def open(self, slot: int, rows: int) -> torch.Tensor:
        """The batch in a slot; the slot is free again when nothing looks into it any more."""
        view: np.ndarray[Any, Any] = self.batches[slot, :rows].numpy()
        # The tensor's storage holds this very array until the storage's own end.
        weakref.finalize(view, self._free, slot).atexit = False
        return torch.from_numpy(view)

    def _free(self, slot: int) -> None:
        self.states[slot] = FREE


def _shared(size: int) -> torch.UntypedStorage:
    """Shared memory, filled with nothing, unlike a tensor that is moved there."""
    try:
        return torch.UntypedStorage._new_shared(size)
    except RuntimeError as error:
        raise SharedMemoryError(f"{size / 2**20:,.0f} MiB") from error


class Filling:
    """A slot on its way from a worker: what is sent is its number, what arrives the tensor."""

    def __init__(self, slots: Slots, slot: int, rows: int) -> None:
        self.tensor = slots.batches[slot, :rows]
        self._sent = (slots.name, slot, rows)

    def __reduce__(self) -> tuple[Callable[..., torch.Tensor], tuple[str, int, int]]:
        return _open, self._sent


def _open(name: str, slot: int, rows: int) -> torch.Tensor:
    return _OPEN[name].open(slot, rows)


Tokenizer = Callable[..., Any]
Sample = dict[str, torch.Tensor]


class PairDataset(Dataset[Sample]):
    """One split of the prepared data: texts tokenised at once, images read when asked for.

    A sample's number is its row, or epoch * rows + row where an augmentation must know the epoch.
    """

    slots: Slots | None = None
    """Where batches go, if their loader uses memory again."""

    def __init__(
        self,
        prepared: Path,
        split: str,
        tokenizer: Tokenizer,
        *,
        max_tokens: int,
        image_px: int,
        mean: Statistics,
        std: Statistics,
        loader: LoaderSettings | None = None,
        column: str = CAPTION,
        seed: int = 0,
        store: Path | None = None,
    ) -> None:
        """`loader` says how images are read (None: the defaults), `column` where a row's text
        stands, `seed` what is drawn for an augmentation; `store` is the folder of the level
        `cache`. Raises DataError where the split has no rows, or the store is not this data's."""
        self.loader = loader or LoaderSettings(max_tokens=max_tokens)
        self.prepared, self.split = prepared, split
        self.image_px, self.mean, self.std = image_px, mean, std
        self.augmentation = Augmentation.of(self.loader, seed)
        self.finish = Finish(mean, std)
        self.dtype = torch.uint8 if transfer_of(self.loader) == "uint8" else torch.float32
        self._whole_batches = fetch_of(self.loader) == "batch"
        self.images, texts = read_split(prepared, split, column)
        opened = Store(store, split) if store else None
        self.input_ids, self.attention_mask = (
            opened.tokens if opened else tokenise(tokenizer, texts, max_tokens)
        )
        self.paths = [prepared / image for image in self.images]
        source = Source(self.paths, image_px, self.loader.scaled_decode, opened)
        # What a device decodes is read as on the level `host` if the host needs it.
        level = "host" if self.loader.decode == "device" else self.loader.decode
        self.read = first(decoders(level), lambda decoder: partial(decoder.read, source))

    def __len__(self) -> int:
        """Pairs in the split."""
        return len(self.images)

    def __getitem__(self, number: int) -> Sample:
        """pixel_values (3, image_px, image_px), float32 (normalised) or uint8; input_ids and
        attention_mask (max_tokens,); where colours vary and are left to the device, colour (3,)."""
        epoch, row = divmod(number, len(self))
        draw = self.augmentation.draw(epoch, row)
        sample = {
            "pixel_values": self._pixels(row, draw).expand(self.shape),
            "input_ids": self.input_ids[row],
            "attention_mask": self.attention_mask[row],
        }
        return sample | self._left_to_device([draw], one=True)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one sample's pixels."""
        return (3, self.image_px, self.image_px)

    @property
    def __getitems__(self) -> Callable[[list[int]], dict[str, Any]] | None:
        """What a loader calls to have a whole batch; None: it is to ask for single samples."""
        return self.batch if self._whole_batches else None

    def batch(self, numbers: list[int]) -> dict[str, Any]:
        """The samples of these numbers as one batch, in a slot where there is one free."""
        if self.slots is None:
            return self._batch(numbers, torch.empty((len(numbers), *self.shape), dtype=self.dtype))
        taken = self.slots.take(len(numbers))
        room = taken.tensor if isinstance(taken, Filling) else taken
        return self._batch(numbers, room) | {"pixel_values": taken}

    def _batch(self, numbers: list[int], room: torch.Tensor) -> dict[str, Any]:
        """Fill `room` (n, 3, image_px, image_px) and add the rest of the batch."""
        rows = [number % len(self) for number in numbers]
        draws = [self.augmentation.draw(*divmod(number, len(self))) for number in numbers]
        for place, row, draw in zip(room, rows, draws, strict=True):
            place.copy_(self._pixels(row, draw))
        return {
            "pixel_values": room,
            "input_ids": self.input_ids[rows],
            "attention_mask": self.attention_mask[rows],
        } | self._left_to_device(draws)

    def _pixels(self, row: int, draw: Draw) -> torch.Tensor:
        """A row's pixels as they are transferred: uint8 (1 or 3, …), or finished float32 (3, …)."""
        pixels = self.read(row, draw)
        if draw.flip:
            pixels = pixels.flip(-1)
        if self.dtype == torch.uint8:
            return pixels
        colour = torch.tensor([draw.colour]) if self.augmentation.jitter else None
        return self.finish.pixels(pixels.expand(3, -1, -1)[None], colour)[0]

    def _left_to_device(self, draws: list[Draw], *, one: bool = False) -> Sample:
        """What the device needs to finish uint8 pixels."""
        if not self.augmentation.jitter or self.dtype != torch.uint8:
            return {}
        colour = torch.tensor([draw.colour for draw in draws])
        return {"colour": colour[0] if one else colour}


def read_split(prepared: Path, split: str, column: str) -> tuple[list[str], list[str]]:
    """Images (paths under the prepared folder) and texts (of `column`) of a split's rows.

    Raises DataError where there are none.
    """
    table = pyarrow.parquet.read_table(
        prepared / SAMPLES,
        columns=["image", column],
        filters=[("split", "=", split)],
        # Where a limit on memory keeps Arrow's threads from starting, it would wait for them.
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
    tokens = tokenizer(
        texts,
        padding="max_length",
        truncation=True,
        max_length=max_tokens,
        return_tensors="pt",
    )
    return tokens["input_ids"], tokens["attention_mask"]


def without_chance(loader: LoaderSettings) -> LoaderSettings:
    """The same with no augmentation: what is evaluated is not changed."""
    return msgspec.structs.replace(loader, random_crop=0.0, random_flip=False, colour_jitter=0.0)


def collate(samples: Sequence[Sample] | dict[str, Any]) -> dict[str, Any]:
    """Stack samples, unless they came as a batch; `return_loss` asks the model for its contrastive
    loss, as in the script."""
    if isinstance(samples, dict):
        return samples | {"return_loss": True}
    batch: dict[str, Any] = {
        name: torch.stack([sample[name] for sample in samples]) for name in samples[0]
    }
    batch["return_loss"] = True
    return batch


# The order of the samples: a function of seed and epoch alone.


def shuffled(rows: int, seed: int, epoch: int, *, numbered: bool) -> list[int]:
    """The samples of an epoch, each once: its row or, `numbered`, epoch * rows + row.

    Such a number tells a worker the epoch too, whenever the worker was started.
    """
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(rows, generator=generator)
    return (order + epoch * rows if numbered else order).tolist()


class EpochOrder(Sampler[int]):
    """All rows in a new order each epoch; the Trainer shares the batches out to its ranks."""

    def __init__(self, rows: int, seed: int, *, numbered: bool, a_step: int = 1) -> None:
        """`numbered`: the dataset must know a sample's epoch (see `shuffled`). What is left of an
        epoch after whole steps of `a_step` samples is left out."""
        self._rows, self._seed, self._numbered = rows, seed, numbered
        self._taken = rows // a_step * a_step
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next; without a word they follow one another."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self._taken

    def __iter__(self) -> Iterator[int]:
        """One epoch."""
        epoch = self._epoch
        order = shuffled(self._rows, self._seed, epoch, numbered=self._numbered)
        yield from order[: self._taken]
        self._epoch = epoch + 1
