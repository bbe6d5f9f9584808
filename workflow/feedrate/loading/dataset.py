"""Image-text pairs of a prepared dataset: their batches, reused memory and order."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import torch
from torch.utils.data import Dataset, Sampler

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import CAPTION, SAMPLES, DataError
from feedrate.loading import stages
from feedrate.loading.decoders import Source, decoders, fetch_of, first, transfer_of
from feedrate.loading.decoders.cache import Store
from feedrate.loading.pixels import Augmentation, Draw, Finish, Statistics
from feedrate.loading.slots import Filling, Slots

Tokenizer = Callable[..., Any]
Sample = dict[str, torch.Tensor]


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
        image_px: int,
        mean: Statistics,
        std: Statistics,
        loader: LoaderSettings,
        column: str = CAPTION,
        seed: int = 0,
        store: Path | None = None,
    ) -> None:
        """`column` holds a row's text; `seed` is the augmentation's; `store` is the folder for
        `decode: cache`. Raises DataError for a split without rows, or a store of other data."""
        self.loader, self.prepared, self.split = loader, prepared, split
        self.image_px, self.mean, self.std = image_px, mean, std
        self.shape = (3, image_px, image_px)  # of one sample's pixels
        ranges = loader.random_crop, loader.random_flip, loader.colour_jitter
        self.augmentation = Augmentation(seed, *ranges)
        self.finish = Finish(mean, std)
        self.dtype = torch.uint8 if transfer_of(loader) == "uint8" else torch.float32
        self._whole_batches = fetch_of(loader) == "batch"
        self.images, texts = read_split(prepared, split, column)
        opened = Store(store, split) if store else None
        self.input_ids, self.attention_mask = (
            opened.tokens if opened else tokenise(tokenizer, texts, loader.max_tokens)
        )
        self._tokens = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        self.paths = [prepared / image for image in self.images]
        source = Source(self.paths, image_px, loader, opened)
        # If the host needs pixels that a device would decode, it reads them as `decode: host` does.
        level = "host" if loader.decode == "device" else loader.decode
        self.read = first(decoders(level), lambda decoder: partial(decoder.read, source))
        self._store = opened if opened and opened.side_px == image_px else None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Sample:
        """pixel_values (3, image_px, image_px), float32 (normalised) or uint8; input_ids and
        attention_mask (max_tokens,); colour (3,) if the device changes colours."""
        sample = {"pixel_values": self._pixels(number).expand(self.shape)}
        return sample | {name: values[0] for name, values in self.rest_of([number]).items()}

    def rows(self, numbers: Sequence[int]) -> list[int]:
        """The rows of these numbers."""
        return [number % len(self) for number in numbers]

    def draw(self, number: int) -> Draw:
        """The augmentation of a number."""
        return self.augmentation.draw(*divmod(number, len(self)))

    @property
    def __getitems__(self) -> Callable[[list[int]], dict[str, Any]] | None:
        """The function that a loader calls for a whole batch; None: it asks for single samples."""
        return self.batch if self._whole_batches else None

    def batch(self, numbers: list[int]) -> dict[str, Any]:
        """The samples of these numbers as one batch, in a slot if one is free."""
        slots, rows = self.slots or {}, len(numbers)
        batch: dict[str, Any] = {
            name: slots[name].take(rows)
            if name in slots
            else torch.empty((rows, *shape), dtype=dtype)
            for name, (shape, dtype) in self.shapes().items()
        }
        room = {n: t.tensor if isinstance(t, Filling) else t for n, t in batch.items()}
        self._fill(room["pixel_values"], numbers)
        with stages.span("tokenise", rows):
            chosen = torch.tensor(self.rows(numbers))
            for name, tokens in self._tokens.items():
                torch.index_select(tokens, 0, chosen, out=room[name])
        return batch | self._left_to_device(numbers)

    def pixels(self, numbers: list[int]) -> torch.Tensor:
        """Only the pixels of these numbers, in new memory; several threads may call this."""
        room = torch.empty((len(numbers), *self.shape), dtype=self.dtype)
        self._fill(room, numbers)
        return room

    def rest_of(self, numbers: list[int]) -> dict[str, Any]:
        """The parts of a batch of these numbers, without its pixels."""
        rows = self.rows(numbers)
        with stages.span("tokenise", len(rows)):
            tokens = {name: tokens[rows] for name, tokens in self._tokens.items()}
        return tokens | self._left_to_device(numbers)

    def _fill(self, room: torch.Tensor, numbers: list[int]) -> None:
        """Write the samples' pixels to `room`, (rows, 3, h, w) of `dtype`."""
        if self._store and self.dtype == torch.uint8 and not self.augmentation.min_area:
            with stages.span("read", len(numbers)):
                self._store.gather(self.rows(numbers), room)
                flipped = numbers if self.augmentation.flip else []
                for place in (i for i, number in enumerate(flipped) if self.draw(number).flip):
                    room[place] = room[place].flip(-1)
            return
        first = self.slots["pixel_values"].first if self.slots else None
        if first and first.fill(room, numbers, self._write):
            return
        for place, number in zip(room, numbers, strict=True):
            if first:
                first.help(self._write)
            self._write(place, number)

    def _write(self, place: torch.Tensor, number: int) -> None:
        with stages.sample():
            pixels = self._pixels(number)
            with stages.span("collate"):
                place.copy_(pixels)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of one sample's large tensors, by name."""
        tokens = {name: (tuple(all_.shape[1:]), all_.dtype) for name, all_ in self._tokens.items()}
        return {"pixel_values": (self.shape, self.dtype)} | tokens

    def _pixels(self, number: int) -> torch.Tensor:
        """Pixels for the transfer: uint8 (1 or 3, h, w), or finished float32 (3, h, w)."""
        draw = self.draw(number)
        pixels = self.read(number % len(self), draw)
        if self.dtype == torch.uint8 and not draw.flip:
            return pixels
        with stages.span("resize", 0):  # of the sample that the decoder has counted
            if draw.flip:
                pixels = pixels.flip(-1)
            if self.dtype == torch.uint8:
                return pixels
            colour = torch.tensor([draw.colour]) if self.augmentation.jitter else None
            return self.finish.pixels(pixels.expand(3, -1, -1)[None], colour)[0]

    def _left_to_device(self, numbers: Sequence[int]) -> Sample:
        """The draws that the device needs to finish uint8 pixels."""
        if not self.augmentation.jitter or self.dtype != torch.uint8:
            return {}
        return {"colour": torch.tensor([self.draw(number).colour for number in numbers])}


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


