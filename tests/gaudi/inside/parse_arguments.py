"""Specs as JSON, one a line, in; what the library makes of the arguments of each out."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.devices.base import check_settings
from feedrate.devices.kinds import hpu

FOLDER = Path(mkdtemp())


def main() -> None:
    """Write one list: arguments, GaudiConfig and environment of each spec, or the refusal."""
    specs = [msgspec.convert(json.loads(line), RunSpec) for line in sys.stdin]
    hpu.DeviceAdapter.prepare_process(specs[0], FOLDER)
    from feedrate.devices.base import adapter

    device = adapter("hpu", 0, 1)
    print(json.dumps([parse(device, spec) for spec in specs], default=str))


def parse(device: object, spec: RunSpec) -> dict[str, object]:
    """What becomes of one spec."""
    from optimum.habana import GaudiConfig

    from feedrate.jobs.trainer import shared_arguments

    for variable in (hpu.BF16_OPS, hpu.FP32_OPS):
        os.environ.pop(variable, None)
    try:
        check_settings(spec)
        hpu.DeviceAdapter.prepare_process(spec, FOLDER)
        arguments = device.training_arguments(
            shared_arguments(spec, FOLDER, ["tensorboard"]),
            spec.settings,
            spec.protocol.warmup_steps,
        )
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    lists = {
        variable: Path(os.environ[variable]).read_text().split()
        for variable in (hpu.BF16_OPS, hpu.FP32_OPS)
        if variable in os.environ
    }
    config = getattr(arguments, "gaudi_config_name", None)
    return {
        "arguments": asdict(arguments),
        "device": str(arguments.device),
        "config": vars(GaudiConfig.from_pretrained(config)) if config else {},
        "lists": lists,
        "lazy": os.environ[hpu.LAZY_MODE],
    }


main()
