"""The local Slurm leaves nothing behind that slows other programs down."""

import cluster
import pytest


def test_links_of_a_cluster_that_is_dead_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONFIG", tmp_path)
    for name in cluster.FILES:
        (tmp_path / name).symlink_to(tmp_path / "gone" / name)
    try:
        cluster.install()
    except cluster.NoSlurmHere as reason:
        pytest.skip(str(reason))
    assert list(tmp_path.iterdir()) == []
