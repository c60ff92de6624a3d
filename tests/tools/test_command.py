# SPDX-License-Identifier: MIT
"""The command line itself: help, version, wrong usage, `jackal env`."""

import json
import os
import re

import harness


class CommandLine(harness.JobTest):
    def test_help_lists_every_subcommand(self):
        result = self.jackal("--help")
        self.assertEqual((result.status, result.err), (0, b""))
        for name in (b"run", b"env"):
            self.assertRegex(result.out, rb"(?m)^  " + name + rb" ")
        self.assertEqual(self.jackal("-h").out, result.out)

    def test_without_subcommand_the_help_is_an_error(self):
        result = self.jackal()
        self.assertEqual((result.status, result.out), (2, b""))
        self.assertIn(b"usage: jackal", result.err)

    def test_version(self):
        result = self.jackal("--version")
        self.assertEqual((result.status, result.err), (0, b""))
        self.assertRegex(result.out, rb"^jackal [0-9]+\.[0-9].*\n$")

    def test_unknown_subcommand_suggests_a_near_one(self):
        self.assert_usage(self.jackal("rnu"), '"rnu"', 'did you mean "run"?', "jackal --help")

    def test_unknown_subcommand_suggests_nothing_far(self):
        result = self.jackal("compile")
        self.assert_usage(result, '"compile"')
        self.assertNotIn(b"did you mean", result.err)

    def test_unknown_option(self):
        self.assert_usage(self.jackal("--verbose"), 'option "--verbose"')
        self.assert_usage(self.jackal("run", "--fabrik", "true"), "--fabrik", "mean --fabric?")
        self.assert_usage(self.jackal("run", "-x", "true"), "unknown option -x")
        self.assert_usage(self.jackal("env", "--jason"), "--jason", "mean --json?")

    def test_options_of_later_versions_are_unknown(self):
        for option in ("--hosts=a", "--hostfile=f", "--backend=tcp", "--max-restarts=1"):
            self.assert_usage(self.jackal("run", option, "true"), option.split("=", 1)[0])

    def test_malformed_values(self):
        cases = [
            (["-n", "0"], "-n", '"0"'),
            (["-n", "65"], "1 to 64", '"65"'),
            (["-n", "3x"], '"3x"', "-n"),
            (["-n", ""], '""', "-n"),
            (["-n"], "-n", "last word"),
            (["--grace", "-1"], "--grace", '"-1"'),
            (["--grace=soon"], "--grace", '"soon"'),
            (["--grace", "1.2.3"], "--grace", '"1.2.3"'),
            (["--timeout", "."], "--timeout", '"."'),
            (["--env", "NAME"], "--env", "NAME=VALUE"),
            (["--env", "=x"], "--env", '"=x"'),
            (["--env", "JACKAL_RANK=1"], "JACKAL_RANK"),
            (["--stdin", "rank1"], "--stdin", '"rank1"'),
            (["--no-prefix=1"], "--no-prefix", "no value"),
            (["--cwd", self.path("missing")], "--cwd", "missing"),
            (["--cwd", self.write("file", "")], "--cwd", "file"),
            (["--log-dir", self.path("a/b")], "--log-dir", "a/b"),
        ]
        for words, *parts in cases:
            with self.subTest(words=words):
                program = [] if words == ["-n"] else ["true"]
                self.assert_usage(self.jackal("run", *words, *program), *parts)

    def test_malformed_fabrics(self):
        cases = [
            ("{", "line 1"),
            ('{"mesh":3}', "mesh"),
            ('{"mesh":{"hosts":0}}', "hosts"),
            ('{"mesh":{"hosts":4,"wires":"two"}}', "wires"),
            (self.path("missing.json"), "missing.json"),
            (self.write("bad.json", '{"mesh":\n!'), "line 2"),
            # What only the provider knows is found before anything is started, too.
            ('{"foo":1}', "unknown key 'foo'"),
            ('{"mesh":{"hosts":65}}', "from 2 to 64"),
            ('{"faults":[{}]}', "faults[0]"),
            (self.path("."), "is not a file"),
            (self.pipe("pipe.json"), "is not a file"),
        ]
        for fabric, part in cases:
            with self.subTest(fabric=fabric):
                result = self.jackal("run", f"--fabric={fabric}", "true")
                self.assert_usage(result, part)

    def test_more_ranks_than_hosts(self):
        fabric = '{"mesh":{"hosts":3}}'
        result = self.jackal("run", "-n", "4", f"--fabric={fabric}", "true")
        self.assert_usage(result, "4 ranks", "has 3")

    def test_no_program(self):
        self.assert_usage(self.jackal("run", "-n", "2"), "no program")
        self.assert_usage(self.jackal("run", "--"), "no program")

    def test_unwritable_stdout_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.jackal("--version", stdout=full).status, 1)


class Environment(harness.JobTest):
    def test_json_names_values_and_sources(self):
        result = self.jackal("env", "--json", env={"JACKAL_RANK": "3"})
        self.assertEqual(result.status, 0, result.err)
        settings = {setting["name"]: setting for setting in json.loads(result.out)}
        self.assertEqual(str(settings["rank"]["value"]), "3")
        self.assertEqual(settings["rank"]["variable"], "JACKAL_RANK")
        self.assertIn("MLX_RANK", settings["rank"]["aliases"])
        self.assertNotEqual(settings["rank"]["source"], settings["init_timeout_ms"]["source"])

    def test_table_holds_every_setting_of_the_json(self):
        settings = json.loads(self.jackal("env", "--json").out)
        table = self.jackal("env").out.decode()
        for setting in settings:
            self.assertRegex(table, "(?m)^" + re.escape(setting["variable"]) + " ")
            self.assertIn(setting["help"], table)

    def test_unknown_variable_gets_a_warning(self):
        result = self.jackal("env", env={"JACKAL_RNAK": "3"})
        self.assertEqual(result.status, 0)
        self.assertEqual(result.err.count(b"\n"), 1, result.err)
        self.assertIn(b"JACKAL_RNAK", result.err)
        self.assertIn(b"did you mean JACKAL_RANK?", result.err)
        self.assertEqual(self.jackal("env", env={"JACKAL_RANK": "3"}).err, b"")

    def test_takes_no_operand(self):
        self.assert_usage(self.jackal("env", "rank"), '"rank"')


if __name__ == "__main__":
    harness.main()
