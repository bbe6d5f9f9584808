"""Where everything lies, relative to the working directory; no path is typed anywhere else."""

from pathlib import Path

RESULTS = "results"
DATASETS = "resources/datasets"
LOGS = "logs"

EVALUATE_RULE = "evaluate_"
TRAIN_RULE = "train_"
"""The names of the rules that use a device begin so, and end in the device's."""

RAW_INDEX = f"{DATASETS}/{{dataset}}/raw/index.json"
"""What `fetch_dataset` brought: one entry a file with its SHA-256, and the rows."""
PREPARED = f"{DATASETS}/{{dataset}}/prepared"
MANIFEST = f"{PREPARED}/manifest.json"
"""Checksums and counts of the prepared data; written last, so its presence means 'complete'."""
DATA_REPORT = f"{PREPARED}/data_report.json"
STORE = f"{DATASETS}/{{dataset}}/store/{{store}}/index.json"
"""Pictures decoded once, and captions tokenised once, for a model's sizes: `loader.decode: cache`.
Written last, so its presence means 'complete'."""

WINOGROUND = "resources/winoground/{winoground}/examples.json"
"""A copy of Winoground with its images; written last, so its presence means 'complete'."""

CHECKPOINT = "resources/checkpoints/{checkpoint}/fetched.json"
"""What `fetch_checkpoint` brought, beside the files of a hub checkpoint; `checkpoint` stands for
`checkpoint_key`."""

RUN = f"{RESULTS}/{{study}}/{{device}}/{{cell}}/rep{{repeat}}"
"""The folder of one run."""
SPEC_NAME, EVENTS_NAME, OUTCOME_NAME = "spec.json", "events.jsonl", "outcome.json"
LOG_NAME, RECORD_NAME, TRAINER_NAME, MODEL_NAME = "train.log", "record.json", "trainer", "model"
"""What a run's folder holds, by its own name: a job works in a folder apart."""
ANY_EVENTS = "events*.jsonl"
SPEC = f"{RUN}/{SPEC_NAME}"
EVENTS = f"{RUN}/{EVENTS_NAME}"
"""Rank 0's; see `events_name`."""
OUTCOME = f"{RUN}/{OUTCOME_NAME}"
"""How the job ended, written last."""
TRAIN_LOG = f"{RUN}/{LOG_NAME}"
RUN_BENCHMARK = f"{RUN}/benchmark.tsv"
RECORD = f"{RUN}/{RECORD_NAME}"
MODEL = f"{RUN}/{TRAINER_NAME}/{MODEL_NAME}"
"""The folder of the model that a run has kept, if it has."""
QUALITY = f"{RUN}/quality.json"
"""What that model scores, before and after training."""
CARD = f"{RUN}/card.md"
"""The model's card, a copy of which lies beside its weights."""
PUSHED = f"{RUN}/pushed.json"
"""Where the model was pushed to, or why not."""

STUDY = f"{RESULTS}/{{study}}"
"""The results of one study; files of the same names in RESULTS hold all studies together."""
RECORDS = f"{STUDY}/{{device}}/records.json"
"""A digest of the record of each run on a device: written once all of them are parsed."""
RESULTS_CSV = f"{STUDY}/results.csv"
"""One row a run."""
RESULTS_PARQUET = f"{STUDY}/results.parquet"
CELLS_CSV = f"{STUDY}/cells.csv"
"""One row a cell: median over the repeats, interval, verdict."""
CLAIMS_CSV = f"{STUDY}/claims.csv"
FIT_CSV = f"{STUDY}/fit.csv"
"""One row a published or measured cell: what the loader model predicts for it."""
QUALITY_CSV = f"{STUDY}/quality.csv"
"""One row a score of a kept model, before and after training."""
TABLE = f"{STUDY}/tables/{{table}}.html"
FIGURE = f"{STUDY}/figures/{{figure}}.svg"
CONFIRMED = f"{RESULTS}/confirmed.txt"
"""Written last, and only where no cell failed: the exit code of the whole."""
ADVICE = f"{RESULTS}/tuning/{{device}}/advice.txt"
"""Which loader settings to use on this machine; its numbers and runs lie beside it."""
PREDICTIONS = f"{RESULTS}/tuning/predictions.txt"
OVERVIEW = f"{RESULTS}/overview.html"
"""The report's first page, which `report/workflow.rst` takes in."""


def events_name(rank: int) -> str:
    """The file of a rank's events."""
    return EVENTS_NAME if rank == 0 else f"events.rank{rank}.jsonl"


def run_dir(study: str, device: str, cell: str, repeat: int) -> Path:
    """The folder of one run."""
    return Path(RUN.format(study=study, device=device, cell=cell, repeat=repeat))


def of_all_studies(path: str) -> str:
    """The file of all studies together, for a study's file."""
    return path.replace(f"{STUDY}/", f"{RESULTS}/")


def checkpoint_key(name: str, revision: str | None) -> str:
    """The folder's name for a hub checkpoint at a revision."""
    return f"{name}@{revision or 'main'}".replace("/", "--")
