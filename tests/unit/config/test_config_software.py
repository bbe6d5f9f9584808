"""Environment variables in the device registry: names that can be, and no secrets."""

import pytest

from feedrate.config.devices import Device, check_devices
from feedrate.config.spec import Software


def findings(variable: str) -> list[str]:
    software = Software(environment={variable: "x"})
    device = Device(label="D", kind="cpu", capabilities=[], software=software)
    return check_devices("config/devices.yaml", {"d": device})


@pytest.mark.parametrize("variable", ["PT_HPU_LAZY_MODE", "_x1", "TOKENIZERS_PARALLELISM"])
def test_ordinary_variables_pass(variable):
    assert findings(variable) == []


@pytest.mark.parametrize("variable", ["HF_TOKEN", "wandb_api_key", "DB_PASSWORD"])
def test_a_secret_is_refused_before_it_is_told_in_a_record(variable):
    (line,) = findings(variable)
    assert line.startswith(f"config/devices.yaml: d.software.environment.{variable}: a secret")


@pytest.mark.parametrize("variable", ["A B", "X=Y", "1ST", "", "x;reboot", "LÄNGE"])
def test_a_name_that_no_variable_can_have_is_refused(variable):
    (line,) = findings(variable)
    assert "an environment variable cannot have this name" in line
