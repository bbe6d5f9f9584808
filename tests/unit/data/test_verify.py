import os
import stat

import pytest
from drawings import drawing, encoded

from feedrate.core.files import digest_file
from feedrate.data.manifest import RawFile
from feedrate.data.verify import BadImage, Rejected, Stored, read_regular, verify_images


def listed(root, name):
    path = root / name
    regular = path.exists() and stat.S_ISREG(path.stat().st_mode)
    return RawFile(path=name, size=0, sha256=digest_file(path) if regular else "")


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
    assert verdicts["cmyk.jpg"].changes == ("CMYK to RGB",)
    stored = {v.path for v in verdicts.values() if isinstance(v, Stored)}
    assert {
        p.relative_to(tmp_path / "p").as_posix() for p in (tmp_path / "p").rglob("*.*")
    } == stored
    assert verdicts["empty.jpg"] == Rejected("empty file (0 bytes)")
    assert verdicts["missing.jpg"] == Rejected("missing file")
    for name in ("folder.jpg", "pipe.jpg", "zero.jpg"):
        assert verdicts[name] == Rejected("not a regular file")
    assert isinstance(verdicts["loop.jpg"], Rejected)


def listed_safely(root, name):
    try:
        return listed(root, name)
    except (OSError, RuntimeError):
        return RawFile(path=name, size=0, sha256="")


def test_an_image_edited_since_it_was_fetched_is_told(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(drawing()))
    file = listed(tmp_path, "a.jpg")
    (tmp_path / "a.jpg").write_bytes(encoded(drawing(shade=60)))
    [verdict] = verify_images(tmp_path, [file], tmp_path / "p", 1).values()
    assert verdict.edited
    assert verdict.sha256 == digest_file(tmp_path / "a.jpg")


def test_a_place_that_cannot_be_written_is_an_error_and_no_verdict(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(drawing()))
    (tmp_path / "p").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="p"):
        verify_images(tmp_path, [listed(tmp_path, "a.jpg")], tmp_path / "p", 1)


def test_a_file_of_unbounded_size_is_not_read(tmp_path):
    with (tmp_path / "huge.jpg").open("wb") as stream:
        stream.truncate(2**29)
    with pytest.raises(BadImage, match="larger than 256 MiB"):
        read_regular(tmp_path / "huge.jpg")
