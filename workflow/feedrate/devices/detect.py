"""The accelerators of this machine, found without torch: the drivers' own tools, else files.

What `nvidia-smi` and `hl-smi` say comes first. Where they are absent, NVIDIA's driver lists its
GPUs under /proc, and the kernel lists Gaudi cards under /sys/class/accel, by PCI id. Only what a
process here may open counts, so a container's or a job's share of a machine is what is found.
"""

import csv
import io
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from feedrate.config.devices import Machine
from feedrate.config.spec import Kind
from feedrate.core import variables

DEV, PROC, SYS = Path("/dev"), Path("/proc"), Path("/sys")
TOOL_S = 60.0
"""Seconds for a tool; without its persistence daemon NVIDIA's wakes every GPU first."""

NVIDIA, HABANA = "0x10de", "0x1da3"
GAUDI_MODELS = {
    **dict.fromkeys(("0x1000", "0x1010"), "GAUDI"),
    **dict.fromkeys(("0x1020", "0x1021", "0x1030"), "GAUDI2"),
    **dict.fromkeys(("0x1060", "0x1063"), "GAUDI3"),
}
"""PCI device ids of the vendor Habana, as the kernel's driver and Intel's tools name them."""


class Card(NamedTuple):
    """One accelerator."""

    model: str
    uuid: str = ""
    sliced: bool = False
    """Split into MIG instances, of which a process can use one."""


def machine() -> Machine:
    """What this machine has. Looked for once: jobs are told by the main process."""
    told = os.environ.get(variables.DETECTED)
    if told is None:
        told = msgspec.json.encode(look()).decode()
        os.environ[variables.DETECTED] = told
    return msgspec.json.decode(told, type=Machine)


def look(environment: Mapping[str, str] = os.environ) -> Machine:
    """Look for accelerators that a process with this environment could use."""
    host = platform.node()
    gpus, gaudis = nvidia_cards(), gaudi_cards()
    if gpus and gaudis:
        return Machine(host=host, remark=f"{host} has both GPUs and Gaudi cards")
    kind: Kind = "cuda" if gpus else "hpu"
    cards = gpus or gaudis
    if not cards:
        return Machine(host=host, remark=_nothing(host))
    if any(card.sliced for card in cards):
        return Machine(host=host, remark=f"the GPUs of {host} are split into MIG instances")
    variable = "CUDA_VISIBLE_DEVICES" if gpus else "HABANA_VISIBLE_MODULES"
    wanted = environment.get(variable)
    if wanted is not None:
        cards = _visible(cards, wanted) if gpus else cards[: len(_words(wanted))]
    if not cards:
        return Machine(host=host, remark=f"{variable}={wanted} hides all accelerators of {host}")
    return Machine(host=host, kind=kind, models=[card.model for card in cards])


def nvidia_cards() -> list[Card]:
    """NVIDIA GPUs, in the driver's order."""
    query = ["nvidia-smi", "--query-gpu=name,uuid,mig.mode.current", "--format=csv,noheader"]
    rows = _ask(query, columns=3)
    if rows:
        return [Card(name, uuid, mig == "Enabled") for name, uuid, mig in rows]
    cards = []
    for file in sorted(PROC.glob("driver/nvidia/gpus/*/information")):
        facts = dict(re.findall(r"^(.+?):[ \t]*(.*?)[ \t]*$", _text(file), flags=re.M))
        if (DEV / f"nvidia{facts.get('Device Minor')}").exists() and facts.get("Model"):
            cards.append(Card(facts["Model"], facts.get("GPU UUID", "")))
    return cards


def gaudi_cards() -> list[Card]:
    """Gaudi cards, in the driver's order."""
    rows = _ask(["hl-smi", "-Q", "name", "-f", "csv,noheader"], columns=1)
    if rows:
        return [Card(name) for (name,) in rows]
    return [
        Card(GAUDI_MODELS.get(_text(entry / "device/device"), "Gaudi of an unknown generation"))
        for entry in sorted(SYS.glob("class/accel/accel[0-9]*"))
        if _text(entry / "device/vendor") == HABANA and (DEV / "accel" / entry.name).exists()
    ]


def _nothing(host: str) -> str:
    """Why nothing was found: no hardware, or hardware without a driver."""
    idle = [
        name
        for vendor, name in ((NVIDIA, "an NVIDIA GPU"), (HABANA, "a Gaudi card"))
        if any(
            _text(device / "vendor") == vendor and _is_accelerator(_text(device / "class"))
            for device in SYS.glob("bus/pci/devices/*")
        )
    ]
    if idle:
        return f"{host} has {' and '.join(idle)}, but no driver of it answers"
    return f"no accelerator was found on {host}"


def _is_accelerator(pci_class: str) -> bool:
    """Display controllers (03) and processing accelerators (12), not a GPU's sound."""
    return pci_class[:4] in ("0x03", "0x12")


def _visible(cards: list[Card], wanted: str) -> list[Card]:
    """The GPUs of CUDA_VISIBLE_DEVICES: up to the first that is not there, as CUDA takes it."""
    chosen: list[Card] = []
    for word in _words(wanted):
        matching = [
            card
            for number, card in enumerate(cards)
            if word == str(number) or (word.startswith("GPU-") and card.uuid.startswith(word))
        ]
        if len(matching) != 1:
            break
        chosen += matching
    return chosen


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _ask(command: list[str], columns: int) -> list[list[str]]:
    """The rows that a tool prints; none where it is absent, fails or says something else."""
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TOOL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode:
        return []
    rows = _stripped(csv.reader(io.StringIO(answer.stdout)))
    return [row for row in rows if len(row) == columns and row[0]]


def _stripped(rows: Iterable[list[str]]) -> Iterable[list[str]]:
    return ([field.strip() for field in row] for row in rows)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
