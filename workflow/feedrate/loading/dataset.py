"""Image-text pairs of a prepared dataset: their batches, reused memory and order."""

import itertools
import os
import threading
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
from feedrate.loading import stages
from feedrate.loading.decoders import Source, decoders, fetch_of, first, transfer_of
from feedrate.loading.decoders.cache import Store
from feedrate.loading.pixels import Augmentation, Draw, Finish, Statistics

Tokenizer = Callable[..., Any]
Sample = dict[str, torch.Tensor]


class SharedMemoryError(Exception):
    """The host lacks shared memory for the slots; the message says how much they need."""


FREE, TAKEN = 0, 1
_TAKING = threading.Lock()
"""Held while a thread looks for a free slot."""
_numbers = itertools.count()
_OPEN: "weakref.WeakValueDictionary[str, Slots]" = weakref.WeakValueDictionary()
"""The slots of this process's loaders, by the names that workers send."""


class Slots:
    """Reused memory for batches of one shape, shared between the workers and their rank.

    New shared memory costs a page fault every 4 KiB: 14 ms for a batch of 48 pictures of 294 px,
    but 1 ms in a slot that was used before. A worker fills a slot and sends its number. The rank
    frees the slot when the last tensor that refers to it is gone.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, workers: int, each: int) -> None:
        """Reserve `each` slots for each worker (without workers, for the rank itself); `shape` is
        that of a full batch. Raises SharedMemoryError."""
        count = max(1, workers) * each
        self._each = each
        size = count * int(np.prod(shape)) * dtype.itemsize
        try:  # reserved without writing to it; moving a tensor there would write
            storage = torch.UntypedStorage._new_shared(size) if workers else None
        except RuntimeError as error:
            raise SharedMemoryError(f"{size / 2**20:,.0f} MiB") from error
        storage = storage or torch.UntypedStorage(size)
        self.batches = torch.empty(0, dtype=dtype).set_(storage, 0, (count, *shape))  # type: ignore[call-overload]
        self.states = torch.zeros(count, dtype=torch.uint8)
        if workers:
            self.states.share_memory_()
        self.name = f"{os.getpid()}/{next(_numbers)}"
        _OPEN[self.name] = self

    def take(self, rows: int) -> "torch.Tensor | Filling":
        """Memory for a batch of `rows`: a free slot, or else a new tensor. In a worker a slot is a
        Filling, which is sent once its tensor is filled."""
        info = get_worker_info()
        first = (info.id if info else 0) * self._each
        with _TAKING:
            for slot in range(first, min(first + self._each, len(self.states))):
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
        self._sent = (slots.name, slot, rows)

    def __reduce__(self) -> tuple[Callable[..., torch.Tensor], tuple[str, int, int]]:
        return _open, self._sent


def _open(name: str, slot: int, rows: int) -> torch.Tensor:
    return _OPEN[name].open(slot, rows)


class PairDataset(Dataset[Sample]):
    """One split of the prepared data: texts are tokenised in advance, images are read on request.

    A sample's number is its row, or epoch * rows + row if an augmentation must know the epoch.
    """

    slots: dict[str, Slots] | None = None
    """Memory for the tensors of batches by their names, if their loader reuses memory."""
    recorder: stages.Recorder | None = None
    """Where its workers record their stages."""

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
        """`loader` says how images are read (None: the defaults); `column` holds a row's text;
        `seed` is that of the augmentation; `store` is the folder for `decode: cache`. Raises
        DataError if the split has no rows, or if the store was made from other data."""
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
        source = Source(
            self.paths, image_px, self.loader.scaled_decode, opened, self.loader.storage
        )
        # If the host needs pixels that a device would decode, it reads them as `decode: host` does.
        level = "host" if self.loader.decode == "device" else self.loader.decode
        self.read = first(decoders(level), lambda decoder: partial(decoder.read, source))
        self._store = opened if opened and opened.side_px == image_px else None

    def __len__(self) -> int:
        """Pairs in the split."""
        return len(self.images)

    def __getitem__(self, number: int) -> Sample:
        """pixel_values (3, image_px, image_px), float32 (normalised) or uint8; input_ids and
        attention_mask (max_tokens,); colour (3,) if the device changes colours."""
        stages.begin_batch()
        (row,), (draw,) = self.rows_and_draws([number])
        sample = {"pixel_values": self._pixels(row, draw).expand(self.shape)}
        with stages.span("tokenise"):
            sample |= {name: tokens[row] for name, tokens in self._tokens.items()}
        return sample | self._left_to_device([draw], one=True)

    def rows_and_draws(self, numbers: Sequence[int]) -> tuple[list[int], list[Draw]]:
        """The rows of these numbers, and the augmentation of each."""
        pairs = [divmod(number, len(self)) for number in numbers]
        return [row for _, row in pairs], [self.augmentation.draw(*pair) for pair in pairs]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one sample's pixels."""
        return (3, self.image_px, self.image_px)

    @property
    def __getitems__(self) -> Callable[[list[int]], dict[str, Any]] | None:
        """The function that a loader calls for a whole batch; None: it asks for single samples."""
        return self.batch if self._whole_batches else None

    def batch(self, numbers: list[int]) -> dict[str, Any]:
        """The samples of these numbers as one batch, in a slot if one is free."""
        stages.begin_batch()
        rows, draws = self.rows_and_draws(numbers)
        batch, room = self._memory(len(rows))
        self._fill(room["pixel_values"], rows, draws)
        with stages.span("tokenise", len(rows)):
            chosen = torch.tensor(rows)
            for name, tokens in self._tokens.items():
                torch.index_select(tokens, 0, chosen, out=room[name])
        return batch | self._left_to_device(draws)

    def pixels(self, numbers: list[int]) -> torch.Tensor:
        """Only the pixels of these numbers, in new memory; several threads may call this."""
        room = torch.empty((len(numbers), *self.shape), dtype=self.dtype)
        self._fill(room, *self.rows_and_draws(numbers))
        return room

    def rest_of(self, numbers: list[int]) -> dict[str, Any]:
        """What a batch of these numbers has beside its pixels."""
        rows, draws = self.rows_and_draws(numbers)
        with stages.span("tokenise", len(rows)):
            tokens = {name: tokens[rows] for name, tokens in self._tokens.items()}
        return tokens | self._left_to_device(draws)

    def _fill(self, room: torch.Tensor, rows: list[int], draws: list[Draw]) -> None:
        """Write the rows' pixels to `room`, (rows, 3, h, w) of `dtype`."""
        if self._store and self.dtype == torch.uint8 and not self.augmentation.min_area:
            with stages.span("read", len(rows)):
                self._store.gather(rows, room)
                for place in (place for place, draw in enumerate(draws) if draw.flip):
                    room[place] = room[place].flip(-1)
            return
        for place, row, draw in zip(room, rows, draws, strict=True):
            pixels = self._pixels(row, draw)
            with stages.span("collate"):
                place.copy_(pixels)

    @property
    def _tokens(self) -> Sample:
        """The tokens of all rows; they were made when the dataset was opened."""
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}

    def shapes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of one sample's large tensors, by name."""
        tokens = {name: (tuple(all_.shape[1:]), all_.dtype) for name, all_ in self._tokens.items()}
        return {"pixel_values": (self.shape, self.dtype)} | tokens

    def _memory(self, rows: int) -> tuple[dict[str, Any], Sample]:
        """Memory for a batch: what the loader returns or sends, and the tensors to fill."""
        slots = self.slots or {}
        taken = {
            name: slots[name].take(rows)
            if name in slots
            else torch.empty((rows, *shape), dtype=dtype)
            for name, (shape, dtype) in self.shapes().items()
        }
        room = {n: t.tensor if isinstance(t, Filling) else t for n, t in taken.items()}
        return taken, room

    def _pixels(self, row: int, draw: Draw) -> torch.Tensor:
        """A row's pixels for the transfer: uint8 (1 or 3, h, w), or finished float32 (3, h, w)."""
        pixels = self.read(row, draw)
        if self.dtype == torch.uint8 and not draw.flip:
            return pixels
        with stages.span("resize", 0):  # of the sample that the decoder has counted
            if draw.flip:
                pixels = pixels.flip(-1)
            if self.dtype == torch.uint8:
                return pixels
            colour = torch.tensor([draw.colour]) if self.augmentation.jitter else None
            return self.finish.pixels(pixels.expand(3, -1, -1)[None], colour)[0]

    def _left_to_device(self, draws: list[Draw], *, one: bool = False) -> Sample:
        """The draws that the device needs to finish uint8 pixels."""
        if not self.augmentation.jitter or self.dtype != torch.uint8:
            return {}
        colour = torch.tensor([draw.colour for draw in draws])
        return {"colour": colour[0] if one else colour}


