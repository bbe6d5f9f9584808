"""What each forward pass is asked: a batch that lies ready on the device, or files and captions."""

from collections.abc import Callable

import torch

from feedrate.config.settings import RunSpec
from feedrate.data.loading.pairs import PairDataset, collate, read_split, tokenise
from feedrate.devices.base import Adapter
from feedrate.models.build import Built
from feedrate.train.ceilings import EndlessBatches

Request = dict[str, torch.Tensor]
"""pixel_values (batch, 3, px, px), input_ids and attention_mask (batch, max_tokens), on the
device."""
Requests = Callable[[], Request]
"""Gives the next one; what it takes is part of a pass's time."""

READY = 4
"""Batches that lie ready on the device, taken in turn."""


def make_requests(
    spec: RunSpec, device: Adapter, built: Built, dataset: PairDataset, *, seed: int
) -> Requests:
    """The requests of one rank, as `inference.preprocessing` says; the same for the same seed."""
    prepare = Preparation(spec, device, built, dataset, seed)
    if spec.settings.inference.preprocessing == "in":
        return prepare
    ready = [prepare() for _ in range(READY)]
    device.synchronize()

    def take() -> Request:
        ready.append(ready.pop(0))
        return ready[-1]

    return take


class Preparation:
    """From JPEG files and captions to a batch on the device, all of it done when it is called."""

    def __init__(
        self, spec: RunSpec, device: Adapter, built: Built, dataset: PairDataset, seed: int
    ) -> None:
        self._device, self._dataset = device.device, dataset
        self._tokenizer, self._max_tokens = built.tokenizer, spec.settings.loader.max_tokens
        self._dtype = next(built.model.parameters()).dtype
        self._texts = read_split(dataset.prepared, dataset.split, built.column)[1]
        rows = EndlessBatches(len(dataset), spec.settings.train.batch_size, seed)
        self._rows = iter(rows)

    def __call__(self) -> Request:
        """The next rows: decoded, tokenised, copied, and finished where they are to be used."""
        rows = next(self._rows)
        texts = [self._texts[row] for row in rows]
        tokens, mask = tokenise(self._tokenizer, texts, self._max_tokens)
        batch = self._pixels(rows) | {"input_ids": tokens, "attention_mask": mask}
        placed = {name: value.to(self._device) for name, value in batch.items()}
        finished = self._dataset.finish(placed)
        return finished | {"pixel_values": finished["pixel_values"].to(self._dtype)}

    def _pixels(self, rows: list[int]) -> dict[str, torch.Tensor]:
        dataset = self._dataset
        fetch = dataset.__getitems__
        batch = collate(fetch(rows) if fetch else [dataset[row] for row in rows])
        return {"pixel_values": batch["pixel_values"]}
