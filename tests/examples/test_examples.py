# SPDX-License-Identifier: MIT
"""The examples: test_examples.py <jackal> <all_reduce> <data_parallel> [unittest arguments]."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

JACKAL, ALL_REDUCE, DATA_PARALLEL = (os.path.abspath(word) for word in sys.argv[1:4])
del sys.argv[1:4]
DEADLINE_S = 120  # with sanitizers on a busy machine


def run(*words, cwd=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKAL_")}
    process = subprocess.Popen(
        words,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # a launcher ends its ranks
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        raise AssertionError(f"not over within {DEADLINE_S} s: {words}\n{out}\n{err}") from None
    return process.returncode, out, err


def ranks(n, *words):
    return run(JACKAL, "run", "-n", str(n), "--no-prefix", "--", *words)


class AllReduce(unittest.TestCase):
    def test_sums(self):
        for n in (1, 2, 4):
            status, out, err = ranks(n, ALL_REDUCE)
            self.assertEqual(status, 0, err)
            total = n * (n - 1) // 2
            self.assertEqual(
                sorted(out.splitlines()), [f"rank {r}: {total} {n} {10 * n}" for r in range(n)]
            )


class DataParallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = {n: ranks(n, DATA_PARALLEL, "--check") for n in (1, 2, 4, 8)}

    def losses(self, n):
        return [float(x) for x in re.findall(r"(?m)^epoch +\d+  loss (\S+)$", self.results[n][1])]

    def test_each_run_is_good(self):
        for n, (status, out, err) in self.results.items():
            self.assertEqual(status, 0, f"n = {n}\n{out}{err}")
            accuracy = re.search(r"held-out accuracy (\S+)", out)
            self.assertGreaterEqual(float(accuracy.group(1)), 0.95)

    def test_it_learns(self):
        losses = self.losses(1)
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], losses[0] / 4)

    def test_the_loss_does_not_depend_on_the_number_of_ranks(self):
        for n in (2, 4, 8):
            self.assertEqual(len(self.losses(n)), len(self.losses(1)))
            for one, many in zip(self.losses(1), self.losses(n)):
                self.assertLessEqual(abs(many - one), 1e-5 * one, f"n = {n}")

    def test_all_ranks_end_with_the_same_weights(self):
        for n, (_, out, _) in self.results.items():
            lines = re.findall(
                r"(?m)^rank (\d+)  weights ([0-9a-f]{16})  compute \S+ s  communication \S+ s$", out
            )
            self.assertEqual([int(rank) for rank, _ in lines], list(range(n)))
            self.assertEqual(len({weights for _, weights in lines}), 1, out)

    def test_a_batch_that_does_not_divide(self):
        curves = []
        for n in (1, 3):
            status, out, err = ranks(n, DATA_PARALLEL, "--epochs", "3", "--batch", "50")
            self.assertEqual(status, 0, err)
            curves.append([float(x) for x in re.findall(r"loss (\S+)", out)])
        self.assertEqual(len(curves[0]), 3)
        for one, three in zip(*curves):
            self.assertLessEqual(abs(three - one), 1e-5 * one)

    def test_check_fails_a_model_that_learns_nothing(self):
        words = (DATA_PARALLEL, "--epochs", "1", "--lr", "0")
        self.assertEqual(ranks(2, *words, "--check")[0], 1)
        self.assertEqual(ranks(2, *words)[0], 0)

    def test_the_seed_matters(self):
        outs = [ranks(1, DATA_PARALLEL, "--epochs", "1", "--seed", s)[1] for s in ("1", "2", "1")]
        losses = [re.search(r"loss (\S+)", out).group(1) for out in outs]
        self.assertNotEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])

    def test_missing_data_names_what_was_tried(self):
        status, _, err = run(DATA_PARALLEL, "--data", "/nonexistent/x.csv")
        self.assertEqual(status, 1)
        self.assertIn("/nonexistent/x.csv", err)

    def test_data_beside_the_program_comes_first(self):
        with tempfile.TemporaryDirectory(prefix="jackal-examples-") as folder:
            program = shutil.copy(DATA_PARALLEL, folder)
            os.mkdir(os.path.join(folder, "data"))
            with open(os.path.join(folder, "data", "digits.csv"), "w", encoding="utf-8") as file:
                file.write("1,2,3\n")
            status, _, err = run(program)
        self.assertEqual(status, 1)
        self.assertIn("line 1", err)

    def test_wrong_usage(self):
        for words in (["--batch", "0"], ["--hidden", "x"], ["--bogus"], ["operand"]):
            status, out, _ = run(DATA_PARALLEL, *words)
            self.assertEqual((status, out), (2, ""), words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
