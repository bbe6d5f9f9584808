import pytest

from feedrate.data.manifest import DataError, check_prepared, read_manifest


@pytest.fixture
def prepared(workplace):
    workplace.filled(3).fetch()
    workplace.prepare()
    return workplace.manifest.parent


def an_image(folder):
    return sorted(folder.glob("images/*/*.jpg"))[0]


def change_bytes(folder):
    data = bytearray(an_image(folder).read_bytes())
    data[-10] ^= 255
    an_image(folder).write_bytes(data)


def remove_image(folder):
    an_image(folder).unlink()


def add_image(folder):
    (folder / "images/zz.jpg").write_bytes(b"x")


def change_samples(folder):
    with (folder / "samples.parquet").open("ab") as stream:
        stream.write(b"x")


def remove_tokenizer(folder):
    (folder / "tokenizer/tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (change_bytes, ".jpg does not match its recorded checksum"),
        (remove_image, ".jpg cannot be read (No such file"),
        (add_image, "images/zz.jpg is not in the manifest"),
        (change_samples, "samples.parquet does not match its recorded checksum"),
        (remove_tokenizer, "tokenizer/tokenizer.json cannot be read"),
    ],
)
def test_the_first_file_that_differs_is_named_with_what_to_do(prepared, damage, named):
    check_prepared(prepared)
    damage(prepared)
    with pytest.raises(DataError) as error:
        check_prepared(prepared)
    assert named in str(error.value)
    assert f"delete the folder {prepared} and run again" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_or_foreign_manifest_is_told(tmp_path):
    with pytest.raises(DataError, match="has not been prepared"):
        check_prepared(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(DataError, match="not of this version"):
        read_manifest(tmp_path / "manifest.json")
