"""Snakemake asks Slurm every second whether jobs have ended.

Its plugin waits ten seconds longer after each answer that names no ended job, up to three minutes.
"""

from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

INTERVAL_S = 1
sleep = RemoteExecutor.sleep


async def short_sleep(executor: RemoteExecutor) -> None:
    executor.next_seconds_between_status_checks = INTERVAL_S
    await sleep(executor)


RemoteExecutor.sleep = short_sleep
