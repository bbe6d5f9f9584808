"""`python -m feedrate.train.store`: the store of decoded pictures that `decode: cache` reads.

It is made for a model's size of image and its tokenizer, so the model's builder is asked.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate.config.load import ConfigError, convert_text
from feedrate.config.settings import LoaderSettings
from feedrate.config.store import StoreSpec
from feedrate.data.cli import run_command
from feedrate.data.store_writer import write_store
from feedrate.models.build import ModelError, build_bare


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="feedrate.train.store", description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="prepared/manifest.json")
    parser.add_argument("--settings", required=True, help="a StoreSpec, as a Python literal")
    parser.add_argument("--out", required=True, type=Path, help="the store's index.json")
    options = parser.parse_args(arguments)

    def work() -> str:
        spec = convert_text(options.settings, StoreSpec, f"settings of {options.out}")
        prepared: Path = options.data.parent
        try:
            loader = LoaderSettings(max_tokens=spec.max_tokens, label=spec.label)
            built = build_bare(spec.model, loader, prepared)
        except ModelError as error:
            raise ConfigError(str(error)) from None
        workers = len(os.sched_getaffinity(0))
        tokenizer, side_px = built.tokenizer, built.image_px
        index = write_store(
            prepared, spec, tokenizer, side_px, options.out, workers, column=built.column
        )
        size_mb = index.size_bytes / 1e6
        return f"stored {index.pictures} pictures at {index.image_px} px, {size_mb:.1f} MB"

    return run_command(parser.prog, work, options.out)


if __name__ == "__main__":
    sys.exit(main())
