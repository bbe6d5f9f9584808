"""The executable of the warm interpreter: asks the server to fork, and stands in for that process.

`make_folder` appends the call of `main`. It runs without `site` and imports little, to start fast:
of `signal` and `socket` only the C modules.
"""

import _signal as signal
import _socket as socket
import marshal
import os
import resource
import sys

FORWARDED = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "CONT", "WINCH")
NUMBERS = [getattr(signal, "SIG" + name) for name in FORWARDED]
LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC", "STACK")
PART = 1 << 16


def known(words):
    """Whether the server supports this command line."""
    while words and words[0] in ("-u", "-B"):
        words = words[1:]
    return bool(words) and (words[0][:1] != "-" or (words[0] in ("-m", "-c") and len(words) > 1))


def cold(words):
    """Whether COLD, a regular expression, matches the command line; then it matches all below."""
    pattern = os.environ.get("COLD")
    if pattern is None:
        return False
    import re

    found = re.search(pattern, " ".join(words)) is not None
    if found:
        os.environ["COLD"] = ""
    return found


def ignored_signals():
    with open("/proc/self/status") as lines:  # noqa: PTH123 - pathlib is slow to import
        return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))


def open_files():
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            os.fstat(int(name))
        except OSError:  # the descriptor of this listing
            continue
        found.append(int(name))
    return found


def own_state(fds, ignored):
    """The state that the program inherits."""
    os.umask(umask := os.umask(0))
    limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in LIMITS}
    state = {"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd(), "umask": umask}  # noqa: PTH109
    state |= {"affinity": list(os.sched_getaffinity(0)), "limits": limits}
    return marshal.dumps({**state, "fds": fds, "ignored": ignored})


def ask(server, address, fds, ignored):
    """Send the request; return whether the program was started."""
    server.connect(address)
    state = own_state(fds, ignored)
    parts = [state[start : start + PART] for start in range(0, len(state), PART)]
    numbers = b"".join(one.to_bytes(4, sys.byteorder) for one in fds)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)
    server.sendmsg([str(len(parts)).encode()], [rights])
    for part in parts:
        server.send(part)
    return server.recv(8) == b"runs"


def follow(server, fds, ignored):
    """Forward signals until the program ends, then end with the same code or signal."""
    for number in NUMBERS:
        if not ignored >> (number - 1) & 1:
            signal.signal(number, lambda number, _: server.send(bytes([number])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
    for descriptor in fds:  # so that readers see when the program closes them
        os.close(descriptor)
    ended = int(server.recv(8) or -signal.SIGKILL)
    if ended >= 0:
        os._exit(ended)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -ended != signal.SIGKILL:
        signal.signal(-ended, signal.SIG_DFL)
    os.kill(os.getpid(), -ended)


def main(python, address):
    """Run the program in a forked process, or else in a new interpreter."""
    if known(sys.argv[1:]) and not cold(sys.argv[1:]):
        fds, ignored = open_files(), ignored_signals()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The program may run before this process does again: what is sent to it then must wait.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
        try:
            runs = ask(server, address, fds, ignored)
        except OSError:
            runs = False
        if runs:
            follow(server, fds, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    os.execv(python, [python, *sys.argv[1:]])
