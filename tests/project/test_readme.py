#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program that the README prints compiles as printed, has at most 15 lines and is the one in
examples/."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, CC = pathlib.Path(sys.argv[1]), sys.argv[2]


class Readme(unittest.TestCase):
    def setUp(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 1, "the README has exactly one C program")
        self.program = blocks[0]

    def test_length(self):
        self.assertLessEqual(len(self.program.splitlines()), 15)

    def test_compiles_as_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "readme.c"
            source.write_text(self.program, encoding="utf-8")
            result = subprocess.run(
                [CC, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", "-c", source,
                 "-o", source.with_suffix(".o")],
                capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_is_the_example(self):
        example = (ROOT / "examples/all_reduce.c").read_text(encoding="utf-8")
        self.assertIn(self.program, example)

    def test_begins_with_two_commands(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        first = re.search(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertIsNotNone(first)
        commands = [line.split("#")[0].strip() for line in first.group(1).splitlines() if line.strip()]
        self.assertEqual(commands, ["make demo", "make test"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
