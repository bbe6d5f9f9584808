#!/usr/bin/env python3
"""A real Slurm cluster of virtual nodes on one Debian machine: loopback only, no systemd.

    tests/slurm/cluster.py start            install and start what does not run yet; show it
    tests/slurm/cluster.py stop             end all daemons; Slurm remembers the jobs
    tests/slurm/cluster.py down|crash|up NODE
                                            end a node's daemon (its jobs continue), end it with its
                                            jobs, start it again; Slurm is told of each
    tests/slurm/cluster.py install          only install the packages

Run as root. All files are under $FEEDRATE_SLURM_DIR, by default feedrate-slurm in the folder for
temporary files. Nodes claim the cores and memory of real ones, so that profiles need no change.
Slurm checks the memory of jobs every two seconds and kills those that exceed it, without cgroups.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CONFIG = Path("/etc/slurm")
"""Slurm's default place. The plugin's inner srun drops SLURM_CONF, so no other place works."""
FILES = ("slurm.conf", "gres.conf")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
POLICY = Path("/usr/sbin/policy-rc.d")
FOLDER = "FEEDRATE_SLURM_DIR"


class ClusterError(Exception):
    """The cluster does not work; the message says why in one sentence."""


class NoSlurmHere(ClusterError):
    """Slurm cannot be installed or started on this machine; the message says why."""


@dataclass(frozen=True)
class Partition:
    """Nodes of one kind; `gres` is in Slurm's notation."""

    name: str
    nodes: int
    cpus: int
    memory_gib: int
    gres: str = ""

    @property
    def node_names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(1, self.nodes + 1)]


PARTITIONS = (
    Partition("network", 1, 8, 32),
    Partition("cpu", 2, 64, 256),
    Partition("gaudi2", 2, 160, 1024, "gpu:HL-225:8"),
    Partition("h100", 2, 192, 2048, "gpu:h100:8"),
    Partition("a100", 1, 128, 1024, "gpu:a100:4"),
)

SETTINGS = """\
ClusterName=feedrate
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SchedulerParameters=batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
SlurmdTimeout=20
KillWait=5
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
GresTypes=gpu
PartitionName=DEFAULT MaxTime=2-0 DefaultTime=60 DefMemPerCPU=512 State=UP
"""


