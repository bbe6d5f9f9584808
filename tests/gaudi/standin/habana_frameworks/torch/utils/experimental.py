"""What optimum-habana asks of the device's kind."""

import enum

from habana_frameworks.torch.hpu import get_device_name


class synDeviceType(enum.Enum):
    synDeviceGaudi = 1
    synDeviceGaudi2 = 4
    synDeviceGaudi3 = 5


def _get_device_type() -> synDeviceType:
    return synDeviceType[f"synDevice{get_device_name().capitalize()}"]
