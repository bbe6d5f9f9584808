"""Where everything lies, relative to the working directory; no path is typed anywhere else."""

from pathlib import Path

RESULTS = "results"
DATASETS = "resources/datasets"
LOGS = "logs"

RAW_INDEX = f"{DATASETS}/{{dataset}}/raw/index.json"
"""What `fetch_dataset` brought: one entry a file with its SHA-256, and the rows."""
PREPARED = f"{DATASETS}/{{dataset}}/prepared"
MANIFEST = f"{PREPARED}/manifest.json"
"""Checksums and counts of the prepared data; written last, so its presence means 'complete'."""
DATA_REPORT = f"{PREPARED}/data_report.json"

RUN = f"{RESULTS}/{{study}}/{{device}}/{{cell}}/rep{{repeat}}"
"""The folder of one run."""
SPEC = f"{RUN}/spec.json"
EVENTS = f"{RUN}/events.jsonl"
OUTCOME = f"{RUN}/outcome.json"
"""How the job ended (written last); `train.log` and the other ranks' events lie beside it."""
TRAIN_LOG = f"{RUN}/train.log"
RECORD = f"{RUN}/record.json"

RESULTS_CSV = f"{RESULTS}/results.csv"
RESULTS_PARQUET = f"{RESULTS}/results.parquet"
CELLS_CSV = f"{RESULTS}/cells.csv"
"""One row a cell: median over the repeats, interval, verdict."""
CLAIMS_CSV = f"{RESULTS}/claims.csv"
TABLE = f"{RESULTS}/{{study}}/tables/{{table}}.html"
FIGURE = f"{RESULTS}/{{study}}/figures/{{figure}}.svg"
OVERVIEW = f"{RESULTS}/overview.html"
"""The report's first page, which `report/workflow.rst` takes in."""


def run_dir(study: str, device: str, cell: str, repeat: int) -> Path:
    """The folder of one run."""
    return Path(RUN.format(study=study, device=device, cell=cell, repeat=repeat))
