"""Settings of the loader that do not go together."""

from collections.abc import Iterator

from feedrate.config.settings import LoaderSettings


def loader_faults(loader: LoaderSettings) -> Iterator[str]:
    """What cannot be, each with what is allowed."""
    processes = loader.workers and loader.decode != "device"
    if processes and loader.threads_per_worker > 1 and loader.start_method == "fork":
        # Threads that the rank computes with do not live on in a fork, which waits for them.
        yield (
            f"loader.threads_per_worker: {loader.threads_per_worker} threads hang in a worker that "
            "is forked; use loader.start_method: forkserver or spawn"
        )
