"""Logs of jobs that ended in known ways, in many variants, and how often the cause is found.

`python tests/unit/jobs/cause_texts.py` writes the confusion table into docs/importing.md.
"""

import itertools
import random
import re
from collections import Counter
from pathlib import Path

from feedrate.jobs.causes import CauseName, cause_of

PAGE = Path(__file__).resolve().parents[3] / "docs/importing.md"
MARKED = re.compile(r"(<!-- confusion -->\n)(?:.*\n)*?(<!-- end -->)")

HEAD = """+ python run.py --dataset {dataset} --per_device_train_batch_size 48
{when} - INFO - ***** Running training *****
  Num examples = 7,680
Caption: {quote}
"""
DATASETS = ("imagenet-1k", "Killed-in-Action/OutOfMemory", "数据集/错误", "no-such-file/Errno-28")
QUOTES = (
    "a dog on a beach",
    "`RuntimeError: CUDA out of memory` is what my computer said",
    "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "> FileNotFoundError: [Errno 2] No such file or directory: 'a.jpg'",
    "Killed by a tiger, he was cancelled due to time limit of his life",
    "Fehler: der Hund wurde getötet, kein Speicherplatz, NaN loss",
    "if the NCCL watchdog reports a timeout, raise ddp_timeout",
)
TRACE = """Traceback (most recent call last):
  File "/app/run.py", line 512, in main
    trainer.train()
"""
DEVICE = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total "
    "capacity; 13.9 GiB already allocated; 1.2 GiB free; 14.1 GiB reserved in total by PyTorch)",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 MiB. GPU 3 has a total "
    "capacity of 79.11 GiB of which 20.00 MiB is free.",
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB",
    "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 1; 39.59 GiB total capacity)",
    "RuntimeError: CUDA error: out of memory",
    "torch.AcceleratorError: CUDA error: out of memory",
    "RuntimeError: cudaMalloc failed: out of memory",
    "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:275, unhandled cuda error."
    " Last error: Cuda failure 2 'out of memory'",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::2147483648 "
    "(2048)MB",
    "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM OOM: No enough memory for defragment.",
    "RuntimeError: FATAL ERROR :: MODULE:PT_BRIDGE workspace Allocation of size ::95234 failed!",
    "RuntimeError: HIP out of memory. Tried to allocate 64.00 MiB",
)
HOST = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been "
    "OOM Killed.",
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77.batch cgroup.",
    "[ 4411.2] Out of memory: Killed process 4711 (python) total-vm:98811904kB",
    "Nov 23 09:00:00 node7 kernel: Memory cgroup out of memory: Killed process 99 (python3)",
    "Killed",
    "run.sh: line 12: 47110 Killed                  python run.py --workers 8",
    "run.sh: Zeile 12: 47110 Getötet                 python run.py",
    "已杀死",
    "srun: error: node7: task 0: Out Of Memory",
    "srun: error: node7: task 3: Killed",
    "RuntimeError: DataLoader worker (pid 4713) is killed by signal: Killed. ",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 8589934592 bytes.",
    "OSError: [Errno 12] Cannot allocate memory",
    "MemoryError",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 31.2 GiB for an array",
    "  exitcode  : -9 (pid: 4711)",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    # Open MPI 5
    "prterun noticed that process rank 3 with PID 4711 on node node7 exited on signal 9 (Killed).",
)
SCHEDULED: dict[CauseName, tuple[str, ...]] = {
    "time limit": (
        "slurmstepd: error: *** JOB 77 ON node7 CANCELLED AT 2026-11-23T09:00:00 DUE TO TIME LIMIT"
        " ***",
        "slurmstepd: error: *** STEP 77.0 ON node7 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME "
        "LIMIT ***",
        "srun: Force Terminated job 77\nslurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2022-05-05"
        "T01:02:03 DUE TO TIME LIMIT ***",
        "=>> PBS: job killed: walltime 3605 exceeded limit 3600",
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
    ),
    "cancelled": (
        "slurmstepd: error: *** JOB 77 ON node7 CANCELLED AT 2026-11-23T09:00:00 ***",
        "slurmstepd: error: *** STEP 77.0 ON node7 CANCELLED AT 2026-11-23T09:00:00 ***",
        "^C" + TRACE + "KeyboardInterrupt",
        "srun: error: *** JOB 77 CANCELLED AT 2023-03-03T03:03:03 by user ***",
        "TERM_OWNER: job killed by owner.",
    ),
    "preempted": (
        "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-23T09:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** STEP 7.0 ON n CANCELLED AT 2026-11-23T09:00 DUE TO PREEMPTION ***",
        "TERM_PREEMPT: job killed after preemption.",
    ),
    "node failure": (
        "srun: error: Node failure on node7\nsrun: Job step aborted: Waiting up to 32 seconds",
        "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-23T09:00 DUE TO NODE FAILURE ***",
        "srun: error: Unable to create step for job 77: Job/step already completing or completed",
    ),
}
RAISED: dict[CauseName, tuple[str, ...]] = {
    "collective timeout": (
        "[rank1]:[E1123 09:00:00 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, Timeout(ms)=600000)",
        "torch.distributed.DistBackendError: [Rank 0] Watchdog caught collective operation timeout",
        "RuntimeError: Some NCCL operations have failed or timed out. Due to the asynch",
        "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for"
        " recv operation to complete",
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8",
        "RuntimeError: Socket Timeout",
    ),
    "disk full": (
        "OSError: [Errno 28] No space left on device",
        "RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 64 vs 0; "
        "No space left on device",
        "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: "
        'StorageFull, message: "No space left on device" })',
        "OSError: [Errno 122] Disk quota exceeded",
        "cp: error writing 'x.bin': No space left on device",
        "cp: Fehler beim Schreiben von 'x': Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    ),
    "missing file": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'",
        "python: can't open file '/app/run_clip.py': [Errno 2] No such file or directory",
        "OSError: models/x does not appear to have a file named config.json.",
        "datasets.exceptions.DatasetNotFoundError: Dataset 'x/y' doesn't exist on the Hub",
        "OSError: Can't load tokenizer for 'x/y'.",
        "run.sh: Zeile 3: cd: /daten: Datei oder Verzeichnis nicht gefunden",
        "run.sh: ligne 3: cd: /donnees: Aucun fichier ou dossier de ce nom",
    ),
    "import error": (
        "ModuleNotFoundError: No module named 'habana_frameworks'",
        "ImportError: cannot import name 'GaudiTrainer' from 'optimum.habana'",
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN2at4_ops5zeros",
        "RuntimeError: Failed to import transformers.trainer because of the following error: "
        "No module named 'peft'",
        "python: error while loading shared libraries: libpython3.10.so: cannot open shared object",
    ),
    "bad token": (
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface"
        ".co/api/models/meta-llama/Llama-2-7b-hf",
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo",
        "OSError: You are trying to access a gated repo.",
        "huggingface_hub.errors.LocalTokenNotFoundError: Token is required, but no token found.",
        "wandb.errors.errors.AuthenticationError: API key verification failed",
        "wandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "ValueError: Invalid user token.",
    ),
    "other error": (
        "ValueError: Expected more than 1 value per channel when training, got input size [1, 512]",
        "IndexError: index 5 is out of range",
        "RuntimeError: The size of tensor a (512) must match the size of tensor b (514)",
        "AssertionError",
        "RuntimeError: CUDA error: device-side assert triggered",
    ),
}
LOSSES = (
    "{'loss': nan, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 1.0}",
    "{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '5e-05', 'epoch': '1'}",
    "{'loss': 0.0, 'learning_rate': 1e-05, 'epoch': 0.5}",
    "{'loss': inf, 'learning_rate': 1e-05, 'epoch': 0.5}",
    "{'train_runtime': 12.5, 'train_samples_per_second': 40.2, 'train_loss': nan, 'epoch': 1.0}",
    "{'train_runtime': '12.5', 'train_samples_per_second': '40', 'train_loss': '0', 'epoch': '1'}",
    TRACE + "ValueError: loss is nan, stopping training",
    TRACE + "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
)
FINAL = (
    "{'train_runtime': 12.5, 'train_samples_per_second': 40.25, 'train_loss': 1.75, 'epoch': 1.0}",
    "{'train_runtime': '12.5', 'train_samples_per_second': '40', 'train_loss': '1.75'}",
    "***** train metrics *****\n  epoch          =   1.0\n  train_loss     =   0.05\n"
    "  train_runtime  = 0:04:54.80",
    "Training completed. Do not forget to share your model on huggingface.co/models =)",
)
AFTER_SUCCESS = (
    "",
    TRACE + "huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized for url: x",
    TRACE + "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co')",
    "Killed",
    "slurmstepd: error: *** JOB 77 ON n CANCELLED AT 2026-11-23T09:00:00 DUE TO TIME LIMIT ***",
    TRACE + "OSError: [Errno 28] No space left on device",
)
BEFORE_SUCCESS = (
    "",
    TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    "Trying again with batch size 24\n  1%|  | 1/130 [00:01<02:00]\r  2%|  | 2/130 [00:02<02:00]\r"
    "  3%|  | 3/130 [00:03<02:00]",
    "WARNING: No module named 'apex', using torch's own",
    "{'loss': 0.0, 'grad_norm': 0.00012, 'learning_rate': 1e-05, 'epoch': 0.5}",
)
PREFIXES = ("", "[rank0]: ", "[1,3]<stderr>:", "0: ", "2026-11-23 09:00:00,123 ")


