"""Readers of JPEG files: ours, those of other libraries, and the parts of the work alone."""

import importlib
import io
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import simplejpeg
import torch
from PIL import Image

from benchmarks.drain import PX
from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES
from feedrate.core import plugins
from feedrate.loading.decoders.host import crop_of
from feedrate.loading.pixels import crop_centre, resize_to, resized_size

NO_GPU = -99999
"""nvImageCodec's number of the device: none."""
TINY_PX = 8
"""Side of a picture that has hardly any pixels."""
PARTS = ("decoding alone", "floor", "calls")
"""Readers that do only a part of the work."""

Read = Callable[[list[Path]], list[torch.Tensor]]
"""A reader of pictures: uint8 (1 or 3, PX, PX) each."""


def resized(levels: torch.Tensor) -> torch.Tensor:
    """The centre crop of (c, h, w), by torch's resize of bytes."""
    _, height, width = levels.shape
    return crop_centre(resize_to(levels, resized_size(height, width, PX)), PX)


def usual(path: Path) -> torch.Tensor:
    """simplejpeg and torch's resize of bytes: what a user of a loader library would write."""
    return resized(decoded_only(path).permute(2, 0, 1))


def decoded_only(path: Path) -> torch.Tensor:
    """Only libjpeg-turbo, without a resize: no reader of whole files is faster."""
    data = path.read_bytes()
    grey = simplejpeg.decode_jpeg_header(data)[2] == "Gray"
    return torch.from_numpy(simplejpeg.decode_jpeg(data, "GRAY" if grey else "RGB"))


def pillow(path: Path) -> torch.Tensor:
    """Pillow alone, in bytes: the decoder of WebDataset and LitData."""
    with Image.open(path) as opened:
        image = opened if opened.mode == "L" else opened.convert("RGB")
        height, width = resized_size(image.height, image.width, PX)
        small = np.array(image.resize((width, height), Image.Resampling.BICUBIC))
    return crop_centre(torch.from_numpy(np.atleast_3d(small)).permute(2, 0, 1), PX)


def torchvision(path: Path) -> torch.Tensor:
    """torchvision's own decoder, and its resize, which is torch's."""
    from torchvision.io import decode_image, read_file

    return resized(decode_image(read_file(str(path))))


def of_library(name: str, paths: list[Path]) -> list[torch.Tensor]:
    """The decoder that a library's documentation advises, with one thread; colours are RGB."""
    from feedrate.loading.libraries._feed import Work

    order = [list(range(len(paths)))]
    dataset: Any = SimpleNamespace(paths=paths, image_px=PX, loader=LoaderSettings(decode="host"))
    work = Work(dataset, order, len(paths), workers=1, ahead=1, seed=0, length=1)
    (made,) = plugins.load(LIBRARIES, name).best(work)
    return list(made.pixels)


def floor(path: Path) -> torch.Tensor:
    """What no reader with libjpeg-turbo and torch's resize can do without: the file is decoded, and
    as many pixels as the crop keeps are resized, the first ones, where the decoder left them.

    torch is fast only with 3 or 4 channels, so a grey picture is resized as 4 channels of a quarter
    of its width: the same work.
    """
    levels = decoded_only(path)
    side = min(levels.shape[:2]) // 4 * 4
    shape = (side, side, 3) if levels.shape[2] == 3 else (side, side // 4, 4)
    pixels = levels.flatten()[: side * side * levels.shape[2]].view(1, *shape).permute(0, 3, 1, 2)
    size = [PX, PX * shape[1] // side]
    return torch.nn.functional.interpolate(pixels, size=size, mode="bicubic", antialias=True)[0]


@cache
def tiny(mode: str) -> tuple[Path, bytes]:
    """A file of TINY_PX x TINY_PX in the colours of `mode`."""
    file = io.BytesIO()
    Image.new(mode, (TINY_PX, TINY_PX), "grey").save(file, "JPEG")
    return Path(f"tiny {mode}"), file.getvalue()


def calls(path: Path) -> torch.Tensor:
    """Our work on hardly any pixels, in the file's colours: the time of the calls themselves."""
    grey = simplejpeg.decode_jpeg_header(path.read_bytes())[2] == "Gray"
    return crop_of(*tiny("L" if grey else "RGB"), TINY_PX)


def one_by_one(read: Callable[[Path], torch.Tensor]) -> Read:
    """A reader of several pictures from one of a single picture."""
    return lambda paths: [read(path) for path in paths]


READERS: dict[str, Read] = {
    "feedrate": one_by_one(lambda path: crop_of(path, path.read_bytes(), PX)),
    # Nothing is kept: each picture is decoded to the memory of the one before, as in whole readers.
    "decoding alone": one_by_one(lambda path: decoded_only(path)[:1, :1].clone()),
    "floor": one_by_one(floor),
    "calls": one_by_one(calls),
    "simplejpeg and torch": one_by_one(usual),
    "Pillow": one_by_one(pillow),
    "torchvision": one_by_one(torchvision),
    "SPDL's FFmpeg": partial(of_library, "spdl"),
    "DALI": partial(of_library, "dali"),
}


def opencv(path: Path) -> object:
    """OpenCV's decoder, which also swaps the channels."""
    cv2 = importlib.import_module("cv2")
    return cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR_RGB)


@cache
def nv_image_codec() -> tuple[Any, Any]:
    """nvImageCodec's module, and its decoder on the CPU, with one thread."""
    codec = importlib.import_module("nvidia.nvimgcodec")
    backends = [codec.Backend(codec.CPU_ONLY)]
    return codec, codec.Decoder(device_id=NO_GPU, backends=backends, max_num_cpu_threads=1)


def crop_only(path: Path) -> object:
    """Only the rows and columns that the crop keeps, the one decoder here that can do so."""
    codec, decoder = nv_image_codec()
    stream = codec.CodeStream(path.read_bytes())
    side = min(stream.height, stream.width)
    top, left = (stream.height - side) // 2, (stream.width - side) // 2
    region = codec.Region(top, left, top + side, left + side)
    grey = stream.num_channels == 1
    wanted = codec.DecodeParams(color_spec=codec.ColorSpec.GRAY if grey else codec.ColorSpec.SRGB)
    return np.asarray(decoder.decode(stream.get_sub_code_stream(region=region), params=wanted))


DECODERS: dict[str, Callable[[Path], object]] = {
    "simplejpeg": decoded_only,
    "torchvision": lambda path: importlib.import_module("torchvision.io").decode_image(str(path)),
    "OpenCV": opencv,
    "imagecodecs": lambda path: importlib.import_module("imagecodecs").jpeg8_decode(
        path.read_bytes()
    ),
    "Pillow": lambda path: np.array(Image.open(path)),
    "nvImageCodec, only the crop": crop_only,
}
"""Decoders, each to the colours that are in the file; of the whole file, but for the last one."""


def stored(paths: list[Path], folder: Path) -> list[Path]:
    """The crops of pictures as JPEG files of quality 95: a level between `host` and `cache`."""
    files = []
    for path in paths:
        crop = crop_of(path, path.read_bytes(), PX).expand(3, -1, -1)
        files.append(folder / f"stored {path.name}")
        Image.fromarray(crop.permute(1, 2, 0).numpy()).save(files[-1], "JPEG", quality=95)
    return files
