"""The config files of profiles, which a --configfile of the user's would hide."""

import os
import sys
from pathlib import Path

from feedrate import variables


def profile_files(*, main_process: bool) -> list[Path]:
    """The files under `configfile` in the profiles that this call of Snakemake names.

    Of the command line and a profile, Snakemake takes one `--configfile` alone. Here the profile's
    are asked for apart from the user's, so that the latter can be laid over them. Jobs, which are
    called without a profile, read what the main process found.
    """
    if main_process:
        os.environ[variables.PROFILE_FILES] = os.pathsep.join(_of_profiles(sys.argv[1:]))
    return [
        Path(name) for name in os.environ.get(variables.PROFILE_FILES, "").split(os.pathsep) if name
    ]


def _of_profiles(arguments: list[str]) -> list[str]:
    """The config files of the profiles that stand on a command line; without one of the user's
    there is nothing to do, since Snakemake has read them."""
    if not any(word.startswith("--configfile") for word in arguments):
        return []
    from snakemake.cli import get_argument_parser

    profiles = get_argument_parser().parse_known_args(arguments)[0].profile
    if not profiles:
        return []
    found = get_argument_parser(profiles=profiles).parse_known_args([])[0].configfile
    return [str(Path(name).resolve()) for name in found]
