import pytest

from feedrate.core.files import replaced_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fail_inside(target):
    def fail(part):
        assert names(part) == []
        (part / "new").touch()
        raise KeyError

    def work():
        with replaced_folder(target) as part:
            fail(part)

    with pytest.raises(KeyError):
        work()


def test_the_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "data"
    target.mkdir()
    (target / "old").touch()
    with replaced_folder(target) as part:
        (part / "new").touch()
        assert names(target) == ["old"]
    assert names(target) == ["new"]
    assert names(tmp_path) == ["data"]


def test_an_error_leaves_the_folder_as_it_was(tmp_path):
    target = tmp_path / "data"
    target.mkdir()
    (target / "old").touch()
    fail_inside(target)
    assert names(target) == ["old"]
    assert names(tmp_path) == ["data"]


def test_what_a_crash_left_is_settled(tmp_path):
    (tmp_path / ".data.old").mkdir()
    (tmp_path / ".data.old/good").touch()
    (tmp_path / ".data.part").mkdir()
    (tmp_path / ".data.part/half").touch()
    fail_inside(tmp_path / "data")
    assert names(tmp_path / "data") == ["good"]
    assert names(tmp_path) == ["data"]
