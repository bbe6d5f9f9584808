"""A warm interpreter: a server has imported the heavy libraries and forks a process per program.
`python()` is an executable that behaves like this environment's Python for `-m`, `-c` and scripts.
A program is no descendant of its parent and has one thread for torch: tests of process trees,
memory, threads or imports use `sys.executable`. Variables that libraries read at import, other
options, and COLD (a regular expression that matches the command line) lead to a new interpreter."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = (
    *("snakemake.cli", "snakemake.api", "snakemake.report.html_reporter", "snakemake.executors"),
    "prompt_polls",
    *("snakemake_executor_plugin_slurm", "snakemake_executor_plugin_slurm_jobstep", "jsonschema"),
    *("matplotlib.figure", "matplotlib.backends.backend_svg", "pyarrow.parquet", "simplejpeg"),
    *("msgspec", "rich.table", "requests", "PIL.JpegImagePlugin", "PIL.ImageDraw", "psutil"),
    *("torch.distributed.fsdp", "torch.distributed.run", "torch.utils.tensorboard", "datasets"),
    *("transformers.trainer", "transformers.models.bridgetower.modeling_bridgetower"),
    *("transformers.models.flava.modeling_flava", "transformers.models.clip.modeling_clip"),
    "transformers.models.vit.modeling_vit",
    *("torch.utils.flop_counter", "half_products"),
)


@functools.cache
def python() -> str:
    """The warm form of this interpreter."""
    return warm(sys.executable, MODULES)


def warm(interpreter: str, modules: tuple[str, ...], **environment: str) -> str:
    """The warm form of `interpreter`: `modules` imported under `environment`; stopped at exit."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    make_folder(folder, Path(interpreter))
    ready, told = os.pipe()
    left = ("PYTHONPATH", "COVERAGE_PROCESS_START")
    kept = {name: value for name, value in os.environ.items() if name not in left}
    server = subprocess.Popen(
        [interpreter, str(HERE / "server.py"), str(folder), str(told), *modules],
        env=kept | {"OMP_WAIT_POLICY": "PASSIVE", "MALLOC_ARENA_MAX": "1", **environment},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[told],
    )
    os.close(told)
    os.read(ready, 1)  # returns when the server listens
    os.close(ready)
    atexit.register(stop, server, folder)
    return str(folder / "bin/python")


def make_folder(folder: Path, interpreter: Path) -> None:
    """Write bin/python, and link the environment's other programs next to it."""
    (folder / "bin").mkdir()
    for program in interpreter.parent.iterdir():
        if not program.name.startswith("python"):
            (folder / "bin" / program.name).symlink_to(program)
    text = (HERE / "client.py").read_text(encoding="utf-8")
    call = f"main({str(interpreter)!r}, {str(folder / 'socket')!r})"
    client = folder / "bin/python"
    client.write_text(f"#!{interpreter} -IS\n{text}\n\n{call}\n", encoding="utf-8")
    client.chmod(0o755)
    (folder / "bin/python3").symlink_to("python")


def stop(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Kill the server, and with it all its programs."""
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)
