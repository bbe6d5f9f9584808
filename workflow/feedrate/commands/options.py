"""Options that several commands share, and Snakemake's arguments that they stand for."""

import argparse


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Which profile, and what of the configuration to lay over config.yaml."""
    parser.add_argument("--profile", default="profiles/local", help="default: %(default)s")
    parser.add_argument("--study", action="append", help="a file in config/studies; repeatable")
    parser.add_argument(
        "--device",
        action="append",
        help="an entry of devices.yaml, or `detected` for what this machine has; repeatable",
    )
    parser.add_argument("--dataset", help="one of `datasets` in config.yaml")
    parser.add_argument(
        "--configfile",
        nargs="+",
        default=[],
        metavar="FILE",
        help="YAML that overrides keys of config.yaml",
    )
    parser.add_argument(
        "--config",
        "-C",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keys of config.yaml, as Snakemake takes them; repeatable",
    )


def config_arguments(options: argparse.Namespace) -> list[str]:
    """The choices as arguments of Snakemake; they come last, as --config takes all that follows."""
    values = [
        f"{key}=[{','.join(names)}]"
        for key, names in (("studies", options.study), ("devices", options.device))
        if names
    ]
    if options.dataset:
        values.append(f"dataset={options.dataset}")
    arguments = {"--configfile": options.configfile, "--config": [*values, *options.config]}
    return [word for flag, words in arguments.items() if words for word in (flag, *words)]