class Cluster:
    """The cluster of this machine, with its state under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def running() -> "Cluster | None":
        """The cluster that runs on this machine, if it is one of ours."""
        link = CONFIG / FILES[0]
        if not link.is_symlink() or not link.exists():
            return None
        cluster = Cluster(link.resolve().parent)
        return cluster if cluster._answers() else None

    def start(self) -> None:
        """Start every node. Raises ClusterError, with the reason, if that fails."""
        install()
        for name in ("run", "log", "state", "spool", "dev"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        _start_munge()
        if self._pid("slurmctld") is None:
            self._daemon("slurmctld")
        self._wait(self._answers, 60, "slurmctld does not answer")
        for node in self.nodes():
            self.up(node)
        self._wait(lambda: self._idle() == len(self.nodes()), 120, "not every node came up")

    def stop(self) -> None:
        """End all daemons, nodes first, and their jobs."""
        if self._answers():
            _run("scancel", "--user", "root")
            self._wait(lambda: not _run("squeue", "-h"), 60, "jobs are left")
        found = [pid for name in (*self.nodes(), "slurmctld") if (pid := self._pid(name))]
        for pid in found:
            os.kill(pid, signal.SIGTERM)
        self._wait(lambda: not any(map(_alive, found)), 60, "a daemon does not end")
        _remove_links()

    def down(self, node: str) -> None:
        """End a node's daemon; its jobs continue, and Slurm gives them up."""
        pid = self._needed(node)
        os.kill(pid, signal.SIGTERM)
        self._wait(lambda: not _alive(pid), 60, f"slurmd of {node} does not end")
        self._give_up(node)

    def crash(self, node: str) -> None:
        """End a node's daemon and all processes of its jobs at once."""
        for pid in [self._needed(node), *_processes_on(node)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._give_up(node)

    def up(self, node: str) -> None:
        """Start a node's daemon unless it is running."""
        if self._pid(node) is None:
            (self.folder / "spool" / node).mkdir(exist_ok=True)
            self._daemon("slurmd", "-N", node)

    @staticmethod
    def nodes() -> list[str]:
        """The names of all nodes."""
        return [node for partition in PARTITIONS for node in partition.node_names]

    @staticmethod
    def jobs(workdir: Path) -> list[dict[str, str]]:
        """The jobs submitted from `workdir`, including ended ones, with the fields of `scontrol
        show job` and Snakemake's `Rule`."""
        found = []
        for line in _run("scontrol", "show", "job", "--oneliner").splitlines():
            job = dict(re.findall(r"([\w:/]+)=(\S*)", line))
            if "JobId" in job and job["WorkDir"] == str(workdir):
                rule = re.match(r"rule_(\w+?)(_wildcards_|$)", job.get("Comment", ""))
                found.append({**job, "Rule": rule[1] if rule else ""})
        return found

    def cancel(self, workdir: Path) -> None:
        """Cancel the jobs that were submitted from `workdir` and have not ended."""
        waiting = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING")
        left = [j["JobId"] for j in self.jobs(workdir) if j["JobState"] in waiting]
        if left:
            _run("scancel", *left)

    def _configure(self) -> None:
        """Write the configuration and link to it from /etc/slurm."""
        lines = [SETTINGS.format(host=os.uname().nodename.split(".")[0], folder=self.folder)]
        gres: list[str] = []
        port = 17000
        for part in PARTITIONS:
            names = f"{part.name}-[1-{part.nodes}]"
            lines.append(
                f"NodeName={names} NodeAddr=127.0.0.1 Port={port + 1}-{port + part.nodes} "
                f"NodeHostname={os.uname().nodename.split('.')[0]} CPUs={part.cpus} "
                f"RealMemory={part.memory_gib * 1024} State=UNKNOWN"
                + (f" Gres={part.gres}" if part.gres else "")
            )
            default = " Default=YES" if part.name == "cpu" else ""
            lines.append(f"PartitionName={part.name} Nodes={names}{default}")
            gres += self._gres(part, names)
            port += 100
        for name, text in zip(FILES, (lines, gres), strict=True):
            (self.folder / name).write_text("\n".join(text) + "\n")
            link = CONFIG / name
            CONFIG.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(self.folder / name)

    def _gres(self, part: Partition, nodes: str) -> Iterator[str]:
        """Lines of gres.conf. Slurm counts GPUs by device files; links to /dev/null suffice."""
        if not part.gres:
            return
        _, kind, count = part.gres.split(":")
        for number in range(int(count)):
            link = self.folder / "dev" / f"{part.name}-{number}"
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        files = f"{self.folder}/dev/{part.name}-[0-{int(count) - 1}]"
        yield f"NodeName={nodes} Name=gpu Type={kind} File={files}"

    def _daemon(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            log = self.folder / "log"
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()} (logs: {log})")

    def _pid(self, name: str) -> int | None:
        """The process ID of slurmctld, or of a node's slurmd if `name` is the node."""
        program = "slurmctld" if name == "slurmctld" else "slurmd"
        try:
            pid = int((self.folder / "run" / f"{name}.pid").read_text())
            comm = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return None
        return pid if comm == program else None

    @staticmethod
    def _give_up(node: str) -> None:
        """Let Slurm call a node down now, as it does by itself after SlurmdTimeout."""
        _run("scontrol", "update", f"nodename={node}", "state=down", "reason=no answer")

    def _needed(self, node: str) -> int:
        pid = self._pid(node)
        if pid is None:
            raise ClusterError(f"slurmd of {node} does not run; nodes: {', '.join(self.nodes())}")
        return pid

    def _answers(self) -> bool:
        return self._pid("slurmctld") is not None and "is UP" in _run("scontrol", "ping")

    def _idle(self) -> int:
        """The number of nodes that can take jobs; a node that was down is resumed."""
        states = [line.split() for line in _run("sinfo", "-h", "-N", "-o", "%N %t").splitlines()]
        for node, state in states:
            if re.match("drain|drng|down|inval", state):
                _run("scontrol", "update", f"nodename={node}", "state=resume")
        return sum(bool(re.fullmatch("idle|mix|alloc|comp", state)) for _, state in states)

    def _wait(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise ClusterError(f"{otherwise} (logs: {self.folder / 'log'})")
            time.sleep(0.1)


def install() -> None:
    """Install what is missing. Raises NoSlurmHere if that is not possible."""
    if os.geteuid() != 0:
        raise NoSlurmHere("only root can start Slurm's daemons")
    link = CONFIG / FILES[0]
    if link.exists() and not link.is_symlink():
        raise NoSlurmHere(f"{link} exists: this machine has its own Slurm")
    if Cluster.running() is None:
        _remove_links()
    if all(shutil.which(program) for program in PROGRAMS):
        return
    if not shutil.which("apt-get"):
        raise NoSlurmHere("Slurm is not installed, and there is no apt-get to install it")
    held = not POLICY.exists()
    if held:  # installing a package must not start its daemon
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", *PACKAGES]):
            done = subprocess.run(
                ["apt-get", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise NoSlurmHere(f"Slurm cannot be installed: {done.stderr.strip()[-300:]}")
    finally:
        if held:
            POLICY.unlink()


def _remove_links() -> None:
    """Remove the links of a cluster that has ended, or whose tests were killed.

    Snakemake's Slurm plugin asks scontrol at every start, also of local runs, and waits 10 s for a
    controller that is dead.
    """
    for link in (CONFIG / name for name in FILES):
        if link.is_symlink():
            link.unlink()


def _start_munge() -> None:
    """Start munged, which authenticates Slurm's messages, unless it is running."""
    if _munge_answers():
        return
    if not Path("/etc/munge/munge.key").exists():
        subprocess.run(["mungekey", "-c"], check=True)
        shutil.chown("/etc/munge/munge.key", "munge", "munge")
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge", "munge")
    as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--init-groups"]
    subprocess.run([*as_munge, "munged", "--force"], check=True, capture_output=True)
    end = time.monotonic() + 60
    while not _munge_answers():
        if time.monotonic() > end:
            raise ClusterError("munged does not answer (log: /var/log/munge/munged.log)")
        time.sleep(0.1)


def _munge_answers() -> bool:
    return subprocess.run("munge -n | unmunge", shell=True, capture_output=True).returncode == 0


def _processes_on(node: str) -> set[int]:
    """The step daemons of a node, and all processes below them."""
    parents: dict[int, int] = {}
    environments: dict[int, bytes] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = (folder / "stat").read_text()
                parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
                environments[int(folder.name)] = (folder / "environ").read_bytes()
    mark = f"SLURMD_NODENAME={node}".encode()
    found = {pid for pid, text in environments.items() if mark in text.split(b"\0")}
    for pid in list(found):  # the step daemons themselves lack this variable
        parent = parents.get(pid, 0)
        with contextlib.suppress(OSError):
            if Path(f"/proc/{parent}/cmdline").read_bytes().startswith(b"slurmstepd"):
                found.add(parent)
    return found


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def _run(*command: str) -> str:
    """A command's output; empty if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def main(arguments: list[str]) -> int:
    """Run the command line."""
    place = os.environ.get(FOLDER) or str(Path(tempfile.gettempdir()) / "feedrate-slurm")
    cluster = Cluster.running() or Cluster(Path(place))
    match arguments:
        case ["install"]:
            install()
        case ["start"]:
            cluster.start()
        case ["stop"]:
            cluster.stop()
        case [("down" | "crash" | "up") as action, node] if node in cluster.nodes():
            getattr(cluster, action)(node)
        case _:
            print(__doc__)
            return 2
    if arguments[0] == "start":
        print(_run("sinfo", "-o", "%9P %5a %6D %8t %12G %N"), _run("squeue"), sep="\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ClusterError as error:
        sys.exit(f"cluster: {error}")
