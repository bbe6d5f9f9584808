"""What optimum-habana asks of the device's kind."""

import enum

from habana_frameworks.torch.hpu import get_device_name


class synDeviceType(enum.Enum):  # noqa: N801 - the real one's name
    synDeviceGaudi = 1  # noqa: N815
    synDeviceGaudi2 = 4  # noqa: N815
    synDeviceGaudi3 = 5  # noqa: N815


def _get_device_type() -> synDeviceType:
    return synDeviceType[f"synDevice{get_device_name().capitalize()}"]
