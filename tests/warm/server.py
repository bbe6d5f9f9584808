"""The fork server: imports the libraries once and forks a process for each program.

`server.py FOLDER READY MODULE…` listens on FOLDER/socket, closes the descriptor READY, imports the
modules and then serves FOLDER/bin/python. It starts no thread, and the kernel kills it when the
process that started it dies.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import marshal
import os
import select
import signal
import socket
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path

from program import become

PR_SET_PDEATHSIG = 1
MADV_COLLAPSE = 25
HUGE_BYTES = 2**21
READ_AT_IMPORT = (
    *("HF_", "TRANSFORMERS_", "DATASETS_", "ACCELERATE_", "TORCH_", "TORCHDYNAMO_"),
    *("TORCHINDUCTOR_", "PYTORCH_", "MPL"),
    *("KMP_", "MKL_", "GOMP_", "OPENBLAS_", "OMP_PROC_BIND", "OMP_PLACES", "MALLOC_", "LD_"),
    *("CUDA_", "HABANA_", "FEEDRATE_STANDIN_"),
    *("PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONIOENCODING", "PYTHONUTF8", "LANG", "LC_"),
)
"""Prefixes of variables that Python or a library reads at start-up. A program whose value differs
from the server's must run in a new interpreter."""
READ_LATER = (
    *("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),  # with OMP_NUM_THREADS
    *("HF_TOKEN", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    *("HF_ENDPOINT", "HF_HUB_DISABLE_TELEMETRY"),  # with the first, they are read again
    "TORCHINDUCTOR_CACHE_DIR",  # torch sets it
    *("FEEDRATE_STANDIN_MODEL", "FEEDRATE_STANDIN_HPUS", "FEEDRATE_STANDIN_GRAPHS"),
    "ACCELERATE_USE_CPU",
    "MALLOC_ARENA_MAX",  # the server has the value that jobs with limited memory need
)
"""Variables with such a prefix that are read later, or need not be the same."""

libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose values must equal the server's."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_IMPORT) and name not in READ_LATER
    }


def paths(environment: Mapping[str, str]) -> set[str]:
    """The folders of PYTHONPATH."""
    return set(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))


class Server:
    """Forks programs, forwards signals to them and returns their exit codes."""

    def __init__(self, folder: Path) -> None:
        self.executable = str(folder / "bin/python")
        self.environment = fixed(os.environ)
        self.own = paths(os.environ)
        self.base = [path for path in sys.path[1:] if path not in self.own]
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "socket"))
        self.listener.listen(64)
        self.poll = select.poll()
        self.poll.register(self.listener, select.POLLIN)
        self.clients: dict[int, tuple[socket.socket, int]] = {}
        self.programs: dict[int, int] = {}
        """Maps the pidfd of each program to the socket of its client."""

    def serve(self) -> None:
        """Serve clients until killed."""
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor == self.listener.fileno():
                    self.accept()
                elif descriptor in self.programs:
                    self.program_ended(descriptor)
                elif descriptor in self.clients:
                    self.client_says(descriptor)

    def accept(self) -> None:
        """Fork for a new client, or close its connection if the program needs a new interpreter."""
        client, _ = self.listener.accept()
        with contextlib.suppress(OSError, ValueError, EOFError):  # the client was killed
            parts, given, *_ = socket.recv_fds(client, 16, 200)
            asked = marshal.loads(b"".join(client.recv(1 << 17) for _ in range(int(parts))))
            same = fixed(asked["env"]) == self.environment
            if same and self.own <= paths(asked["env"]):
                self.start(client, asked, given)
            for descriptor in given:
                os.close(descriptor)
        if client.fileno() not in self.clients:
            client.close()

    def start(self, client: socket.socket, asked: dict, given: list[int]) -> None:
        """Fork the program."""
        pid = os.fork()
        if not pid:
            die_with_parent()
            for one in (self.listener, *(client for client, _ in self.clients.values())):
                one.detach()  # closing them later would close files of the program
            become(client, asked, given, self.executable, self.base)
        watched = os.pidfd_open(pid)
        self.clients[client.fileno()] = client, pid
        self.programs[watched] = client.fileno()
        self.poll.register(watched, select.POLLIN)
        self.poll.register(client, select.POLLIN)

    def client_says(self, number: int) -> None:
        """Forward a signal; if the client has died, kill its program and all descendants."""
        client, pid = self.clients[number]
        with contextlib.suppress(OSError):
            if signals := client.recv(1):
                os.kill(pid, signals[0])  # not reaped yet, so the pid is still its own
                return
        self.poll.unregister(client)
        for one in (pid, *below(pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    def program_ended(self, watched: int) -> None:
        """Send the exit code to the client."""
        client, pid = self.clients.pop(self.programs.pop(watched))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.poll.unregister(watched)
        os.close(watched)
        with contextlib.suppress(KeyError, OSError):  # the client has died
            self.poll.unregister(client)
            client.send(str(code).encode())
        client.close()


def below(root: int) -> list[int]:
    """All descendants of a process."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text()
                parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def leave_little_to_do() -> None:
    """Spare each program work that takes longer than the fork: what the libraries finalise at exit
    (torch: all its operators), the finders of the packages' folders, collecting garbage."""
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        atexit.unregister(dynamo.dump_compile_times)
    for path in sys.path_importer_cache.keys() - set(sys.path):
        del sys.path_importer_cache[path]
    gc.freeze()
    gc.enable()
    use_huge_pages()


def use_huge_pages() -> None:
    """Collect the heap in huge pages: a fork copies fewer page tables. Kernels before Linux 6.1
    refuse, and the pages stay small."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        place, access, _, _, _, *name = line.split(maxsplit=5)
        if access == "rw-p" and name in ([], ["[heap]"]):
            start, end = (int(one, 16) for one in place.split("-"))
            start, end = -(-start // HUGE_BYTES) * HUGE_BYTES, end // HUGE_BYTES * HUGE_BYTES
            if start < end:
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)


def main() -> None:
    """Run the command line."""
    die_with_parent()
    folder, ready = Path(sys.argv[1]), int(sys.argv[2])
    server = Server(folder)
    os.close(ready)  # clients may connect; they wait for the imports
    gc.disable()
    for module in sys.argv[3:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    leave_little_to_do()
    server.serve()


main()
