#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs a build into a fresh folder; an outside program finds it by find_package and pkg-config
and runs on three ranks with the installed command and the installed fabric."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE, CC = sys.argv[1:4]
OUTSIDE = pathlib.Path(__file__).parent / "outside"


def run(*command, env=None):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            timeout=60, check=False, env=env)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="jackal-install-"))
        cls.prefix = cls.work / "prefix"
        run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)
        cls.lib = next(cls.prefix.glob("lib*/**/pkgconfig")).parent
        cls.env = dict(os.environ, PKG_CONFIG_PATH=str(cls.lib / "pkgconfig"))
        for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
            cls.env.pop(name, None)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def check_program(self, program):
        output = run(self.prefix / "bin/jackal", "run", "-n", "3", "--no-prefix", "--", program,
                     env=self.env)
        lines = output.split("\n")[:-1]
        self.assertEqual(len(lines), 3, output)
        for line in lines:
            self.assertRegex(line, r"^jackal \d+\.\d+\.\d+ sum 3$")

    def test_find_package(self):
        build = self.work / "cmake"
        run(CMAKE, "-S", OUTSIDE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={CC}")
        run(CMAKE, "--build", build)
        self.check_program(build / "outside")

    def test_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "jackal", env=self.env).split()
        program = self.work / "outside-pc"
        run(CC, "-std=c11", OUTSIDE / "outside.c", "-o", program, *flags,
            f"-Wl,-rpath,{self.lib}")
        self.check_program(program)

    def test_nothing_but_the_public_interface_is_exported(self):
        library = next(self.lib.glob("libjackal.so*"), None)
        if library is None:
            self.skipTest("no ELF library here")
        names = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
        strangers = {name for name in names if not name.startswith("jackal_")}
        self.assertEqual(strangers, set())
        needed = run("readelf", "-d", library)
        self.assertNotIn("jansson", needed)
        self.assertNotIn("ibverbs", needed)

    def test_verbs_library(self):
        folder = self.lib / "jackal/verbs"
        self.assertEqual([path.name for path in folder.iterdir()],
                         ["librdma.dylib" if sys.platform == "darwin" else "libibverbs.so.1"])

    def test_man_pages_and_what_they_point_to(self):
        self.assertTrue((self.prefix / "share/man/man1/jackal.1").exists())
        self.assertTrue(next(self.prefix.glob("share/doc/**/numerics.md")).exists())

    def test_the_tree_may_be_moved(self):
        moved = self.work / "moved"
        shutil.copytree(self.prefix, moved, symlinks=True)
        self.assertIn("jackal", run(moved / "bin/jackal", "--version", env=self.env))
        self.assertIn(str(moved), run("pkg-config", "--cflags", "jackal", env=dict(
            self.env, PKG_CONFIG_PATH=str(moved / self.lib.relative_to(self.prefix) / "pkgconfig"))))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
