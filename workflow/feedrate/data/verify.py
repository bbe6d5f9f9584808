"""Verification: processes decode every image in full, and store it as a baseline JPEG file."""

import hashlib
import io
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from PIL import ExifTags, Image, ImageOps, JpegImagePlugin, UnidentifiedImageError

from feedrate.core.files import atomic_path
from feedrate.data.isolate import Lost, run_isolated
from feedrate.data.manifest import IMAGES, RawFile, Unusable, read_regular, reading_file

TIMEOUT_S = 60.0  # for one image; the largest that is allowed takes about a second
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
"""Formats to try. Pillow opens MPO as JPEG. For EPS and the like it would run other programs."""
MAX_MEGAPIXELS = 64.0
MIN_SIDE_PX = 16
MAX_ASPECT = 20.0  # a longer strip would become huge once its shorter side is scaled for the model
JPEG_QUALITY = 95
WIDE = 2**16 - 1  # the largest level of 16 bits
NARROW = 2**14  # a smaller range of levels is stretched

_WIDE_COLOURS = re.compile(r"(?<!BGR);16|'RGB', [0-9]{4}")
"""In Pillow's plan of decoding, 16 bits a colour of PNG and TIFF, and the largest level of PPM;
`BGR;16`, of BMP, is 16 bits a pixel."""
_MODES = {"P": "palette", "1": "black and white"}


class Picture(NamedTuple):
    """A usable image as a JPEG file, and what the original file was."""

    data: bytes
    width: int
    height: int
    mode: str
    format: str
    changes: tuple[str, ...]


class Stored(NamedTuple):
    """A verified image as stored in prepared/, without its data."""

    path: str
    sha256: str
    size: int
    is_edited: bool  # whether its file has changed since the fetch
    picture: Picture


def verify_images(
    root: Path, files: Sequence[RawFile], prepared: Path, workers: int
) -> dict[str, Stored | Lost]:
    """Store the good files under prepared/images/; the verdicts by path. Raises OSError."""
    verdicts = run_isolated(partial(_verify, root, prepared), files, workers, TIMEOUT_S)
    return dict(zip((file.path for file in files), verdicts, strict=True))


def _verify(root: Path, prepared: Path, file: RawFile) -> Stored | Lost:
    try:
        with reading_file():
            data = read_regular(root / file.path)
        picture = read_picture(data)
    except Unusable as reason:
        return Lost(str(reason))
    sha256 = hashlib.sha256(picture.data).hexdigest()
    path = f"{IMAGES}/{sha256[:2]}/{sha256[:16]}.jpg"
    # Two workers may store the same picture at once, so its name is given to whole files only.
    with atomic_path(prepared / path) as temporary:
        temporary.write_bytes(picture.data)
    is_edited = hashlib.sha256(data).hexdigest() != file.sha256
    return Stored(path, sha256, len(picture.data), is_edited, picture._replace(data=b""))


def read_picture(data: bytes) -> Picture:
    """Decode an image file; a good baseline JPEG file is kept byte for byte. Raises Unusable."""
    if not data:
        raise Unusable("empty file (0 bytes)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
                size = f"{width} x {height} px"
                if width * height > MAX_MEGAPIXELS * 1e6:
                    limit = f"above {MAX_MEGAPIXELS:g} megapixels"
                    raise Unusable(f"{size}: a decompression bomb, {limit}")
                if min(width, height) < MIN_SIDE_PX:
                    raise Unusable(f"{size}: a side below {MIN_SIDE_PX} px")
                if max(width, height) > MAX_ASPECT * min(width, height):
                    raise Unusable(f"{size}: one side is more than {MAX_ASPECT:g} times the other")
                return _convert(image, data)
    except Unusable:
        raise
    except UnidentifiedImageError:
        raise Unusable(f"not an image of the kinds {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError:
        raise Unusable(f"a decompression bomb: above {MAX_MEGAPIXELS:g} megapixels") from None
    except MemoryError:
        raise Unusable("decoding it takes too much memory") from None
    except Exception as error:  # a broken file can make a decoder raise anything
        raise Unusable(f"cannot be decoded: {str(error) or type(error).__name__}") from None


def _convert(image: Image.Image, data: bytes) -> Picture:
    kind, mode = str(image.format), image.mode
    # Read before the file is loaded: then Pillow forgets its plan.
    is_wide = mode[0] == "I" or _WIDE_COLOURS.search(str(getattr(image, "tile", "")))
    if mode == "F":
        raise Unusable("its pixels have more than 16 bits")
    changes = []
    if kind != "JPEG":
        changes.append(f"{kind} to JPEG")
    if getattr(image, "is_animated", False):
        changes.append("first frame of several")
    if kind == "JPEG" and image.info.get("progressive"):
        changes.append("progressive to baseline")
    image.load()
    upright, orientation = image, None
    with suppress(Exception):  # damaged EXIF data do not make a picture unusable
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    if orientation in range(2, 9):
        upright = ImageOps.exif_transpose(image)
        changes.append("rotated as its EXIF says")
    if mode in ("L", "RGB") and not changes:
        return Picture(data, *image.size, mode, kind, ())
    if is_wide:
        upright, is_stretched = _eight_bits(upright)
        changes += ["16-bit to RGB", *(["narrow range stretched"] if is_stretched else [])]
    if upright.has_transparency_data:
        changes.append("transparency on white")
        layer = upright.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        upright = Image.alpha_composite(white, layer)
    elif mode not in ("L", "RGB") and not is_wide:
        changes.append(f"{_MODES.get(mode, mode)} to RGB")
    rgb = upright.convert("RGB")
    # A JPEG file of colours with few chroma samples has no more of them to keep.
    sampling = max(0, JpegImagePlugin.get_sampling(image)) if kind == "JPEG" else 0
    stream = io.BytesIO()
    rgb.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=sampling)
    return Picture(stream.getvalue(), *rgb.size, mode, kind, tuple(changes))


def _eight_bits(image: Image.Image) -> tuple[Image.Image, bool]:
    """A picture with 16 bits a channel in 8 bits, and whether its range was stretched: grey levels
    of at most 14 bits, as cameras and scanners have, would be nearly black. Raises Unusable."""
    if image.mode[0] != "I":  # Pillow has already cut the colours' lower 8 bits off
        bands: Any = image.convert("RGB").getextrema()
        if max(high for _, high in bands) < NARROW // 257:
            raise Unusable("its 16-bit colours are nearly black, and cannot be stretched")
        return image, False
    levels = image.convert("I")
    ends: Any = levels.getextrema()
    low, high = ends
    if high - min(low, 0) > WIDE:
        raise Unusable("its pixels have more than 16 bits")
    is_narrow = 0 < high - low < NARROW
    zero, size = (low, high - low) if is_narrow else (min(low, 0), WIDE)
    scale = 255 / size
    return levels.point(lambda level: level * scale + (0.5 - zero * scale)).convert("L"), is_narrow
