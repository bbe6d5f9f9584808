"""The configuration of one call: how Snakemake was called, the files in order of precedence, read
strictly, and a check of the files on this host that they name."""

import argparse
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from typing import Any

from feedrate.config.errors import ConfigError, Problems, not_one_of, raise_all
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.spec import RunSpec, Software
from feedrate.config.values import convert, merged, parse_yaml, read_yaml
from feedrate.config.workflow import Folder, LocalExamples
from feedrate.core import paths, variables
from feedrate.core.errors import ExpectedError, explain
from feedrate.data.manifest import DataError
from feedrate.data.sources.folder import check_folder
from feedrate.data.tables import example_tables
from feedrate.devices import host
from feedrate.devices.launch import interpreter
from feedrate.models.build import ModelError, find_checkpoint, local_folder
from feedrate.results.expression import check_expressions
from feedrate.results.files import CELLS, RUNS, for_studies

CONFIG = Path("config/config.yaml")
PROFILES = Path("profiles")
PROFILE_FOLDERS = (Path(), Path("~/.config/snakemake"), Path("/etc/xdg/snakemake"))


class Layers:
    """The mappings that make up the configuration; later ones override earlier ones."""

    def __init__(self, layers: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Each layer with the name of its file; the first is config.yaml."""
        self._layers = list(layers)
        self.values: dict[str, Any] = reduce(merged, (values for _, values in self._layers), {})

    def origin(self, key: str) -> str:
        """The file that `key`, such as `datasets.hub.name` or `devices[1]`, comes from; for a key
        that no file has, the last file with the mapping it belongs to, or else config.yaml."""
        for name, values in reversed(self._layers):
            if key in values:  # also one that is wrong: `--config datasets.hub.name=x`
                return name
        origin, layers = self._layers[0][0], self._layers
        for name in re.sub(r"\[\d+\]", "", key).split("."):
            layers = [(o, v[name]) for o, v in layers if isinstance(v, Mapping) and name in v]
            origin = layers[-1][0] if layers else origin
        return origin


def read_layers(files: Iterable[Path], assignments: Iterable[str] = ()) -> Layers:
    """config.yaml, `files` in their order, and the KEY=VALUE `assignments` of --config. Raises
    ConfigError for a file that is not strict YAML."""
    layers = [_read_file(file) for file in (CONFIG, *files)]
    values = {}
    for word in assignments:
        key, _, text = word.partition("=")
        try:
            values[key] = parse_yaml(text, key)
        except ConfigError:
            raise ConfigError(f"command line: {key}: {text!r} is not a value of YAML") from None
    return Layers([*layers, ("command line", values)])


def layers_of(workflow: Any) -> Layers:
    """The configuration of Snakemake's workflow. Read before Snakemake reads the same files: it is
    less strict and names no line. Raises ConfigError."""
    files, settings = profile_files(main_process=workflow.is_main_process), workflow.config_settings
    return read_layers([*files, *settings.configfiles], settings.config_args or ())


def _read_file(file: Path) -> tuple[str, dict[str, Any]]:
    """A file's name in messages, from the project's root if it is there, and its mapping."""
    path, root = paths.expand(file).resolve(), Path.cwd().resolve()
    origin = str(path.relative_to(root) if path.is_relative_to(root) else path)
    return origin, convert(read_yaml(file, origin), dict[str, Any], origin)


@contextmanager
def workflow_errors() -> Iterator[None]:
    """Snakemake shows an expected failure, such as a wrong configuration, without a traceback."""
    from snakemake.exceptions import WorkflowError

    try:
        yield
    except (ExpectedError, OSError) as error:
        raise WorkflowError(explain(error)) from None


def load(root: Path, layers: Layers) -> Project:
    """The whole configuration of the project in `root`. Raises ConfigError."""
    project = load_project(root, layers.values, host.machine, layers.origin)
    for name, study in project.studies.items():
        check_expressions(name, study, project.devices)
        for columns in (RUNS, CELLS):
            for_studies(columns, {name: study})  # a factor has a column there too
    return project


def check_targets(root: Path, project: Project, layers: Layers, targets: Iterable[str]) -> None:
    """Raise ConfigError for a target that is a study which the configuration does not select."""
    others = set(study_names(root)) - set(project.config.studies)
    for name in targets:
        if name in others:
            raise ConfigError(
                f"{layers.origin('studies')}: studies: {name} is not among them; add it there, or "
                f"select it with --config 'studies=[{name}]' (make run: STUDY={name})"
            )


# Profiles, which `python -m feedrate` reads without Snakemake.


def read_profile(name: str) -> tuple[str, list[Path]]:
    """Executor and configuration files of the profile that Snakemake would use. Raises ConfigError
    if there is none, with all names, or if the names of its files are wrong."""
    for root in PROFILE_FOLDERS:
        profile = paths.expand(root) / name
        for file in (profile, profile / "profile.yaml", profile / "config.yaml"):
            if not file.is_file():
                continue
            origin, values = _read_file(file)
            problems = Problems(origin)
            key = "configfile" if values.get("configfile") else "configfiles"
            names = values.get(key) or []
            names = [names] if isinstance(names, str) else names
            if problems.check_type(key, names, list[str]):
                for path in names:
                    problems.check_path(key, path)
            raise_all(problems)
            folder = file.parent
            files = [folder / path if (folder / path).exists() else Path(path) for path in names]
            return str(values.get("executor", "local")), files
        if profile.is_dir():  # its file is for certain versions of Snakemake
            return "", []
    if name in profile_names():  # Snakemake does not look there
        link = f"ln -s {PROFILES / name}"
        raise ConfigError(
            f"--profile: {name!r} has no link here; make one (`{link}`), or use {PROFILES / name}"
        )
    raise ConfigError(f"--profile: {not_one_of(name, profile_names(), 'profiles')}")


def profile_names() -> list[str]:
    """The project's own profiles."""
    return [file.parent.name for file in sorted(PROFILES.glob("*/config.yaml"))]


# Files on this host. On another host, an absolute path may name another file, so it is checked only
# if jobs run here. Relative paths start at the project's root, which all hosts share.


def check_files(
    project: Project, specs: Sequence[RunSpec], layers: Layers, *, runs_here: bool
) -> None:
    """Raise ConfigError for files that the configuration names and that do not exist, and that the
    runs `specs` would need. `runs_here`: jobs run on this host."""
    config = project.config
    problems = Problems(layers.origin)
    downloads_here = runs_here or "downloads" in config.on_driver
    dataset = config.datasets[config.dataset]
    if isinstance(dataset, Folder) and (downloads_here or _is_shared(dataset.path)):
        check_folder(problems, f"datasets.{config.dataset}", dataset)
    evaluates = any(spec.protocol.evaluate for spec in specs)
    copy = config.winoground_sets.get(config.winoground or "") if evaluates else None
    if isinstance(copy, LocalExamples) and (downloads_here or _is_shared(copy.path)):
        try:
            example_tables(Path(copy.path))
        except DataError as error:
            problems.add(f"winoground_sets.{config.winoground}.path", str(error))
    models = {(spec.settings.model.checkpoint, spec.study): spec.settings.model for spec in specs}
    for (name, study), model in models.items():
        if name and local_folder(model) and (runs_here or _is_shared(name)):
            try:
                find_checkpoint(model)
            except ModelError as error:
                origin, text = f"config/studies/{study}.yaml", str(error)
                if name == config.checkpoint:
                    origin, text = layers.origin("checkpoint"), text.removeprefix("model.")
                if f"{origin}: {text}" not in problems:
                    problems.append(f"{origin}: {text}")
    registry = Problems("config/devices.yaml")
    for name in dict.fromkeys(spec.device for spec in specs):
        for key, text in _software_faults(project.devices[name].software, runs_here=runs_here):
            registry.add(f"{name}.software.{key}", text)
    raise_all([*problems, *registry])


def _software_faults(software: Software, *, runs_here: bool) -> Iterator[tuple[str, str]]:
    """Keys of a device's software whose program or image this host lacks, with the reason. Only the
    job knows an interpreter in a container, or one of an environment module."""
    python, image = software.python, software.container
    where = f"on {platform.node()}, where its jobs run" if runs_here else "in the project's folder"
    if image:
        is_checked = "://" not in image and (runs_here or _is_shared(image))
        if is_checked and not paths.expand(image).exists():
            yield "container", f"there is no image {image} {where}"
    elif python and not software.modules:
        is_checked = runs_here or ("/" in python and _is_shared(python))
        path = software.environment.get("PATH")
        if is_checked and shutil.which(interpreter(software), path=path) is None:
            yield "python", f"there is no program {python} {where}"


def _is_shared(path: str) -> bool:
    return not paths.expand(path).is_absolute()


# How this Snakemake was called, which the Snakefile sees only in part.


def snakemake_options(words: Sequence[str]) -> argparse.Namespace:
    """Snakemake's options in `words`, and in the profiles that they name."""
    from snakemake.cli import get_argument_parser

    options: argparse.Namespace = get_argument_parser().parse_known_args(words)[0]
    if options.profile:
        options = get_argument_parser(profiles=options.profile).parse_known_args(words)[0]
    return options


@cache
def call() -> argparse.Namespace:
    """Snakemake's options in this process, Snakemake's main process; `choices` are the words that
    select the profile and override keys of config.yaml."""
    options = snakemake_options(sys.argv[1:])
    options.is_local = options.executor in (None, "", "local")
    options.choices, is_choice = [], False
    for word in sys.argv[1:]:
        if word.startswith("-"):
            is_choice = word.partition("=")[0] in ("--profile", "--configfile", "--config", "-C")
        if is_choice:
            options.choices.append(word)
            is_choice = options.choices[-2:-1] != ["--profile"]  # targets may follow
    return options


def profile_files(*, main_process: bool) -> list[Path]:
    """The files under `configfile` in the profiles of this call, which the --configfile of the
    command line overrides. Jobs, called without a profile, read those of the main process."""
    if main_process:
        files: list[Path] = []
        profiles = call().profile or []
        if profiles and any(word.startswith("--configfile") for word in sys.argv):
            words = [f"--profile={profile}" for profile in profiles]
            files = snakemake_options(words).configfile or []
        os.environ[variables.PROFILE_FILES] = os.pathsep.join(str(f.resolve()) for f in files)
    names = os.environ.get(variables.PROFILE_FILES, "").split(os.pathsep)
    return [Path(name) for name in names if name]
