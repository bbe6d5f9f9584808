"""A rule for every device, downloads, and wrong input told before anything starts."""

import json

import yaml

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STUDY = "bridgetower-dataloading"


def test_every_device_has_a_rule_of_its_own(project):
    devices = list(yaml.safe_load((project.root / "config/devices.yaml").read_text()))
    assert {"cpu", "gaudi2", "gaudi3", "a100-80gb", "h100", "h200"} <= set(devices)
    chosen = f"devices=[{','.join(devices)}]"
    planned = project.planned("--config", chosen, f"studies=[{STUDY}]")
    trained = {rule for rule in planned if rule.startswith("train_")}
    assert trained == {f"train_{device.replace('-', '_')}" for device in devices}


def test_a_checkpoint_is_fetched_once_and_by_a_rule_of_its_own(project, monkeypatch):
    cached = project.root / "home/.cache/huggingface/hub/models--someone--bridge"
    for name in ("config.json", "model.safetensors"):
        (cached / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
        (cached / "snapshots" / COMMIT / name).write_text("{}")
    (cached / "refs").mkdir()
    (cached / "refs/v1").write_text(COMMIT)  # of a commit, the client asks the hub again and again
    project.config(checkpoint="someone/bridge", checkpoint_revision="v1")
    assert project.planned()["fetch_checkpoint"] == 1
    with monkeypatch.context() as without_a_hub:
        without_a_hub.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        without_a_hub.delenv("HF_HOME", raising=False)
        until = ("--until", "fetch_checkpoint")
        done = project.call("snakemake", "--profile", "profiles/local", *until)
    assert done.returncode == 0, done.stdout
    fetched = project.root / "resources/checkpoints/someone--bridge@v1"
    assert json.loads((fetched / "fetched.json").read_text())["commit"] == COMMIT
    assert (fetched / "model.safetensors").exists()
    assert "fetch_checkpoint" not in project.planned()
