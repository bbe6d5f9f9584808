"""torchdata.nodes of PyTorch: composable iterators, https://github.com/meta-pytorch/data."""

from collections.abc import Iterator

from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher

from feedrate_loaders.libraries._feed import Made, Work

PACKAGES = ("torchdata",)
INSTALL = "pip install --no-deps -r extras/loaders/requirements/torchdata.lock"
FORMS = {"same": ("reference", "host", "cache")}


def same(work: Work) -> Iterator[Made]:
    """Each thread makes a batch with the run's decode function; without workers, this one does."""
    order = IterableWrapper(work.order)
    batches = ParallelMapper(order, work.make, num_workers=work.workers, method="thread")
    ready = Prefetcher(batches, prefetch_factor=work.ahead) if work.workers else batches
    yield from Loader(ready)
