"""Archives that are damaged or made to do harm are refused before anything is unpacked."""

import stat
import zipfile

import pytest

from feedrate.results import crate
from feedrate.results.crate import ArchiveError, Writer, defects, results_of, unpack


def written(path, files):
    writer = Writer(path)
    for name, content in files.items():
        writer.add(name, content)
    writer.finish({"name": "x"}, [])
    return path


@pytest.fixture
def good(tmp_path):
    return written(tmp_path / "good.zip", {"results/a.csv": b"a\n1\n", "logs/x.log": b"x"})


def with_entry(path, name, content=b"x", mode=stat.S_IFREG | 0o644):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as found:
        entry = zipfile.ZipInfo(name)
        entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
        found.writestr(entry, content)
    return path


def test_what_was_written_is_unpacked_and_has_no_defects(good, tmp_path):
    assert list(defects(good)) == []
    unpack(good, tmp_path / "out")
    assert (tmp_path / "out/results/a.csv").read_bytes() == b"a\n1\n"
    with results_of(good) as folder:
        assert (folder / "results/a.csv").is_file()
    assert not folder.exists()
    with results_of(tmp_path) as same:
        assert same == tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("../evil", "results/../../evil", "/etc/evil", "results\\..\\evil", "C:/evil"),
        *(
            "matplotlibrc",
            "json.py",
            ".snakemake/feedrate/digests.json",
            "results//x",
            "results/./x",
        ),
        "results/a:b",
    ],
)
def test_paths_outside_of_a_campaign_are_refused(good, tmp_path, name):
    out = tmp_path / "out"
    with pytest.raises(ArchiveError, match="not unpacked"):
        unpack(with_entry(good, name), out)
    assert not out.exists()
    assert not (tmp_path / "evil").exists()


def test_links_are_refused(good, tmp_path):
    with_entry(good, "results/link", b"/etc", stat.S_IFLNK | 0o777)
    with pytest.raises(ArchiveError, match="'results/link' is not a regular file"):
        unpack(good, tmp_path / "out")


def test_other_methods_of_packing_are_refused(good, tmp_path):
    content = bytearray(good.read_bytes())
    at = content.index(b"PK\x01\x02") + 10  # the method of the first file
    content[at : at + 2] = (99).to_bytes(2, "little")
    good.write_bytes(content)
    with pytest.raises(ArchiveError, match="is packed by another method"):
        unpack(good, tmp_path / "out")


def test_a_name_given_twice_is_refused(good, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        with_entry(good, "results/a.csv", b"other")
    with pytest.raises(ArchiveError, match="occurs in it twice"):
        unpack(good, tmp_path / "out")


def test_bombs_are_refused(good, tmp_path, monkeypatch):
    with pytest.raises(ArchiveError, match="more than 500 times its size"):
        unpack(with_entry(good, "results/bomb", bytes(2**22)), tmp_path / "out")
    monkeypatch.setattr(crate, "MOST_BYTES", 2**20)
    with pytest.raises(ArchiveError, match="GiB unpacked"):
        unpack(good, tmp_path / "out")
    monkeypatch.setattr(crate, "MOST_FILES", 2)
    with pytest.raises(ArchiveError, match="at most 2 are allowed"):
        list(defects(good))


def test_a_file_that_is_no_archive_is_told(tmp_path):
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(ArchiveError, match=r"text\.zip: not a zip file"):
        list(defects(tmp_path / "text.zip"))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("results/a", "x")
    with pytest.raises(ArchiveError, match=r"it has no checksums\.sha256"):
        list(defects(tmp_path / "other.zip"))


def test_bytes_damaged_on_the_way_are_told(good):
    content = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as found:
        entry = found.getinfo("results/a.csv")
    content[entry.header_offset + 30 + len(entry.filename) + 2] ^= 0xFF
    good.write_bytes(content)
    (told,) = defects(good)
    assert told.startswith("results/a.csv is damaged: ") or "was altered" in told


def test_equal_files_give_equal_bytes(good, tmp_path):
    again = written(tmp_path / "b.zip", {"results/a.csv": b"a\n1\n", "logs/x.log": b"x"})
    assert good.read_bytes() == again.read_bytes()
