"""Every profile, and every study on each kind of device: dry-runs, and what each training job would
ask for."""

import functools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from mini_project import ROOT, Project, make_project

from feedrate.cli.snakemake import layers_of
from feedrate.config.values import merged

PROFILES = sorted(path.name for path in (ROOT / "profiles").iterdir() if path.is_dir())
STUDIES = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
DEVICES = {
    "local": "cpu",
    "gaudi-node": "gaudi2",
    "gpu-node": "h100",
    "slurm": "h100",
    "gaudi": "gaudi2",
}
"""What each trains on: what it chooses, or what is detected by the tools below."""
CLUSTERS = ("slurm", "gaudi")
TOOLS = {
    "gaudi-node": ("hl-smi", "HL-225\n" * 8),
    "gpu-node": (
        "nvidia-smi",
        "".join(
            f"NVIDIA H100 80GB HBM3, GPU-{n}, 00000000:0{n}:00.0, Disabled\n" for n in range(8)
        ),
    ),
}
"""What a server with eight cards says of itself."""
PLANNED = {profile: tuple(STUDIES[:1] if profile in TOOLS else STUDIES) for profile in PROFILES}
"""The studies of each profile's plan, with one repeat. A server plans what a cluster plans for the
same device: no key of a profile is for one study."""

SMALL = ("fetch_dataset", "fetch_checkpoint", "parse_logs", "collect_results", "write_report")
"""Downloads and short rules."""

GPU_FORMS = {
    "registry": ([], "--gres=gpu:8"),
    "gres": (['    # gres: "gpu:h100:8"'], "--gres=gpu:h100:8"),
    "gpu": (['    # gres: ""', "    # gpu: 8", "    # gpu_model: h100"], "--gpus=h100:8"),
}
"""Lines of profiles/slurm that a user takes the # from, and what sbatch is asked then."""


@dataclass
class Job:
    """A job of a dry-run."""

    rule: str
    runs_here: bool
    output: list[str]
    threads: int
    resources: dict[str, int | str]


@dataclass
class Plan:
    """The jobs of a dry-run."""

    jobs: list[Job]

    def of_rule(self, rule: str) -> list[Job]:
        return [job for job in self.jobs if job.rule == rule]

    def rules(self, start: str = "") -> set[str]:
        return {job.rule for job in self.jobs if job.rule.startswith(start)}

    def sent(self) -> set[str]:
        """The rules of jobs that are sent to a cluster."""
        return {job.rule for job in self.jobs if not job.runs_here}

    def resources(self, rule: str) -> dict[str, Any]:
        """What all jobs of a rule ask for alike."""
        found = {tuple(sorted(job.resources.items())) for job in self.of_rule(rule)}
        assert len(found) == 1, f"{rule}: {found}"
        return dict(found.pop())

    def sbatch(self, rule: str) -> list[str]:
        """The words of the command by which the executor would send a job of a rule."""
        # They take seconds: not for all workers.
        from snakemake_executor_plugin_slurm.submit_string import get_submit_command
        from snakemake_executor_plugin_slurm.utils import set_gres_string

        job = self.of_rule(rule)[0]
        resources = Resources({k: v for k, v in job.resources.items() if v is not None})
        sent = SimpleNamespace(resources=resources, threads=job.threads)
        params = {"run_uuid": "id", "slurm_logfile": "log", "comment_str": rule, "workdir": ""}
        params |= {"account": "", "partition": f"-p {resources['slurm_partition']}"}
        settings = SimpleNamespace(requeue=False, no_requeue=True, qos=None, reservation=None)
        command = get_submit_command(sent, params, settings)
        return shlex.split(command + set_gres_string(sent))


class Resources(dict):
    """Resources as the executor reads them: by attribute too."""

    __getattr__ = dict.__getitem__


