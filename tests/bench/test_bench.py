# SPDX-License-Identifier: MIT
"""`jackal bench` from outside: test_bench.py <path of jackal> [unittest arguments]."""

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

JACKAL = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "jackal"
DEADLINE_S = 120  # with sanitizers on a busy machine

ALL_OPERATIONS = (
    "all_sum all_max all_min all_reduce all_gather reduce_scatter sum_scatter broadcast "
    "send_recv sendrecv barrier"
).split()
DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64"
).split()


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    @property
    def bench_lines(self):
        """What the bench itself says on stderr, without what the launcher adds."""
        return [line for line in self.err.splitlines() if line.startswith("jackal bench:")]

    @property
    def rows(self):
        return [line.split() for line in self.out.splitlines() if not line.startswith("#")]


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="jackal-bench-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def start(self, words, env):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKAL_")}
        environment.update(env)
        process = subprocess.Popen(
            [JACKAL, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            try:
                out, err = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            self.fail(f"not over within {DEADLINE_S} s: {words}\n{out}\n{err}")
        return Result(process.returncode, out, err)

    def bench(self, n, *words, run=(), env=None):
        return self.start(
            ["run", "-n", str(n), "--no-prefix", *run, "--", JACKAL, "bench", *words], env or {}
        )

    def report(self, n, *words, **options):
        """The JSON of a run that must be good."""
        path = self.path("report.json")
        result = self.bench(n, *words, "--json", path, **options)
        self.assertEqual(result.status, 0, result.out + result.err)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


class Usage(BenchTest):
    MISTAKES = [
        (["--html", "x"], "--html"),
        (["-z"], "-z"),
        (["all_summ"], "all_sum?"),
        (["-b", "1X"], "1X"),
        (["-b", "-1"], "-1"),
        (["-b", ""], '""'),
        (["-e", "16MB"], "16MB"),
        (["-e", "99999999999G"], "99999999999G"),
        (["-b", "1M", "-e", "1K"], "1048576"),
        (["-f", "1"], '"1"'),
        (["-n", "0"], '"0"'),
        (["-w", "-1"], '"-1"'),
        (["-d", "float31"], "float32?"),
        (["-o", "prod", "all_reduce"], "prod"),
        (["-o", "max", "all_gather"], "-o"),
        (["-n"], "-n"),
        (["--", "-c"], "-c"),
    ]

    def test_each_mistake_is_one_line_and_status_2(self):
        for words, part in self.MISTAKES:
            with self.subTest(words=words):
                result = self.start(["bench", *words], {})
                self.assertEqual(result.status, 2, result.err)
                self.assertEqual(result.out, "")
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
                self.assertIn(part, result.err)

    def test_ranks_tell_a_mistake_once(self):
        result = self.bench(4, "-d", "float31")
        self.assertEqual(result.status, 2)
        self.assertEqual(len(result.bench_lines), 1, result.err)

    def test_help(self):
        result = self.start(["bench", "--help"], {})
        self.assertEqual(result.status, 0)
        for word in ALL_OPERATIONS + ["--json", "--csv", "-c"]:
            self.assertIn(word, result.out)

    def test_a_pair_needs_two_ranks(self):
        for operation in ("sendrecv", "send_recv"):
            result = self.bench(1, operation)
            self.assertEqual(result.status, 2)
            self.assertEqual(len(result.bench_lines), 1, result.err)
            self.assertIn("two ranks", result.err)

    def test_a_file_that_does_not_open(self):
        result = self.bench(3, "--csv", self.path("missing/x.csv"))
        self.assertEqual(result.status, 2)
        self.assertEqual(len(result.bench_lines), 1, result.err)
        self.assertIn("missing/x.csv", result.err)


class Table(BenchTest):
    def test_sizes(self):
        result = self.bench(2, "-b", "0", "-e", "2K", "-f", "8", "-n", "2")
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(
            [row[:4] for row in result.rows],
            [
                ["0", "0", "float32", "sum"],
                ["8", "2", "float32", "sum"],
                ["64", "16", "float32", "sum"],
                ["512", "128", "float32", "sum"],
            ],
        )
        self.assertTrue(all(len(row) == 8 and row[7] == "N/A" for row in result.rows))

    def test_head(self):
        result = self.bench(3, "-b", "8", "-e", "8", "-n", "1", "-d", "int16")
        self.assertRegex(result.out, r"(?m)^# jackal \d+\.\d+\.\d+, 3 ranks, backend \S+")
        self.assertRegex(result.out, r"(?m)^# verbs provider fabric, dtype int16, ")
        columns = "size count type redop time algbw busbw #wrong"
        self.assertRegex(result.out, "(?m)^# +" + columns.replace(" ", " +") + "$")

    def test_sizes_are_rounded_to_what_the_operation_needs(self):
        report = self.report(
            3, "-b", "8", "-e", "1000", "-f", "124", "-n", "1", "all_gather", "reduce_scatter",
            "broadcast",
        )  # fmt: skip
        self.assertEqual(
            [(r["operation"], r["size_bytes"], r["count"]) for r in report["rows"]],
            [
                ("all_gather", 12, 1),
                ("all_gather", 984, 82),
                ("reduce_scatter", 12, 1),
                ("reduce_scatter", 984, 82),
                ("broadcast", 8, 2),
                ("broadcast", 992, 248),
            ],
        )

    def test_bandwidths(self):
        """The formulas of docs/bench.md."""
        report = self.report(5, "-b", "64K", "-e", "64K", "-n", "3", *ALL_OPERATIONS)
        factor = {"all_gather": 0.8, "reduce_scatter": 0.8, "sum_scatter": 0.8}
        factor.update({name: 1.6 for name in ("all_sum", "all_max", "all_min", "all_reduce")})
        self.assertEqual([row["operation"] for row in report["rows"]], ALL_OPERATIONS)
        for row in report["rows"]:
            with self.subTest(row=row["operation"]):
                algbw = row["size_bytes"] / row["time_us"] / 1e3
                self.assertAlmostEqual(row["algbw_gb_s"], algbw, delta=1e-6 * algbw + 1e-12)
                busbw = algbw * factor.get(row["operation"], 1)
                self.assertAlmostEqual(row["busbw_gb_s"], busbw, delta=1e-6 * busbw + 1e-12)
                self.assertLessEqual(row["min_us"], row["time_us"])
                self.assertLessEqual(row["time_us"], row["max_us"])
                self.assertGreater(row["mean_us"], 0)
                self.assertEqual(row["iterations"], 3)

    def test_csv_has_the_rows_of_the_table(self):
        path = self.path("x.csv")
        result = self.bench(2, "-c", "-b", "8", "-e", "32", "--csv", path, "all_max", "barrier")
        self.assertEqual(result.status, 0, result.err)
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(result.rows))
        for row, shown in zip(rows, result.rows):
            got = [row[key] for key in ("size_bytes", "count", "type", "redop")]
            self.assertEqual(got + [row["wrong"]], shown[:4] + shown[7:])
            self.assertAlmostEqual(float(row["time_us"]), float(shown[4]), delta=0.01)
            self.assertIn(int(row["iterations"]), range(5, 1001))


class Check(BenchTest):
    def assert_all_right(self, report):
        self.assertTrue(report["rows"])
        for row in report["rows"]:
            self.assertEqual(row["wrong"], 0, row)

    def test_every_operation_with_n_ranks(self):
        for n in (1, 2, 3, 5, 8):
            operations = ALL_OPERATIONS
            if n == 1:
                operations = [o for o in ALL_OPERATIONS if "send" not in o]
            with self.subTest(n=n):
                report = self.report(
                    n, "-c", "-b", "0", "-e", "4K", "-f", "16", "-n", "1", "-w", "0", *operations
                )
                self.assert_all_right(report)
                self.assertEqual({r["operation"] for r in report["rows"]}, set(operations))

    def test_every_type(self):
        report = self.report(
            3, "-c", "-b", "8", "-e", "600", "-f", "70", "-n", "1", "-w", "0", "-d", "all",
            "-o", "all", "all_reduce", "reduce_scatter", "all_gather",
        )  # fmt: skip
        self.assert_all_right(report)
        self.assertEqual(len(report["rows"]), len(DTYPES) * 2 * (3 + 3 + 1))
        self.assertEqual({r["type"] for r in report["rows"]}, set(DTYPES))
        self.assertEqual({r["redop"] for r in report["rows"]}, {"sum", "max", "min", "none"})

    def test_large(self):
        report = self.report(
            2, "-c", "-b", "4M", "-e", "4M", "-n", "1", "-w", "0", "all_sum", "all_gather"
        )
        self.assert_all_right(report)


class Faults(BenchTest):
    """Damage on the way must be seen. The bit lies behind the header of a message and behind what
    messages between the ranks other than the measured data fill, and no checksum is asked for."""

    @staticmethod
    def flips(messages):
        fault = {"kind": "flip", "device": "h0.rdma_en2", "bit": 8 * 2048}
        fabric = {
            "mesh": {"hosts": 8, "wires": 1},
            "faults": [{**fault, "message": m} for m in messages],
        }
        return {"JACKAL_FABRIC": json.dumps(fabric)}

    def test_a_flipped_bit_is_counted(self):
        path = self.path("x.json")
        for n, operation in ((2, "all_sum"), (3, "all_gather"), (2, "sendrecv")):
            with self.subTest(operation=operation):
                result = self.bench(
                    n, "-c", "-b", "1M", "-e", "1M", "-n", "1", "-w", "0", operation,
                    "--json", path, env=self.flips(range(4, 40)),
                )  # fmt: skip
                self.assertEqual(result.status, 1, result.out + result.err)
                with open(path, encoding="utf-8") as file:
                    wrong = json.load(file)["rows"][0]["wrong"]
                self.assertGreater(wrong, 0)
                self.assertLess(wrong, 200)
                self.assertEqual(result.rows[0][7], str(wrong))
                self.assertIn("first at", result.err)
                self.assertIn(f"{wrong} wrong elements", result.err)

    def test_without_a_check_nobody_looks(self):
        words = ["-b", "1M", "-e", "1M", "-n", "1"]
        result = self.bench(2, *words, env=self.flips(range(4, 40)))
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(result.rows[0][7], "N/A")

    def test_a_lost_message_is_an_error(self):
        fabric = {
            "mesh": {"hosts": 8, "wires": 1},
            "faults": [{"kind": "status", "device": "h0.rdma_en2", "message": 12, "status": 12}],
        }
        result = self.bench(
            2, "-c", "-b", "1M", "-e", "1M", env={"JACKAL_FABRIC": json.dumps(fabric)}
        )
        self.assertEqual(result.status, 1, result.out + result.err)
        self.assertRegex(result.err, r"(?m)^jackal bench: rank \d: \w+: ERR_\w+: .+")
        self.assertLessEqual(len(result.bench_lines), 2, result.err)


class Wires(BenchTest):
    """H6: an idle cable is seen at once."""

    def wires(self, report):
        return {
            (rank["rank"], wire["peer"], wire["wire"]): wire
            for rank in report["wires"]
            for wire in rank["wires"]
        }

    def test_pings_use_the_wires_of_pairs_only(self):
        report = self.report(3, "-b", "4K", "-e", "4K", "-n", "5", "-w", "1", "send_recv")
        wires = self.wires(report)
        self.assertEqual(len(wires), 6)
        for (rank, peer, _), wire in wires.items():
            self.assertEqual(wire["unused"], {rank, peer} != {0, 1}, wire)

    def test_bytes_are_those_of_the_measured_calls(self):
        report = self.report(2, "-b", "4K", "-e", "4K", "-n", "5", "-w", "1", "send_recv")
        # 5 measured, 1 to warm up, 2 to find out how long one takes
        for wire in self.wires(report).values():
            self.assertEqual(wire["bytes_sent"], 8 * 4096)
            self.assertEqual(wire["bytes_received"], 8 * 4096)

    def test_unused_is_printed(self):
        result = self.bench(3, "-b", "4K", "-e", "4K", "-n", "5", "send_recv")
        self.assertEqual(result.out.count("UNUSED"), 4, result.out)
        self.assertIn("4 of 6 wire ends carried nothing", result.out)

    def test_all_wires_of_two_cables_are_listed(self):
        fabric = json.dumps({"mesh": {"hosts": 2, "wires": 2}})
        report = self.report(2, "-b", "1M", "-e", "1M", "-n", "2", env={"JACKAL_FABRIC": fabric})
        wires = self.wires(report)
        self.assertEqual(set(wires), {(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)})
        self.assertEqual(len({w["device"] for k, w in wires.items() if k[0] == 0}), 2)

    def test_one_rank_has_none(self):
        result = self.bench(1, "-b", "8", "-e", "8", "-n", "1")
        self.assertEqual(result.status, 0, result.err)
        self.assertIn("# no wires", result.out)


class Death(BenchTest):
    """A rank that is killed in the middle ends the job on every rank, and nothing is left (A1, C10)."""

    SIZE = 4

    def start_job(self, temporary):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKAL_")}
        environment.update(NOTES=self.folder.name, TMPDIR=temporary)
        script = 'echo $$ > "$NOTES/$JACKAL_RANK"; echo "$JACKAL_FABRIC_NAME" > "$NOTES/name"; exec "$@"'
        return subprocess.Popen(
            [JACKAL, "run", "-n", str(self.SIZE), "--", "sh", "-c", script, "rank",
             JACKAL, "bench", "all_sum", "-b", "256K", "-e", "256K", "-n", "1000000"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def wait_for_bench(self, process):
        """The header comes when all ranks are connected; the timed calls follow."""
        for line in process.stdout:
            if "(elements)" in line:
                time.sleep(0.3)
                return
        self.fail("the bench did not begin: " + process.stderr.read())

    def kill_one(self, victim):
        with tempfile.TemporaryDirectory(prefix="jackal-death-") as temporary:
            process = self.start_job(temporary)
            try:
                self.wait_for_bench(process)
                with open(self.path(str(victim)), encoding="ascii") as note:
                    os.kill(int(note.read()), signal.SIGKILL)
                _, err = process.communicate(timeout=DEADLINE_S)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.communicate()
            self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
            for rank in set(range(self.SIZE)) - {victim}:
                self.assertRegex(err, rf"(?m)^\[{rank}\] jackal bench: .*ERR_PEER_LOST.*rank {victim}\b")
            self.assertIn(f"rank {victim} was killed by SIGKILL first", err)
            self.assertEqual(os.listdir(temporary), [])
        with open(self.path("name"), encoding="ascii") as note:
            name = note.read().strip()
        self.assertFalse(os.path.exists(f"/dev/shm/jackal-{os.getuid()}/{name}"))

    def test_of_rank_0(self):
        self.kill_one(0)

    def test_of_another_rank(self):
        self.kill_one(2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