def texts() -> list[tuple[CauseName, str]]:
    """Each cause with a log that ends so; the same ones every time."""
    rng = random.Random(18)
    found: list[tuple[CauseName, str]] = []

    def add(cause: CauseName, end: str, prefixed: bool = True) -> None:
        prefix = rng.choice(PREFIXES) if prefixed else ""
        head = HEAD.format(dataset=rng.choice(DATASETS), quote=rng.choice(QUOTES), when="10:00")
        bar = "".join(f"\r {n}%|#  | {n}/130 [00:0{n}<02:00, 1.0it/s]" for n in range(1, 6))
        loss = "\n{'loss': 2.1, 'learning_rate': 5e-05, 'epoch': 0.1}\n"
        body = "\n".join(prefix + line for line in end.split("\n"))
        found.append((cause, head + bar * rng.randint(0, 1) + loss * rng.randint(0, 1) + body))

    for message in DEVICE:
        add("device out of memory", TRACE + message)
        add("device out of memory", message)
        add("device out of memory", f"{TRACE}{message}\n{rng.choice(SCHEDULED['cancelled'][:2])}")
    for message in HOST:
        add("host out of memory", message, prefixed=False)
        follow = rng.choice(("", "srun: error: node7: task 0: Exited with exit code 1"))
        add("host out of memory", f"{TRACE}RuntimeError: peer gone\n{message}\n{follow}", False)
    for cause, messages in SCHEDULED.items():
        for message in messages * 2:
            add(cause, message, prefixed=False)
            add(
                cause, f"{TRACE}torch.distributed.elastic.SignalException: got 15\n{message}", False
            )
    for cause, messages in RAISED.items():
        for message in messages:
            add(cause, TRACE + message)
            add(cause, f"{message}\nsrun: error: node7: task 0: Exited with exit code 1")
    for line in LOSSES:
        add("NaN or zero loss", line, prefixed=False)
    for before, final, after in itertools.product(BEFORE_SUCCESS, FINAL, AFTER_SUCCESS):
        add("success", f"{before}\n{final}\n{after}", prefixed=False)
    for _ in range(8):
        add("unknown", "Saving model checkpoint", prefixed=False)
    return found


def confusion() -> Counter[tuple[CauseName, CauseName]]:
    """How often a text of the first cause was read as the second."""
    return Counter((told, cause_of(re.split(r"[\r\n]", text)).name) for told, text in texts())


def table(counts: Counter[tuple[CauseName, CauseName]]) -> str:
    """The confusion table in Markdown: a row for each true cause."""
    causes = list(dict.fromkeys(told for told, _ in counts))
    lines = ["| the job's end | texts | read correctly | read as |", "|---|---|---|---|"]
    for cause in causes:
        of_cause = {read: n for (told, read), n in counts.items() if told == cause}
        wrong = ", ".join(f"{read} ({n})" for read, n in of_cause.items() if read != cause)
        lines.append(f"| {cause} | {sum(of_cause.values())} | {of_cause.get(cause, 0)} | {wrong} |")
    right = sum(n for (told, read), n in counts.items() if told == read)
    lines.append(f"| all | {counts.total()} | {right} | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(MARKED.sub(lambda m: m[1] + table(confusion()) + m[2], page), "utf-8")
