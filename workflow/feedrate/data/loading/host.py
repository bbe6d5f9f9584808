"""`decode: host`: the Trainer's own loader, whose worker processes decode."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.pairs import PairDataset, WorkerStart, collate
from feedrate.data.loading.path import Batch, Done, LoadingPath, Order, none_done


class HostPath(LoadingPath):
    """Samples are decoded one by one, in worker processes or in the rank's own."""

    decode = "host"
    skips = False

    def __init__(self, settings: LoaderSettings, *, pin_memory: bool) -> None:
        """`pin_memory`: batches lie in page-locked memory."""
        self.round_size = max(1, settings.workers)
        self._settings = settings
        self._pin_memory = pin_memory

    def adopt(self, loader: Any, done: Done = none_done) -> Any:  # noqa: ARG002
        """The same loader, with our start of its workers."""
        loader.worker_init_fn = WorkerStart(loader.worker_init_fn)
        return loader

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
            worker_init_fn=WorkerStart(),
            **options,
        )
        return iter(loader)
