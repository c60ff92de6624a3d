# SPDX-License-Identifier: MIT
"""What the tests of the `jackal` command share.

Each script is run as `script.py <path of jackal> [unittest arguments]`. Ranks are small shell or
Python programs, so nothing but the command itself is under test. Every process that a test starts
has a deadline, and what is left of it at the end of the test is ended by its number.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

JACKAL = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "jackal"
PYTHON = sys.executable
DEADLINE_S = 30


def is_alive(pid):
    """False also for a zombie: nothing of it runs any more."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith(b"Z")


def wait_until(condition, limit_s, what):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.02)


def fabric_root():
    if sys.platform == "darwin":
        return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"jackal-{os.geteuid()}")
    return f"/dev/shm/jackal-{os.geteuid()}"


class Result:
    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds


class JobTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="jackal-tools-")
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        for pid in self.noted_pids().values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def pipe(self, name):
        os.mkfifo(self.path(name))
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def start(self, *words, env=None, **options):
        """Starts the command with words[0] as its subcommand; variables of `env` are added."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKAL_")}
        environment["NOTES"] = self.dir
        environment.update(env or {})
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen([JACKAL, *words], env=environment, **options)
        process.started_at = time.monotonic()
        self.started.append(process)
        return process

    def finish(self, process, data=None, limit_s=DEADLINE_S):
        out, err = process.communicate(data, timeout=limit_s)
        return Result(process.returncode, out, err, time.monotonic() - process.started_at)

    def jackal(self, *words, data=None, **options):
        if data is not None:
            options["stdin"] = subprocess.PIPE
        return self.finish(self.start(*words, **options), data)

    def run_script(self, options, script, *arguments, **more):
        """`jackal run` of a shell script."""
        return self.jackal("run", *options, "--", "sh", "-c", script, "sh", *arguments, **more)

    def noted_pids(self):
        """Scripts note their processes with: echo $$ > $NOTES/pid.<name>"""
        pids = {}
        for name in os.listdir(self.dir):
            if name.startswith("pid.") and self.read(name).endswith(b"\n"):
                pids[name[4:]] = int(self.read(name))
        return pids

    def wait_for_notes(self, *names):
        wait_until(lambda: set(names) <= set(self.noted_pids()), 10, f"notes of {names}")
        return self.noted_pids()

    def assert_gone(self, pids, limit_s=0.0):
        for name, pid in pids.items():
            wait_until(lambda p=pid: not is_alive(p), limit_s, f"end of {name} ({pid})")

    def assert_usage(self, result, *parts):
        """Status 2, nothing printed but one line that says what, which value and what to do."""
        self.assertEqual(result.status, 2, result.err)
        self.assertEqual(result.out, b"")
        self.assertEqual(result.err.count(b"\n"), 1, result.err)
        for part in parts:
            self.assertIn(part.encode(), result.err)


def children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    unittest.main(verbosity=2)
