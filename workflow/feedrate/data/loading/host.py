"""`decode: reference`, `host` and `cache`: the Trainer's own loader, whose workers make batches."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.pairs import PairDataset, collate
from feedrate.data.loading.path import HELD_BATCHES, Batch, Done, LoadingPath, Order, none_done
from feedrate.data.loading.workers import equip


class HostPath(LoadingPath):
    """Batches come from worker processes or from the rank's own; the dataset reads the pixels."""

    skips = False

    def __init__(
        self, settings: LoaderSettings, *, pin_memory: bool, held_batches: int = HELD_BATCHES
    ) -> None:
        """`pin_memory`: batches lie in page-locked memory; `held_batches`: see `open_path`."""
        self.decode = settings.decode
        self.round_size = max(1, settings.workers)
        self._settings = settings
        self._pin_memory = pin_memory
        self._held_batches = held_batches

    def adopt(self, loader: Any, done: Done = none_done) -> Any:  # noqa: ARG002
        """The same loader, with our start of its workers and memory for its batches."""
        return equip(loader, self._settings, held=self._held_batches)

    def batches(self, dataset: PairDataset, order: Order) -> Iterator[Batch]:
        """Batches on the host, from as many workers as the settings say."""
        options: dict[str, Any] = {}
        if self._settings.workers:
            options["prefetch_factor"] = self._settings.prefetch_factor
        loader = DataLoader(
            dataset,
            batch_sampler=order,
            collate_fn=collate,
            num_workers=self._settings.workers,
            pin_memory=self._pin_memory,
            **options,
        )
        # A generator, so that the loader and its memory live as long as its batches come.
        yield from equip(loader, self._settings, held=self._held_batches)
