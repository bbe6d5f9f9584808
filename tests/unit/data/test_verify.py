import io
import os
import stat
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from drawings import drawing, encoded
from PIL import Image, JpegImagePlugin

from feedrate.core.files import digest_file
from feedrate.data.isolate import Lost
from feedrate.data.manifest import RawFile, Unusable, read_regular
from feedrate.data.verify import Stored, read_picture, verify_images
from feedrate.loading.decoders.host import decode_levels


def listed(root, name):
    path = root / name
    regular = path.exists() and stat.S_ISREG(path.stat().st_mode)
    return RawFile(path=name, sha256=digest_file(path) if regular else "")


def test_every_file_gets_a_verdict_and_good_ones_are_stored_once(tmp_path):
    (tmp_path / "good.jpg").write_bytes(encoded(drawing()))
    (tmp_path / "the same again.jpeg").write_bytes(encoded(drawing()))
    (tmp_path / "cmyk.jpg").write_bytes(encoded(drawing(mode="CMYK")))
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    names = [*sorted(path.name for path in tmp_path.iterdir()), "missing.jpg"]
    verdicts = verify_images(
        tmp_path, [listed_safely(tmp_path, n) for n in names], tmp_path / "p", 2
    )
    assert list(verdicts) == names
    good, same = verdicts["good.jpg"], verdicts["the same again.jpeg"]
    assert good == same
    assert isinstance(good, Stored)
    assert good.path == f"images/{good.sha256[:2]}/{good.sha256[:16]}.jpg"
    assert (tmp_path / "p" / good.path).read_bytes() == (tmp_path / "good.jpg").read_bytes()
    assert verdicts["cmyk.jpg"].picture.changes == ("CMYK to RGB",)
    stored = {v.path for v in verdicts.values() if isinstance(v, Stored)}
    assert {
        p.relative_to(tmp_path / "p").as_posix() for p in (tmp_path / "p").rglob("*.*")
    } == stored
    assert verdicts["empty.jpg"] == Lost("empty file (0 bytes)")
    assert verdicts["missing.jpg"] == Lost("missing file")
    for name in ("folder.jpg", "pipe.jpg", "zero.jpg"):
        assert verdicts[name] == Lost("not a regular file")
    assert isinstance(verdicts["loop.jpg"], Lost)


def listed_safely(root, name):
    try:
        return listed(root, name)
    except (OSError, RuntimeError):
        return RawFile(path=name, sha256="")


def test_an_image_edited_since_it_was_fetched_is_told(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(drawing()))
    file = listed(tmp_path, "a.jpg")
    (tmp_path / "a.jpg").write_bytes(encoded(drawing(shade=60)))
    [verdict] = verify_images(tmp_path, [file], tmp_path / "p", 1).values()
    assert verdict.is_edited
    assert verdict.sha256 == digest_file(tmp_path / "a.jpg")


def test_a_place_that_cannot_be_written_is_an_error_and_no_verdict(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(drawing()))
    (tmp_path / "p").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="p"):
        verify_images(tmp_path, [listed(tmp_path, "a.jpg")], tmp_path / "p", 1)


def test_a_file_of_unbounded_size_is_not_read(tmp_path):
    with (tmp_path / "huge.jpg").open("wb") as stream:
        stream.truncate(2**29)
    with pytest.raises(Unusable, match="larger than 256 MiB"):
        read_regular(tmp_path / "huge.jpg")


RED = (200, 30, 30)


def pixels(picture):
    image = Image.open(io.BytesIO(picture.data))
    image.load()
    return image


def near(image, point, colour, within=12):
    return all(abs(a - b) <= within for a, b in zip(image.getpixel(point), colour, strict=True))


def png_header(width, height):
    """A PNG file that says it is this large and holds next to nothing."""
    return png_file(struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"\0" * 100_000)


def png_file(header, body):
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(body)), (b"IEND", b"")
    chunks = (struct.pack(">I", len(data)) + kind + data for kind, data in parts)
    sums = (struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    pairs = zip(chunks, sums, strict=True)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk + sum_ for chunk, sum_ in pairs)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_good_baseline_jpeg_is_kept_byte_for_byte(mode):
    data = encoded(drawing(mode=mode))
    picture = read_picture(data)
    assert picture.data == data
    assert (picture.mode, picture.format, picture.changes) == (mode, "JPEG", ())
    assert (picture.width, picture.height) == (64, 48)