def read_split(prepared: Path, split: str, column: str) -> tuple[list[str], list[str]]:
    """Images (paths in the prepared folder) and texts (of `column`) of a split's rows.

    Raises DataError if there are none.
    """
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
    tokens = tokenizer(
        texts,
        padding="max_length",
        truncation=True,
        max_length=max_tokens,
        return_tensors="pt",
    )
    return tokens["input_ids"], tokens["attention_mask"]


def without_chance(loader: LoaderSettings) -> LoaderSettings:
    """The same settings without augmentation, for evaluation; its storage is not
    measured."""
    plain = {"random_crop": 0.0, "random_flip": False, "colour_jitter": 0.0}
    return msgspec.structs.replace(loader, storage=msgspec.UNSET, **plain)


def collate(samples: Sequence[Sample] | dict[str, Any]) -> dict[str, Any]:
    """Stack samples, unless they came as a batch; `return_loss` asks the model for its contrastive
    loss, as in the published script."""
    if not isinstance(samples, dict):
        with stages.span("collate", len(samples)):
            samples = {name: torch.stack([one[name] for one in samples]) for name in samples[0]}
    return samples | {"return_loss": True} | stages.stamp()


class EpochOrder(Sampler[int]):
    """All rows in a new order each epoch. The order depends only on seed and epoch. The Trainer
    distributes the batches to its ranks."""

    def __init__(
        self, rows: int, seed: int, *, numbered: bool, a_step: int = 1, fill: bool = False
    ) -> None:
        """`numbered`: the dataset must know a sample's epoch. Samples that remain after whole steps
        of `a_step` samples are left out of the epoch; with `fill`, samples from its start complete
        their step."""
        self._rows, self._seed, self._numbered = rows, seed, numbered
        self._taken = (-(-rows // a_step) if fill else rows // a_step) * a_step
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch; without this call, epochs follow one another."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self._taken

    def __iter__(self) -> Iterator[int]:
        """One epoch."""
        epoch = self._epoch
        order = shuffled(self._rows, self._seed, epoch, numbered=self._numbered)
        yield from itertools.islice(itertools.cycle(order), self._taken)
        self._epoch = epoch + 1


def shuffled(rows: int, seed: int, epoch: int, *, numbered: bool) -> list[int]:
    """The samples of an epoch in random order. Each is its row or, if `numbered`, epoch * rows +
    row; that tells a worker the epoch, no matter when it started."""
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(rows, generator=generator)
    return (order + epoch * rows if numbered else order).tolist()
