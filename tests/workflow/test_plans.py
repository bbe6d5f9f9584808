"""Dry-runs: a rule for every device, and wrong input told before anything starts."""

import pytest

STUDY = "bridgetower-dataloading"


@pytest.mark.parametrize("device", ["gaudi2", "gaudi3", "a100-80gb", "h100", "h200"])
def test_every_device_has_a_rule_of_its_own(project, device):
    planned = project.planned("--config", f"devices=[cpu,{device}]", f"studies=[{STUDY}]")
    assert planned["train_cpu"] > 0
    assert planned[f"train_{device.replace('-', '_')}"] > 0


@pytest.mark.parametrize(
    ("path", "old", "new", "words"),
    [
        ("config/config.yaml", "dataset: small", "dataset: smal", ["config.yaml", "smal", "small"]),
        ("config/config.yaml", "studies:", "studys:", ["config.yaml", "studys", "studies"]),
        ("config/studies/mini.yaml", "workers:", "wrokers:", ["mini.yaml", "workers"]),
        ("config/studies/mini.yaml", "steps: 6", "steps: six", ["mini.yaml", "steps", "six"]),
        ("config/devices.yaml", "kind: cpu", "kind: tpu", ["devices.yaml", "kind", "tpu", "hpu"]),
    ],
)
def test_wrong_configuration_is_one_clear_error(project, path, old, new, words):
    project.edit(path, old, new)
    done = project.run()
    assert done.returncode != 0
    for word in words:
        assert word in done.stdout
    assert "Traceback" not in done.stdout
    assert len(done.stdout.splitlines()) < 12, done.stdout
    assert not (project.root / "results").exists()


def test_hub_without_network_is_a_sentence(project, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HOME", raising=False)  # the project's own home has an empty cache
    hub = {"source": "hub", "name": "someone/cartoons", "revision": "main"}
    project.config(dataset="hub", datasets={"hub": hub})
    done = project.run()
    assert done.returncode != 0
    assert "dataset someone/cartoons at main: the hub cannot be reached" in done.stdout
    assert "Traceback" not in done.stdout
    assert not (project.root / "resources/datasets/hub/raw").exists()
