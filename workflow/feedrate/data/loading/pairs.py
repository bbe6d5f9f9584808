"""Image-text pairs of a prepared dataset, and their batches."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
from torch.utils.data import Dataset

from feedrate.data.loading.pixels import crop_centre, decode, normalise, resize
from feedrate.data.manifest import SAMPLES, DataError
from feedrate.devices.leash import die_with_parent

Tokenizer = Callable[..., Any]
Statistics = tuple[float, float, float]
Sample = dict[str, torch.Tensor]


class PairDataset(Dataset[Sample]):
    """One split of the prepared data: captions tokenised at once, images decoded when asked for."""

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
        column: str = "caption",
    ) -> None:
        """The text of a row stands in `column`. Raises DataError where the split has no rows."""
        table = pyarrow.parquet.read_table(
            prepared / SAMPLES,
            columns=["image", column],
            filters=[("split", "=", split)],
        )
        if not table.num_rows:
            raise DataError(f"{prepared / SAMPLES}: no rows in split {split!r}")
        self.images: list[str] = table["image"].to_pylist()
        self.captions: list[str] = [str(value) for value in table[column].to_pylist()]
        tokens = tokenizer(
            self.captions,
            padding="max_length",
            truncation=True,
            max_length=max_tokens,
            return_tensors="pt",
        )
        self.input_ids: torch.Tensor = tokens["input_ids"]
        self.attention_mask: torch.Tensor = tokens["attention_mask"]
        self.prepared = prepared
        self.image_px = image_px
        self.mean, self.std = mean, std
        self._mean = torch.tensor(mean).view(3, 1, 1)
        self._std = torch.tensor(std).view(3, 1, 1)

    def __len__(self) -> int:
        """Pairs in the split."""
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        """pixel_values (3, image_px, image_px) float32; input_ids, attention_mask (max_tokens,)."""
        pixels = resize(decode(self.prepared / self.images[index]), self.image_px)
        return {
            "pixel_values": normalise(crop_centre(pixels, self.image_px), self._mean, self._std),
            "input_ids": self.input_ids[index],
            "attention_mask": self.attention_mask[index],
        }


def collate(samples: Sequence[Sample]) -> dict[str, Any]:
    """Stack samples; `return_loss` asks the model for its contrastive loss, as in the script."""
    batch: dict[str, Any] = {
        name: torch.stack([sample[name] for sample in samples]) for name in samples[0]
    }
    batch["return_loss"] = True
    return batch


class WorkerStart:
    """`worker_init_fn` of the loaders: one thread a worker, and no worker outlives its rank."""

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        """`then` is called last: the Trainer's own seeding."""
        self._then = then

    def __call__(self, worker: int) -> None:
        """Prepare the worker process."""
        die_with_parent()
        # More threads would fight for the rank's cores, and a pool forked after use can hang.
        torch.set_num_threads(1)
        if self._then is not None:
            self._then(worker)
