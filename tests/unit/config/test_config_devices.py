"""The device registry: its checks, and the entry that `detected` stands for."""

import pytest

from feedrate.config.devices import Device, Machine, check_devices, with_detected
from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan, timeouts_min
from feedrate.config.project import load_project
from feedrate.config.spec import Software

H100 = "NVIDIA H100 80GB HBM3"
STUDY = "bridgetower-dataloading"


def machine(model, count, kind="cuda"):
    return Machine(host="node7", kind=kind, models=[model] * count)


def resolved(project, found, names=("detected",)):
    return with_detected(list(names), project.devices, found, "config/config.yaml")


def refused(project, found):
    with pytest.raises(ConfigError) as caught:
        resolved(project, found)
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "kind", "device"),
    [
        (H100, "cuda", "h100"),
        ("NVIDIA A100-SXM4-80GB", "cuda", "a100-80gb"),
        ("HL-225", "hpu", "gaudi2"),
        ("GAUDI3", "hpu", "gaudi3"),
        ("NVIDIA H100 PCIe", "cuda", "h100-pcie"),
    ],
)
def test_as_many_as_registered_are_the_registered_device(project, model, kind, device):
    names, devices = resolved(project, machine(model, 8, kind))
    assert names == [device]
    assert devices == project.devices


def test_another_number_is_a_device_of_its_own(project):
    names, devices = resolved(project, machine(H100, 1))
    assert names == ["h100-x1"]
    variant, registered = devices["h100-x1"], project.devices["h100"]
    assert (variant.label, variant.count, variant.nodes) == ("H100 x1", 1, 1)
    assert variant.job.gres == "gpu:1"
    assert variant.launcher is None, "one process: single, by the count"
    assert variant.variant_of == "h100"
    assert (variant.peaks, variant.model_pattern) == (registered.peaks, registered.model_pattern)
    assert devices["h100"] == registered


def test_another_number_can_be_chosen_by_name(copy):
    project = copy.load(devices=["h100", "h100-x1"])
    assert project.config.devices == ["h100", "h100-x1"]
    assert project.devices["h100-x1"] == resolved(project, machine(H100, 1))[1]["h100-x1"]
    assert (project.devices["h100"].count, project.devices["h100-x1"].count) == (8, 1)


def test_price_memory_gres_and_launcher_follow_the_number(copy):
    copy.edit(
        "devices.yaml",
        ('job: {gres: "gpu:8"}', 'job: {gres: "gpu:hl225:8", memory_gib: 800}'),
        ("price_usd_per_hour: null", "price_usd_per_hour: 16"),
    )
    _, devices = resolved(copy.load(), machine("HL-225", 4, "hpu"))
    variant = devices["gaudi2-x4"]
    assert (variant.price_usd_per_hour, variant.job.memory_gib) == (8, 400)
    assert (variant.job.gres, variant.launcher) == ("gpu:hl225:4", "mpirun")


def test_a_registered_count_is_taken_before_a_variant(copy):
    copy.write(
        "devices.yaml",
        (copy.root / "config/devices.yaml").read_text()
        + "\nh100-pair: {label: Two H100, kind: cuda, count: 2, capabilities: [bf16],"
        ' model_pattern: "NVIDIA H100 80GB HBM3"}\n',
    )
    names, devices = resolved(copy.load(), machine(H100, 2))
    assert (names, set(devices)) == (["h100-pair"], set(copy.load().devices))


def test_it_may_stand_beside_other_devices(project):
    names, _ = resolved(project, machine(H100, 8), ["cpu", "detected", "h100"])
    assert names == ["cpu", "h100"]


def test_the_plan_is_made_for_it_with_what_the_study_adapts(copy):
    copy.edit(
        "studies/bridgetower-dataloading.yaml",
        ("adapt:\n", "adapt:\n  h100:\n    protocol: {timeout_min: 77}\n"),
    )
    config = {
        "studies": ["bridgetower-dataloading"],
        "devices": ["detected"],
        "dataset": "d",
        "datasets": {"d": {"source": "generated"}},
    }
    project = load_project(copy.root, config, lambda: machine(H100, 2))
    runs = list(make_plan(project).runs.values())
    assert project.config.devices == ["h100-x2"]
    assert {(r.device, r.count, r.launcher) for r in runs} == {("h100-x2", 2, "torchrun")}
    assert timeouts_min(project) == {"bridgetower-dataloading": {"h100-x2": 77}}
    assert {r.settings.model.size for r in runs} == {"large"}


def test_nothing_found_is_told_with_the_ways_on(project):
    error = refused(project, Machine(host="login2", remark="no accelerator was found on login2"))
    assert error.startswith("config/config.yaml: devices[0]: 'detected' is not possible: ")
    assert "no accelerator was found on login2" in error
    assert "name entries of config/devices.yaml: cpu, gaudi2" in error
    assert len(error.splitlines()) == 1


def test_an_unknown_model_is_told_with_its_name(project):
    error = refused(project, machine("NVIDIA A40", 4))
    assert "node7 has 4 x NVIDIA A40, and no entry of config/devices.yaml" in error
    assert "Add a device" in error


def test_unlike_devices_are_told(project):
    mixed = Machine(host="node7", kind="cuda", models=[H100, "NVIDIA T400", H100])
    error = refused(project, mixed)
    assert "2 x NVIDIA H100 80GB HBM3 and 1 x NVIDIA T400" in error
    assert "must be of one model" in error


def findings(variable: str, value: str = "x") -> list[str]:
    software = Software(environment={variable: value})
    device = Device(label="D", kind="cpu", capabilities=[], software=software)
    return check_devices("config/devices.yaml", {"d": device})


@pytest.mark.parametrize(
    "address", ["http://me:pa55word@host:5000", "http://host:7860/?write_token=pa55word"]
)
def test_an_address_with_a_secret_is_refused_too(address):
    (line,) = findings("SOME_SERVER", address)
    assert "software.environment.SOME_SERVER: a secret" in line
    assert "pa55word" not in line
    assert findings("SOME_SERVER", "http://host:5000/?project=p") == []