def plan(project: Project, *arguments: str, tools: Path | None = None) -> Plan:
    """Call Snakemake's dry-run as typed in the project's root."""
    env = project.env()
    if tools:
        env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        [project.python, "-m", "snakemake", "--dry-run", "--quiet", "host", *arguments],
        cwd=project.root,
        env=env,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    profile = arguments[arguments.index("--profile") + 1]
    given = [word for word in arguments if word.startswith("on_driver=")]
    here = given[0] if given else values_of(project, profile)["on_driver"]
    local = local_rules(here) if profile in CLUSTERS else ("",)
    blocks = re.split(r"^(?=rule \w+:$)", done.stdout + done.stderr, flags=re.M)[1:]
    return Plan([read_job(block, local) for block in blocks])


def local_rules(on_driver: str | list[str]) -> tuple[str, ...]:
    """The rules that run on the driver's host."""
    text = "".join(file.read_text() for file in (ROOT / "workflow/rules").glob("*.smk"))
    local: dict[str, bool] = {}
    for block in re.split(r"^(?=rule \w+:|use rule )", text, flags=re.M)[1:]:
        base = re.match(r"use rule (\w+) as (\w+)", block)
        if base:
            local[base[2]] = local[base[1]]
            continue
        word = re.search(r'localrule: "(\w+)" in ON_DRIVER', block)
        name = block.split()[1].rstrip(":")
        local[name] = word is not None and word[1] in on_driver
    return tuple(name for name, here in local.items() if here)


def read_job(block: str, local: tuple[str, ...]) -> Job:
    """A job from its lines in a dry-run."""
    head, *lines = block.splitlines()
    rule = head.rstrip(":").split()[1]
    values = {key: text for key, _, text in (line.strip().partition(": ") for line in lines)}
    pairs = re.split(r", (?=\w+=)", values.get("resources", ""))
    resources = {key: text for key, _, text in (pair.partition("=") for pair in pairs)}
    return Job(
        rule=rule,
        runs_here=rule.startswith(local),
        output=values.get("output", "").split(", "),
        threads=int(values.get("threads", 1)),
        resources={
            key: int(text) if text.isdecimal() else text
            for key, text in resources.items()
            if key not in ("tmpdir", "tries")
        },
    )


def values_of(project: Project, profile: str, *files: str) -> dict[str, Any]:
    """The configuration of a call with a profile and files of the command line."""
    options = SimpleNamespace(
        profile=str(project.root / "profiles" / profile),
        configfile=[str(project.root / file) for file in files],
        study=None,
        device=None,
        dataset=None,
        config=[],
    )
    return layers_of(options).values


