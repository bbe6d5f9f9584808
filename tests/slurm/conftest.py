"""Fixtures: a real Slurm, started once per session, and projects that submit their jobs to it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import Cluster, NoSlurmHere, install
from fault_workflow import HANG, PART_OF_A_NODE, PROFILE, TRAIN, Workflow
from mini_project import DATA, MINI, Project, interpreter, know_code, make_project


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of this machine. If one is already running, it is used and left running."""
    try:
        install()
    except NoSlurmHere as reason:
        pytest.skip(str(reason))
    found = Cluster.running()
    cluster = found or Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    if not found:
        cluster.stop()


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Iterator[Project]:
    """A new project with the small study; its remaining jobs are cancelled at the end."""
    yield make_project(tmp_path)
    cluster.cancel(tmp_path)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with its dataset and that of self-tests, prepared without the cluster."""
    project = make_project(tmp_path_factory.mktemp("prepared"))
    config = yaml.safe_load((project.root / "config/config.yaml").read_text())
    project.config(datasets=config["datasets"] | {"generated": DATA})
    data = project.manifests("small", "generated")
    made = project.call("snakemake", "--profile", "profiles/local", *data)
    assert made.returncode == 0, made.stdout
    return project


@pytest.fixture(scope="session")
def make_workflow(cluster: Cluster, prepared: Project, tmp_path_factory):
    """Make a project: devices by name, each with what its rule requests from Slurm and how its
    processes are started. `two` gives it a second cell; `adapt` goes to the study."""
    made: list[Workflow] = []

    def _make(name: str, devices: dict[str, dict], cold: str | None = None) -> Workflow:
        root = tmp_path_factory.mktemp(name) / "project"
        subprocess.run(["cp", "-a", prepared.root, root], check=True)
        project = know_code(Project(root, cold=cold))
        rules = {}
        for device, entry in devices.items():
            start = entry.get("start", TRAIN)
            project.device(
                device,
                label=device,
                kind="cpu",
                count=1,
                capabilities=["fp32", "large_models"] if entry.get("two") else ["fp32"],
                software={"python": str(interpreter(root, device, start, project.python))},
                peaks=[],
                **dict.fromkeys(("job", "model_pattern", "launcher", "memory_gib")),
            )
            rules[f"train_{device}"] = entry["rule"]
        project.config(devices=list(devices))
        workers = {"sets": "loader.workers", "levels": [0]}
        if any(entry.get("two") for entry in devices.values()):
            workers |= {"levels": [0, 1], "requires": {"1": "large_models"}}
        project.study(
            factors=MINI["factors"] | {"workers": workers},
            adapt={name: entry["adapt"] for name, entry in devices.items() if "adapt" in entry},
        )
        profile = root / "profiles/faults/config.yaml"
        profile.parent.mkdir()
        profile.write_text(yaml.safe_dump(PROFILE | {"set-resources": rules}))
        made.append(Workflow(project))
        return made[-1]

    yield _make
    for workflow in made:
        if workflow.driver and workflow.driver.poll() is None:
            workflow.kill()
        cluster.cancel(workflow.root)
    cluster.start()  # nodes that are down come up again


@pytest.fixture(scope="session")
def hanging(make_workflow) -> Workflow:
    """A job that never ends by itself; its limit is 1 min, then 2. It runs beside all tests."""
    rule = PART_OF_A_NODE | {"runtime": "min(attempt, 2)"}
    device = {"a100": {"rule": rule, "start": HANG}}
    workflow = make_workflow("hanging", device)
    workflow.start()
    return workflow


@pytest.fixture(scope="session", autouse=True)
def early(request: pytest.FixtureRequest) -> None:
    """Start what lasts longest before the first test."""
    if any("hanging" in item.fixturenames for item in request.session.items):
        request.getfixturevalue("hanging")
