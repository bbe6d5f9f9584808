"""`python -m feedrate cancel`: end this project's jobs that a killed driver left on Slurm."""

import argparse

from feedrate.core import slurm
from feedrate.core.errors import fail
from feedrate.flow import driver


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("-n", "--dry-run", action="store_true", help="list them only")
    parser.add_argument(
        "--force", action="store_true", help="even where a run works in this folder"
    )


def run(options: argparse.Namespace, passed_on: list[str]) -> int:
    """List the jobs and cancel them; the exit code."""
    if passed_on:
        return fail("feedrate", f"unknown: {' '.join(passed_on)}", 2)
    other = driver.other_driver() or driver.unseen_driver()
    if other and not (options.force or options.dry_run):
        return fail(
            "feedrate",
            f"these jobs may belong to a run that works in this folder ({other}); stop it with "
            "Ctrl-C, which cancels them, or say --force",
            3,
        )
    jobs = slurm.own_jobs()
    if not jobs:
        print("No jobs of this project are on Slurm.")
        return 0
    for job in jobs:
        print(f"{job.id}  {job.state.lower()}  {job.rule}  {job.nodes or job.reason}".rstrip())
    if options.dry_run:
        return 0
    try:
        slurm.cancel(jobs)
    except slurm.SlurmError as error:
        return fail("feedrate", error)
    print(f"Cancelled {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}.")
    return 0