def committed(root: Path) -> Project:
    """A fresh project with the configuration as it is committed."""
    project = make_project(root)
    shutil.copy(ROOT / "config/config.yaml", project.root / "config/config.yaml")
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that a test may edit."""
    return committed(tmp_path)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Plan]:
    """The plan of a profile and some studies, as typed, on a server that has the right cards."""
    project = committed(tmp_path_factory.mktemp("planned"))

    @functools.cache
    def make(profile: str, *studies: str) -> Plan:
        folder = None
        if profile in TOOLS:
            name, answer = TOOLS[profile]
            folder = project.root / "home" / profile
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{answer}END\n")
            (folder / name).chmod(0o755)
        chosen = f"studies=[{','.join(studies)}]"
        return plan(project, "--profile", profile, "--config", chosen, "repeats=1", tools=folder)

    return make


def rule_of(device: str) -> str:
    return f"train_{device.replace('-', '_')}"


def settings_of(profile: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / f"profiles/{profile}/config.yaml").read_text())


@pytest.mark.parametrize(
    ("profile", "study"), [(profile, study) for profile in PROFILES for study in PLANNED[profile]]
)
def test_a_study_is_planned_for_the_profiles_device(planned, profile, study):
    found = planned(profile, *PLANNED[profile])
    trained = [
        job
        for job in found.jobs
        if job.rule.startswith("train_") and job.output[0].startswith(f"runs/{study}/")
    ]
    assert {job.rule for job in trained} == {rule_of(DEVICES[profile])}
    assert {job.runs_here for job in trained} == {profile not in CLUSTERS}


@pytest.mark.parametrize("profile", PROFILES)
def test_data_and_weights_are_those_that_the_profile_says(planned, project, profile):
    choices = ROOT / f"profiles/{profile}/choices.yaml"
    expected = yaml.safe_load(choices.read_text()) if choices.exists() else {"checkpoint": None}
    config = values_of(project, profile)
    assert {key: config[key] for key in expected} == expected
    fetched = planned(profile, *PLANNED[profile]).rules("fetch_")
    weights = {"fetch_checkpoint"} if expected["checkpoint"] else set()
    assert fetched - {"fetch_winoground"} == {"fetch_dataset"} | weights


@pytest.mark.parametrize("profile", CLUSTERS)
def test_every_device_of_a_profile_asks_for_what_profile_and_registry_say(project, profile):
    registry = yaml.safe_load((ROOT / "config/devices.yaml").read_text())
    settings = settings_of(profile)
    devices = [name for name in registry if rule_of(name) in settings["set-resources"]]
    assert len(devices) >= 4
    found = plan(project, "--profile", profile, "--config", f"devices=[{','.join(devices)}]")
    for device in devices:
        asked = found.resources(rule_of(device))
        own = settings["set-resources"][rule_of(device)]
        assert {key: asked[key] for key in own} == own
        assert asked.get("gres") == own.get("gres", registry[device].get("job", {}).get("gres"))
        expected = settings["default-resources"] | own
        assert asked["slurm_partition"] == expected["slurm_partition"]
        assert asked["mem_mb"] == expected["mem_mb"]
        # What the protocol of the study allows, and 20 minutes for the start.
        assert asked["runtime"] == own.get("runtime", 240 + 20)
        assert "nodes" not in asked


@pytest.mark.parametrize("profile", CLUSTERS)
def test_every_rule_that_a_profile_sets_exists(profile):
    rules = set(settings_of(profile)["set-resources"])
    registry = yaml.safe_load((ROOT / "config/devices.yaml").read_text())
    kinds = ("train_", "selftest_")
    of_devices = {rule for rule in rules if rule.startswith(kinds)}
    trained = {rule_of(name) for name in registry}
    assert of_devices <= {name.replace("train_", kind) for name in trained for kind in kinds}
    files = [*(ROOT / "workflow/rules").glob("*.smk"), ROOT / "Snakefile"]
    pattern = r"^(?:use rule \w+ as|rule) (\w+)"
    named = {name for f in files for name in re.findall(pattern, f.read_text(), re.M)}
    assert rules - of_devices <= named


def test_a_store_is_made_with_the_checkpoints_tokenizer(project):
    chosen = ["--config", "studies=[dataloading-levels]", "--profile", "gaudi"]
    rules = plan(project, *chosen, "--until", "store_dataset").rules()
    data = {"fetch_dataset", "preprocess_dataset", "fetch_checkpoint", "store_dataset"}
    assert rules - {"all"} == data


@pytest.mark.parametrize("profile", CLUSTERS)
def test_downloads_go_to_the_network_and_short_rules_stay_here(planned, profile):
    found = planned(profile, STUDIES[0])
    assert found.resources("fetch_checkpoint")["slurm_partition"] == "network"
    assert found.resources("fetch_dataset")["slurm_partition"] == "network"
    assert found.resources("preprocess_dataset")["slurm_partition"] == "cpu"
    sent = found.sent()
    data = {"fetch_dataset", "fetch_checkpoint", "fetch_winoground", "preprocess_dataset"}
    assert sent - {"all"} == data | {rule_of(DEVICES[profile])}


@pytest.mark.parametrize(("on_driver", "here"), [("[]", False), ("[short,downloads]", True)])
def test_where_downloads_and_short_rules_run_is_a_choice(project, on_driver, here):
    found = plan(project, "--profile", "gaudi", "--config", f"on_driver={on_driver}")
    places = {job.rule: job.runs_here for job in found.jobs}
    assert {places[rule] for rule in SMALL} == {here}


@pytest.mark.parametrize("form", GPU_FORMS)
def test_gpus_are_asked_for_in_the_form_that_a_site_wants(project, form):
    lines, expected = GPU_FORMS[form]
    for line in lines:
        project.edit("profiles/slurm/config.yaml", line, line.replace("# ", "", 1))
    words = plan(project, "--profile", "slurm").sbatch("train_h100")
    assert [word for word in words if word.startswith(("--gres", "--gpus"))] == [expected]
    assert "--cpus-per-task=192" in words
    assert "--exclusive" in words
    assert words[words.index("-p") + 1] == "h100"
    assert words[words.index("--mem") + 1] == "1800000"
    assert not [word for word in words if word.startswith("--ntasks-per-gpu")]


def test_several_nodes_are_a_task_on_each(project):
    project.device("h100", count=16, nodes=2)
    words = plan(project, "--profile", "slurm").sbatch("train_h100")
    assert {"--nodes=2", "--ntasks=2", "--gres=gpu:8", "--cpus-per-task=192"} <= set(words)
    assert not [word for word in words if word.startswith("--ntasks-per-gpu")]


def test_a_file_of_ones_own_goes_over_what_the_profile_chooses(project):
    own = {"dataset": "generated", "checkpoint": None, "checkpoint_revision": None}
    (project.root / "config/local.yaml").write_text(yaml.safe_dump(own))
    found = plan(project, "--profile", "gaudi", "--configfile", "config/local.yaml")
    config = values_of(project, "gaudi", "config/local.yaml")
    assert {key: config[key] for key in own} == own
    assert config["devices"] == ["gaudi2"]
    assert found.rules("fetch_") == {"fetch_dataset", "fetch_winoground"}


def test_data_and_weights_can_be_fetched_elsewhere(project):
    choices = ["--configfile", "profiles/gaudi/choices.yaml"]
    fetching = ["--until", "fetch_dataset", "fetch_checkpoint", "fetch_winoground"]
    found = plan(project, "--profile", "local", *fetching, *choices)
    assert found.rules() == set(fetching[1:])
    for job in found.jobs:
        for path in job.output:
            (project.root / path).parent.mkdir(parents=True)
            (project.root / path).touch()
    assert plan(project, "--profile", "gaudi").rules("fetch_") == set()


def test_the_worked_example_of_the_readme_is_what_it_says(project):
    text = (ROOT / "profiles/README.md").read_text()
    blocks = re.findall(r"^```yaml (\S+)\n(.*?)^```$", text, flags=re.M | re.S)
    assert len(blocks) == 3
    for name, changes in blocks:
        file = project.root / name
        new = merged(yaml.safe_load(file.read_text()), yaml.safe_load(changes))
        file.write_text(yaml.safe_dump(new, sort_keys=False))
    found = plan(project, "--profile", "gaudi")
    asked = {"--gres=hpu:8", "--cpus-per-task=152", "--exclusive", "960000", "300", "ai"}
    assert asked <= set(found.sbatch("train_gaudi2"))
    assert found.resources("preprocess_dataset")["slurm_account"] == "proj042"
    assert found.resources("preprocess_dataset")["slurm_partition"] == "batch"
    sent = found.sent()
    assert sent - {"all"} == {"preprocess_dataset", "train_gaudi2"}


@pytest.mark.parametrize("profile", CLUSTERS)
def test_what_makes_runs_hang_on_slurm_is_shut_out(profile):
    settings = settings_of(profile)
    assert settings["slurm-status-command"] == "squeue"
    assert settings["slurm-status-attempts"] >= 100
    assert settings["slurm-no-requeue"] is True
    assert settings["retries"] == 2
