"""Writes the store of pictures decoded for a model (data/manifest.py), for `decode: cache`."""

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.lib.format import open_memmap
from PIL import Image

from feedrate.config.settings import LoaderSettings
from feedrate.config.values import size_text
from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data import manifest
from feedrate.data.manifest import DataError, StoreIndex, StoreSpec
from feedrate.loading.dataset import read_split, tokenise
from feedrate.loading.decoders.host import decode_levels
from feedrate.loading.pixels import crop_levels, decoding
from feedrate.models.build import Built, build_bare

_KEPT_FREE = 0.05  # share of the disk that must stay free


def write_store(
    prepared: Path, spec: StoreSpec, model: Built, out: Path, workers: int
) -> StoreIndex:
    """Make the store in the folder of `out` (index.json), or nothing. Raises DataError if a picture
    cannot be decoded, the disk is too small, or a decoding process is killed."""
    counts = manifest.read_manifest(prepared / manifest.MANIFEST).splits
    filled = (name for name, count in counts.items() if count.rows)
    splits = {name: read_split(prepared, name, model.column) for name in filled}
    names = sorted({name for images, _ in splits.values() for name in images})
    paths = [prepared / name for name in names]
    with replaced_folder(out.parent) as folder:
        size_bytes = _write_pixels(folder, paths, spec, model.image_px, workers)
        position = {name: number for number, name in enumerate(names)}
        for split, (images, texts) in splits.items():
            ids, mask = tokenise(model.tokenizer, texts, spec.max_tokens)
            of_row = np.array([[position[name]] for name in images])
            rows = np.concatenate([of_row, ids.numpy(), mask.numpy()], axis=1).astype(np.int32)
            np.save(folder / f"{split}.npy", rows)
        index = StoreIndex(
            spec=spec,
            manifest=digest_file(prepared / manifest.MANIFEST),
            image_px=model.image_px,
            pictures=len(names),
            size_bytes=size_bytes,
            files={file.name: digest_file(file) for file in sorted(folder.iterdir())},
        )
        write_json(folder / manifest.STORE_INDEX, msgspec.to_builtins(index))
    return index


def _write_pixels(
    folder: Path, paths: Sequence[Path], spec: StoreSpec, side_px: int, workers: int
) -> int:
    """Write the pictures and their table, and return the bytes of all pictures."""
    rows = []
    for path in paths:
        with decoding(path), Image.open(path) as image:  # only the header of its file
            rows.append([0, 1 if image.mode == "L" else 3])
    pictures = np.array(rows)
    ends = np.cumsum(pictures[:, 1] * side_px**2)
    pictures[1:, 0] = ends[:-1]
    size, disk = int(ends[-1]), shutil.disk_usage(folder)
    if size > disk.free - _KEPT_FREE * disk.total:
        raise DataError(
            f"{folder.parent}: the store needs {size_text(size)}, and {size_text(disk.free)} "
            f"of {size_text(disk.total)} are free; use decode: host, or a larger disk"
        )
    print(f"store of {len(paths)} pictures: {size_text(size)}", file=sys.stderr, flush=True)
    open_memmap(folder / manifest.PIXELS, mode="w+", dtype=np.uint8, shape=(size,)).flush()
    np.save(folder / manifest.PICTURES, pictures)
    write = partial(_write_picture, folder / manifest.PIXELS, spec.scaled_decode, side_px)
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
            list(pool.map(write, paths, pictures.tolist(), chunksize=64))  # raises their errors
    except BrokenProcessPool as error:
        raise DataError(
            f"{folder.parent}: a process that decodes pictures for the store was killed"
        ) from error
    return size


def _write_picture(
    pixels_path: Path, scaled: bool, side_px: int, path: Path, place: tuple[int, int]
) -> None:
    """Decode a picture into its place (start and channels); in a process of its own."""
    torch.set_num_threads(1)
    start, channels = place
    with decoding(path):
        levels, size = decode_levels(path, path.read_bytes(), side_px if scaled else None)
    pixels = open_memmap(pixels_path, mode="r+")
    crop = pixels[start : start + channels * side_px**2].reshape(channels, side_px, side_px)
    crop[:] = crop_levels(levels, size, side_px).numpy()


def store_dataset(data: Path, settings: StoreSpec, out: Path) -> None:
    """Write the store `out` (index.json) of the dataset `data` (prepared/manifest.json)."""
    loader = LoaderSettings(max_tokens=settings.max_tokens, label=settings.label)
    model = build_bare(settings.model, loader, data.parent)
    cores = len(os.sched_getaffinity(0))
    index = write_store(data.parent, settings, model, out, workers=cores)
    size = size_text(index.size_bytes)
    print(f"stored {index.pictures} pictures at {index.image_px} px, {size}")
