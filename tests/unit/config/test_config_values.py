"""Errors of a configuration as a whole."""

PUBLISHED = "published/bridgetower-dataloading.csv"


def test_a_long_list_is_cut(copy):
    path = copy.root / "config" / PUBLISHED
    path.write_text(path.read_text(encoding="utf-8").replace("samples/s,48", "samples/s,many"))
    lines = copy.error().splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("… and ")


def test_a_missing_registry(copy):
    (copy.root / "config/devices.yaml").unlink()
    assert copy.error() == "config/devices.yaml: no such file or directory"
