# SPDX-License-Identifier: MIT
"""Runs a server and a client of one program on two hosts of a fabric of their own."""
import contextlib
import fcntl
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60
# Below what the system gives to clients, so that nobody gets one by chance.
PORTS = range(20000, 32000)
names = 0


def need(*programs):
    """Ends the test as skipped if a program is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed (Debian: ibverbs-utils, perftest)")
        sys.exit(77)


@contextlib.contextmanager
def port():
    """A TCP port that nobody has, kept from others that ask here by a lock on its file."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"jackal-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in random.sample(PORTS, 200):
        path = folder / str(number)
        with open(path, "w", encoding="ascii") as lock, socket.socket() as probe:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock.fileno()).st_ino != path.stat().st_ino:
                    continue  # it was removed by its last user meanwhile
                probe.bind(("", number))
            except OSError:
                continue
            probe.close()
            yield number
            path.unlink(missing_ok=True)
            return
    raise AssertionError("no free port")


def is_listening(number):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as rows:
            for row in rows:
                parts = row.split()
                if parts[3] == "0A" and parts[1].endswith(f":{number:04X}"):
                    return True
    return False


class Program:
    """One process on one host; output and status are there once it ended."""

    def __init__(self, library, host, fabric, personality, command):
        self.command = command
        self.output = ""
        self.file = tempfile.TemporaryFile("w+")
        env = {name: value for name, value in os.environ.items() if not name.startswith("JACKAL_")}
        env.update(LD_LIBRARY_PATH=str(library), JACKAL_FABRIC_HOST=str(host),
                   JACKAL_FABRIC_NAME=fabric, JACKAL_FABRIC_PERSONALITY=personality)
        self.process = subprocess.Popen([str(part) for part in command], env=env, text=True,
                                        stdin=subprocess.DEVNULL, stdout=self.file,
                                        stderr=subprocess.STDOUT)

    def wait(self, deadline):
        """The exit status, or None if it had to be killed."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.process.wait(max(0, deadline - time.monotonic()))
        self.kill()
        return status

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self.file.closed:
            self.file.seek(0)
            self.output = self.file.read()
            self.file.close()


def fresh_name():
    global names
    names += 1
    return f"programs-{os.getpid()}-{names}"


def folder_of(fabric):
    return pathlib.Path(f"/dev/shm/jackal-{os.getuid()}") / fabric


def alone(library, personality, *command):
    fabric = fresh_name()
    program = Program(library, 0, fabric, personality, command)
    return program.wait(time.monotonic() + LIMIT_S), program.output


class Pair:
    """Two programs that ran: what each wrote and its status, None if it was still waiting when the
    other had failed, and was killed."""

    def __init__(self, library, personality, command, server=(), client=()):
        fabric = fresh_name()
        deadline = time.monotonic() + LIMIT_S
        with port() as number:
            command = [*command, "-p", number]
            one = Program(library, 0, fabric, personality, [*command, *server])
            two = None
            try:
                while not is_listening(number) and one.process.poll() is None and \
                        time.monotonic() < deadline:
                    time.sleep(0.01)
                two = Program(library, 1, fabric, personality, [*command, *client, "127.0.0.1"])
                self.statuses = self.finish(one, two, deadline)
            finally:
                one.kill()
                if two is not None:
                    two.kill()
        self.server, self.client = one.output, two.output
        self.left = sorted(folder_of(fabric).glob("*")) if folder_of(fabric).exists() else []
        shutil.rmtree(folder_of(fabric), ignore_errors=True)

    @staticmethod
    def finish(one, two, deadline):
        """Both, or the first that fails and what the other does in the second after it."""
        programs = [one.process, two.process]
        while time.monotonic() < deadline:
            statuses = [process.poll() for process in programs]
            if any(status not in (0, None) for status in statuses):
                deadline = min(deadline, time.monotonic() + 1)
                break
            if None not in statuses:
                break
            time.sleep(0.01)
        return one.wait(deadline), two.wait(deadline)

    def text(self):
        return f"statuses {self.statuses}\n--- server\n{self.server}\n--- client\n{self.client}"
