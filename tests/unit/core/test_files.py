import stat

import pytest

from feedrate.core.files import atomic_path, digest_value, write_json, write_text


def test_a_crash_while_writing_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "result.json"
    write_text(path, "old")

    def crash():
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_written_files_have_the_usual_mode(tmp_path):
    (tmp_path / "plain").write_text("x")
    write_json(tmp_path / "deep/er/ours.json", {"b": 1, "a": "ä"})
    ours = tmp_path / "deep/er/ours.json"
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert ours.read_text() == '{\n  "a": "ä",\n  "b": 1\n}\n'


def test_digest_is_blind_to_order_of_keys_and_not_to_values():
    assert digest_value({"a": 1, "b": 2}) == digest_value({"b": 2, "a": 1})
    assert digest_value({"a": 1, "b": 2}) != digest_value({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        digest_value({"a": float("nan")})
