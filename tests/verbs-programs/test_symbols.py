#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The stand-in has every symbol of the installed libibverbs under its version, and can be made
where none is installed.

Usage: test_symbols.py STAND_IN FABRIC_LIBRARY C_COMPILER [INSTALLED_LIBRARY]
"""
import ctypes
import errno
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

STAND_IN, FABRIC, CC = sys.argv[1:4]
INSTALLED = sys.argv[4] if len(sys.argv) > 4 and os.path.exists(sys.argv[4]) else None
SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/make-verbs-stubs"


def script():
    loader = importlib.machinery.SourceFileLoader("stubs", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("stubs", loader))
    loader.exec_module(module)
    return module


STUBS = script()


def symbols(library):
    return set(STUBS.installed(library, "readelf"))


class Symbols(unittest.TestCase):
    def test_same_names_under_the_same_versions(self):
        if INSTALLED is None:
            self.skipTest("no libibverbs.so.1 installed")
        wanted, there = symbols(INSTALLED), symbols(STAND_IN)
        self.assertGreater(len(wanted), 150)
        self.assertEqual(wanted - there, set())
        more = {symbol.name for symbol in there - wanted}
        self.assertEqual({name for name in more if not name.startswith("jackal_fabric_")}, set())

    def test_name_of_the_library(self):
        self.assertIn("[libibverbs.so.1]", STUBS.run("readelf", "-d", STAND_IN))

    def test_the_list_kept_in_the_script(self):
        if INSTALLED is None:
            self.skipTest("no libibverbs.so.1 installed")
        public = {symbol for symbol in symbols(INSTALLED) if "PRIVATE" not in symbol.node}
        newest = max((symbol.node for symbol in public), key=STUBS.node_order)
        if newest != "IBVERBS_1.14":
            self.skipTest(f"the list is of IBVERBS_1.14, installed is {newest}")
        self.assertEqual(set(STUBS.listed()), public)

    def test_made_without_an_installed_library(self):
        with tempfile.TemporaryDirectory() as folder:
            STUBS.run(sys.executable, str(SCRIPT), "--out", folder, FABRIC)
            library = f"{folder}/made.so"
            subprocess.run([CC, "-shared", "-fPIC", "-o", library, f"{folder}/verbs_stubs.c",
                            f"-Wl,--version-script,{folder}/verbs.map"], check=True)
            there = symbols(library)
        for symbol in STUBS.listed():
            if not symbol.is_default:
                self.assertIn(symbol, there)
        self.assertFalse(any("PRIVATE" in symbol.node for symbol in there))

    def test_stubs_fail_as_an_old_provider(self):
        library = ctypes.CDLL(STAND_IN, use_errno=True)
        library.ibv_import_device.restype = ctypes.c_void_p
        ctypes.set_errno(0)
        self.assertIsNone(library.ibv_import_device(-1))
        self.assertEqual(ctypes.get_errno(), errno.EOPNOTSUPP)
        self.assertEqual(library.ibv_query_ece(None, None), errno.EOPNOTSUPP)
        self.assertEqual(library.ibv_rereg_mr(None, 0, None, None, 0, 0), -1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