def without_chance(loader: LoaderSettings) -> LoaderSettings:
    """The same settings without augmentation, for evaluation."""
    plain = {"random_crop": 0.0, "random_flip": False, "colour_jitter": 0.0}
    return msgspec.structs.replace(loader, **plain)


def collate(samples: Sequence[Sample] | dict[str, Any]) -> dict[str, Any]:
    """Stack samples, unless they came as a batch; `return_loss` asks for the contrastive loss."""
    if not isinstance(samples, dict):
        with stages.span("collate", len(samples)):
            samples = {name: torch.stack([one[name] for one in samples]) for name in samples[0]}
    return samples | {"return_loss": True} | stages.stamp()


class EpochOrder(Sampler[int]):
    """All rows in a new order each epoch, which depends only on seed and epoch."""

    def __init__(
        self, rows: int, seed: int, *, numbered: bool, a_step: int = 1, fill: bool = False
    ) -> None:
        """`numbered`: as of `shuffled`. Samples that remain after whole steps of `a_step` samples
        are left out; with `fill`, samples from the epoch's start complete their step."""
        self._rows, self._seed, self._numbered = rows, seed, numbered
        self._taken = (-(-rows // a_step) if fill else rows // a_step) * a_step
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch; without this call, epochs follow one another."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._taken

    def __iter__(self) -> Iterator[int]:
        epoch = self._epoch
        order = shuffled(self._rows, self._seed, epoch, numbered=self._numbered)
        yield from itertools.islice(itertools.cycle(order), self._taken)
        self._epoch = epoch + 1


def shuffled(rows: int, seed: int, epoch: int, *, numbered: bool) -> list[int]:
    """The samples of an epoch in random order: rows, or epoch * rows + row if `numbered`."""
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(rows, generator=generator)
    return (order + epoch * rows if numbered else order).tolist()
