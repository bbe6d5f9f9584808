"""`python -m feedrate cancel`: cancel this project's jobs that a killed run left on Slurm."""

import argparse

from feedrate.core import slurm
from feedrate.core.errors import fail
from feedrate.flow import driver


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list the jobs")
    parser.add_argument(
        "--force", action="store_true", help="cancel even while a run is active in this folder"
    )


def run(options: argparse.Namespace) -> int:
    """List the jobs and cancel them; return the exit code."""
    other = driver.other_driver() or driver.unseen_driver()
    if other and not (options.force or options.dry_run):
        return fail(
            "feedrate",
            f"these jobs may belong to the active run in this folder ({other}): stop it with "
            "Ctrl-C, which cancels them, or use --force",
            3,
        )
    jobs = slurm.own_jobs()
    for job in jobs:
        print(f"{job.id}  {job.state.lower()}  {job.rule}  {job.nodes or job.reason}".rstrip())
    if not jobs:
        print("This project has no jobs on Slurm.")
    elif not options.dry_run:
        slurm.cancel(jobs)
        print(f"Cancelled {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}.")
    return 0