def animation(kind):
    frames = [drawing(), Image.new("RGB", (64, 48), "blue")]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)


ODD = {
    "CMYK": (encoded(drawing(mode="CMYK")), "CMYK to RGB"),
    "palette": (encoded(drawing(mode="P"), "PNG"), "palette to RGB"),
    "black and white": (encoded(drawing(mode="1"), "PNG"), "black and white to RGB"),
    "alpha": (encoded(drawing(mode="RGBA"), "PNG"), "transparency on white"),
    "grey alpha": (encoded(drawing(mode="LA"), "PNG"), "transparency on white"),
    "16 bit": (encoded(drawing(mode="L").convert("I;16"), "PNG"), "16-bit to RGB"),
    "progressive": (encoded(drawing(), progressive=True), "progressive to baseline"),
    "GIF": (animation("GIF"), "first frame of several"),
    "WebP": (animation("WEBP"), "first frame of several"),
    "TIFF": (encoded(drawing(), "TIFF"), "TIFF to JPEG"),
    "BMP": (encoded(drawing(), "BMP"), "BMP to JPEG"),
    "MPO": (encoded(drawing(), "MPO", save_all=True, append_images=[drawing()]), "MPO to JPEG"),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_picture_becomes_an_rgb_baseline_jpeg_and_says_what_it_was(odd):
    data, change = ODD[odd]
    picture = read_picture(data)
    assert change in picture.changes
    image = pixels(picture)
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (64, 48))
    assert not image.info.get("progressive")
    assert "exif" not in image.info


@pytest.mark.parametrize("odd", ["CMYK", "palette", "alpha", "GIF", "WebP", "progressive", "TIFF"])
def test_colours_survive(odd):
    assert near(pixels(read_picture(ODD[odd][0])), (20, 24), RED, within=40)


def test_sixteen_bits_are_scaled_and_not_clipped():
    ramp = Image.frombytes("I;16", (64, 64), struct.pack("<4096H", *range(0, 65536, 16)))
    for source in (encoded(ramp, "PNG"), encoded(ramp, "TIFF")):
        image = pixels(read_picture(source))
        assert near(image, (32, 0), (1, 1, 1))
        assert near(image, (32, 32), (128,) * 3)
        assert near(image, (32, 63), (254,) * 3)


@pytest.mark.parametrize(("low", "high"), [(0, 255), (100, 4095), (32_000, 33_000), (-1024, 3000)])
def test_a_narrow_range_of_sixteen_bits_is_stretched(low, high):
    ramp = np.linspace(low, high, 64 * 64).astype(np.int16 if low < 0 else np.uint16)
    raw = ramp.reshape(64, 64).tobytes()
    kind = "I;16S" if low < 0 else "I;16"
    image = Image.frombytes("I" if low < 0 else "I;16", (64, 64), raw, "raw", kind)
    picture = read_picture(encoded(image, "TIFF"))
    assert picture.changes == ("TIFF to JPEG", "16-bit to RGB", "narrow range stretched")
    for row, level in ((0, 0), (32, 128), (63, 253)):
        assert near(pixels(picture), (32, row), (level,) * 3, within=5)


def test_one_level_of_sixteen_bits_is_one_grey():
    picture = read_picture(encoded(Image.new("I;16", (64, 64), 30_000), "PNG"))
    assert near(pixels(picture), (32, 32), (117,) * 3, within=2)


def wide_colours(kind, levels):
    """A picture of 20 rows, each with these 60 levels of 16 bits."""
    row = struct.pack(">60H", *levels)
    if kind == "PPM":
        return b"P6 20 20 65535\n" + 20 * row
    return png_file(struct.pack(">IIBBBBB", 20, 20, 16, 2, 0, 0, 0), 20 * (b"\0" + row))


@pytest.mark.parametrize("kind", ["PNG", "PPM"])
def test_colours_of_sixteen_bits_lose_their_lower_bits_and_are_not_black(kind):
    picture = read_picture(wide_colours(kind, range(5, 60_005, 1000)))
    assert picture.changes == (f"{kind} to JPEG", "16-bit to RGB")
    with pytest.raises(Unusable, match="16-bit colours are nearly black"):
        read_picture(wide_colours(kind, range(4000, 4060)))


