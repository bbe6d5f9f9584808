"""Where the nodes of a Slurm job meet, as scontrol tells it."""

import os
from pathlib import Path

import pytest

from feedrate.devices.base import DeviceError
from feedrate.devices.launchers.srun import meeting

JOB = """\
JobId=4711 JobName=train
   ReqNodeList=(null) ExcNodeList=gaudi2-9
   NodeList={listed}
   BatchHost=gaudi2-3
   NumNodes=2 NumCPUs=320
"""
NODE = "NodeName=gaudi2-3 Arch=x86_64\n   NodeAddr=10.0.0.3 NodeHostName=g3 Version=22.05\n"


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """A scontrol that answers for a job on `listed`, whose `hosts` it can tell."""

    def _make(listed: str = "gaudi2-[3-4]", hosts: str = "gaudi2-3 gaudi2-4") -> None:
        answers = {"job": JOB.format(listed=listed), "node": NODE}
        answers["hostnames"] = hosts.replace(" ", "\n")
        for name, text in answers.items():
            (tmp_path / name).write_text(text)
        program = tmp_path / "scontrol"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec cat "{tmp_path}/$2"\n')
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    _make.folder = tmp_path
    return _make


def test_the_first_nodes_address_and_a_port_of_the_job(scontrol):
    scontrol()
    met = meeting(2, {"SLURM_JOB_ID": "4711"})
    assert met == ("4711", "10.0.0.3", 24711)
    asked = (scontrol.folder / "asked").read_text().splitlines()
    assert asked == ["show job 4711", "show hostnames gaudi2-[3-4]", "show node gaudi2-3"]


def test_neighbouring_jobs_have_different_ports_below_those_of_clients(scontrol):
    scontrol()
    ports = [meeting(2, {"SLURM_JOB_ID": str(n)})[2] for n in (9_999, 10_000, 12_345_678)]
    assert len(set(ports)) == 3
    assert all(1024 < port < 32_768 for port in ports)


def test_a_job_with_other_nodes_than_asked_for(scontrol):
    scontrol()
    with pytest.raises(DeviceError, match="asked for 4 nodes and got 2"):
        meeting(4, {"SLURM_JOB_ID": "4711"})


def test_a_job_without_nodes_yet(scontrol):
    scontrol(listed="(null)")
    with pytest.raises(DeviceError, match="scontrol reports no NodeList"):
        meeting(2, {"SLURM_JOB_ID": "4711"})


def test_a_controllers_refusal_is_passed_on(scontrol):
    scontrol()
    (scontrol.folder / "scontrol").write_text("#!/bin/sh\necho 'Invalid job id' >&2\nexit 1\n")
    with pytest.raises(DeviceError, match="4711: Invalid job id"):
        meeting(2, {"SLURM_JOB_ID": "4711"})


def test_without_slurm_there_is_a_sentence(tmp_path: Path, monkeypatch):
    with pytest.raises(DeviceError, match="SLURM_JOB_ID is not set"):
        meeting(2, {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="scontrol"):
        meeting(2, {"SLURM_JOB_ID": "1"})
