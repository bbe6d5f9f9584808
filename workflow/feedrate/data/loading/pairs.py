"""Image-text pairs of a prepared dataset, and their batches."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import torch
from torch.utils.data import Dataset

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.augment import Augmentation, Draw
from feedrate.data.loading.finish import Finish, Statistics
from feedrate.data.loading.readers import open_reader
from feedrate.data.loading.slots import Filling, Slots
from feedrate.data.loading.store import Store
from feedrate.data.manifest import CAPTION, SAMPLES, DataError

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
        self.images, texts = read_split(prepared, split, column)
        opened = Store(store, split) if store else None
        self.input_ids, self.attention_mask = (
            opened.tokens if opened else tokenise(tokenizer, texts, max_tokens)
        )
        self.paths = [prepared / image for image in self.images]
        self.read = open_reader(self.loader, self.paths, image_px, opened)

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
        return self.batch if fetch_of(self.loader) == "batch" else None

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


def transfer_of(loader: LoaderSettings) -> str:
    """uint8 or float32: what the settings say, or their level's own."""
    return loader.transfer or ("float32" if loader.decode == "reference" else "uint8")


def fetch_of(loader: LoaderSettings) -> str:
    """The sample or the batch: what the settings say, or their level's own."""
    return loader.fetch or ("sample" if loader.decode == "reference" else "batch")


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
