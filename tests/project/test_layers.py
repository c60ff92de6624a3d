#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/check-layers finds what it is there to find: each fault is planted in a copy of the tree."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
FAULTS = [
    ("src/plan/plan.c", '#include "engine/engine.h"', "src/plan may include"),
    ("src/base/log.c", '#include "wire/header.h"', "src/base may include"),
    ("src/engine/run.c", '#include "group/group.h"', "src/engine may include"),
    ("src/verbs/slab.c", '#include "plan/plan.h"', "src/verbs may include"),
    ("src/plan/plan.c", "#include <jansson.h>", "may include jansson.h"),
    ("src/plan/plan.c", "#include <infiniband/verbs.h>", "may include infiniband/verbs.h"),
    ("src/plan/plan.c", '#include "choice.h"', "write the folder in front"),
    ("tools/jackal.c", '#include "base/error.h"', "public headers only"),
    ("fabric/fabric_qp.c", '#include "engine/engine.h"', "knows nothing of src/"),
    ("include/jackal/types.h", "#include <stdio.h>", "a public header includes"),
]


class Layers(unittest.TestCase):
    def check(self, root):
        return subprocess.run([sys.executable, ROOT / "scripts/check-layers", root],
                              capture_output=True, text=True, timeout=30, check=False)

    def test_planted_faults_are_found(self):
        for name, line, expected in FAULTS:
            with self.subTest(file=name, line=line), tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder)
                for part in ("include", "src", "fabric", "tools"):
                    shutil.copytree(ROOT / part, copy / part)
                target = copy / name
                target.write_text(line + "\n" + target.read_text(encoding="utf-8"), encoding="utf-8")
                result = self.check(copy)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(expected, result.stdout)
                self.assertIn(f"{name}:1:", result.stdout)


if __name__ == "__main__":
    unittest.main()