@pytest.mark.parametrize("level", [0xFFFF, 0x18C3])
def test_a_bitmap_of_sixteen_bits_a_pixel_has_plain_colours(level):
    """In BMP, 5, 6 and 5 bits are the colours; a dark picture is a picture."""
    header = struct.pack("<IiiHHIIiiII", 40, 20, 20, 1, 16, 3, 800, 0, 0, 0, 0)
    header += struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    start = struct.pack("<IHHI", 866, 0, 0, 66)
    picture = read_picture(b"BM" + start + header + struct.pack("<400H", *[level] * 400))
    assert picture.changes == ("BMP to JPEG",)


STRIPES = Image.fromarray(np.tile(np.uint8([[[255, 0, 0], [0, 0, 255]]]), (64, 32, 1)))


@pytest.mark.parametrize(
    ("kind", "data"),
    {
        "palette": encoded(STRIPES.convert("P", palette=Image.Palette.ADAPTIVE), "PNG"),
        "GIF": encoded(STRIPES, "GIF"),
        "RGB": encoded(STRIPES, "PNG"),
        "alpha": encoded(STRIPES.convert("RGBA"), "PNG"),
        "CMYK": encoded(STRIPES.convert("CMYK"), quality=95, subsampling=0),
        "progressive": encoded(STRIPES, quality=95, subsampling=0, progressive=True),
    }.items(),
)
def test_saturated_colours_are_not_blurred(tmp_path, kind, data):
    path = tmp_path / "a.jpg"
    path.write_bytes(read_picture(data).data)
    levels, _ = decode_levels(path, path.read_bytes())
    as_found = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)
    assert np.abs(levels.numpy().astype(int) - as_found).mean() < 4


def test_a_photograph_with_few_chroma_samples_stays_as_small():
    progressive = encoded(STRIPES, quality=95, subsampling=2, progressive=True)
    assert JpegImagePlugin.get_sampling(pixels(read_picture(progressive))) == 2


def test_transparency_shows_white_paper():
    image = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
    image.paste((*RED, 255), (32, 0, 64, 48))
    flat = pixels(read_picture(encoded(image, "PNG")))
    assert near(flat, (8, 24), (255, 255, 255))
    assert near(flat, (56, 24), RED)


def test_exif_turns_the_picture():
    image = Image.new("RGB", (64, 48), "white")
    image.paste(RED, (0, 0, 64, 16))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = read_picture(encoded(image, exif=exif, quality=95))
    assert picture.changes == ("rotated as its EXIF says",)
    assert (picture.width, picture.height) == (48, 64)
    assert near(pixels(picture), (44, 32), RED)
    assert near(pixels(picture), (4, 32), (255, 255, 255))


@pytest.mark.parametrize("orientation", [0, 1, 9, 77])
def test_an_orientation_that_turns_nothing_keeps_the_file(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(drawing(), exif=exif)
    assert read_picture(data).data == data


def test_damaged_exif_data_are_no_reason_to_lose_a_picture():
    data = encoded(drawing(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert read_picture(data).changes == ()


BAD = {
    "zero bytes": (b"", "empty file"),
    "text": (b"<html>404 not found</html>", "not an image"),
    "truncated JPEG": (encoded(drawing((640, 480)))[:-3000], "cannot be decoded"),
    "truncated PNG": (encoded(drawing((640, 480)), "PNG")[:500], "cannot be decoded"),
    "only a header": (encoded(drawing())[:20], "not an image"),
    "bomb": (png_header(60_000, 60_000), "decompression bomb"),
    "small bomb": (png_header(9_000, 9_000), "9000 x 9000 px: a decompression bomb"),
    "lying header": (png_header(4_000, 4_000), "cannot be decoded"),
    "tiny": (encoded(drawing((15, 40))), "below 16 px"),
    "strip": (encoded(drawing((2000, 20))), "20 times the other"),
    "floats": (encoded(Image.new("F", (64, 64), 0.5), "TIFF"), "more than 16 bits"),
    "vector": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not an image"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_picture_is_left_out_with_its_reason(bad):
    data, reason = BAD[bad]
    with pytest.raises(Unusable, match=reason) as error:
        read_picture(data)
    assert "\n" not in str(error.value)


def test_damaged_bytes_never_raise_anything_else():
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        data = bytearray(encoded(drawing(), kind))
        for position in range(0, len(data), max(1, len(data) // 60)):
            damaged = bytes(data[:position]) + b"\xff\x00\xff" + bytes(data[position + 3 :])
            with suppress(Unusable):
                assert read_picture(damaged).data
