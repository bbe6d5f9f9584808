"""`python -m feedrate cancel`: this project's jobs on the cluster, and their end."""

import argparse

from feedrate.core import scheduler
from feedrate.flow import driver
from feedrate.report.text import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list the jobs")
    text = "cancel even while a call works in this folder"
    parser.add_argument("--force", action="store_true", help=text)


def cancel(options: argparse.Namespace) -> int:
    """List the jobs and cancel them; return the exit code."""
    reason = driver.occupied()
    if reason and not (options.force or options.dry_run):
        raise driver.Occupied(f"{reason} with Ctrl-C, which cancels its jobs, or use --force")
    jobs = scheduler.own_jobs()
    for job in jobs:
        print(f"{job.id}  {job.state.lower()}  {job.rule}  {job.nodes or job.reason}".rstrip())
    if not jobs:
        print(f"This project has no jobs on {scheduler.NAME}.")
    elif not options.dry_run:
        scheduler.cancel(jobs)
        print(f"Cancelled {counted(len(jobs), 'job')}.")
    return 0
