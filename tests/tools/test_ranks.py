# SPDX-License-Identifier: MIT
"""What ranks are given: arguments, environment, folder, stdin, listening socket (F6, F8, F13)."""

import json
import os
import re
import subprocess

import harness

SHOW_ENVIRONMENT = 'env > "$NOTES/env.$JACKAL_RANK"'

# Prints what it got so that nothing can be lost on the way.
SHOW_WORDS = (
    "import os,sys,json;"
    "json.dump([sys.argv[1:], os.environ.get('VALUE')], open(os.environ['NOTES'] + '/words.' +"
    " os.environ['JACKAL_RANK'], 'w'))"
)

ODD_VALUES = [
    "",
    " ",
    "two words",
    "it's",
    'a "quoted" word',
    "$(touch $NOTES/ran)",
    "`id`",
    "$HOME",
    "a\nb\n",
    "-n",
    "--env",
    "--",
    "*",
    "back\\slash",
    "tab\tand ; & | < > (",
    "k=v=w",
    "größe ✓",
]


class Environment(harness.JobTest):
    def environments(self, n_ranks, *options, env=None):
        result = self.run_script(options, SHOW_ENVIRONMENT, env=env)
        self.assertEqual((result.status, result.err), (0, b""))
        found = []
        for rank in range(n_ranks):
            lines = self.read(f"env.{rank}").decode().splitlines()
            os.unlink(self.path(f"env.{rank}"))
            found.append(dict(line.split("=", 1) for line in lines if "=" in line))
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith("env.")], [])
        return found

    def test_two_ranks_by_default(self):
        first, second = self.environments(2)
        self.assertEqual((first["JACKAL_RANK"], second["JACKAL_RANK"]), ("0", "1"))
        for rank, environment in enumerate((first, second)):
            self.assertEqual(environment["JACKAL_SIZE"], "2")
            self.assertEqual(environment["JACKAL_VERBS"], "fabric")
            self.assertEqual(environment["JACKAL_FABRIC_HOST"], str(rank))
            self.assertRegex(environment["JACKAL_JOB"], "^[0-9a-f]{32}$")
            self.assertRegex(environment["JACKAL_COORDINATOR"], r"^127\.0\.0\.1:[0-9]+$")
            self.assertNotIn("JACKAL_FABRIC", environment)
        for name in ("JACKAL_JOB", "JACKAL_COORDINATOR", "JACKAL_FABRIC_NAME", "JACKAL_DEVICES"):
            self.assertEqual(first[name], second[name])
        self.assertRegex(first["JACKAL_LISTEN"], "^fd:[0-9]+$")
        self.assertNotIn("JACKAL_LISTEN", second)

    def test_each_job_has_names_of_its_own(self):
        first, second = self.environments(2)[0], self.environments(2)[0]
        self.assertNotEqual(first["JACKAL_JOB"], second["JACKAL_JOB"])
        self.assertNotEqual(first["JACKAL_FABRIC_NAME"], second["JACKAL_FABRIC_NAME"])

    def check_matrix(self, text, n_ranks, n_wires):
        """The k-th group of devices of a host leads to its k-th other host, ascending."""
        expected = []
        for host in range(n_ranks):
            others = [other for other in range(n_ranks) if other != host]
            row = [None] * n_ranks
            for k, other in enumerate(others):
                row[other] = [f"rdma_en{2 + k * n_wires + wire}" for wire in range(n_wires)]
            expected.append(row)
        self.assertEqual(json.loads(text), expected)

    def test_matrix_of_three(self):
        environments = self.environments(3, "-n", "3")
        self.check_matrix(environments[2]["JACKAL_DEVICES"], 3, 1)
        self.assertEqual(json.loads(environments[0]["JACKAL_DEVICES"])[1][2], ["rdma_en3"])

    def test_matrix_of_wires(self):
        fabric = '{"mesh":{"hosts":4,"wires":2}}'
        environments = self.environments(4, f"--fabric={fabric}")
        self.check_matrix(environments[0]["JACKAL_DEVICES"], 4, 2)
        self.assertEqual(environments[3]["JACKAL_FABRIC"], fabric)

    def test_fabric_file_is_found_from_another_folder(self):
        self.write("f.json", '{"mesh":{"hosts":5,"wires":3}}')
        os.mkdir(self.path("other"))
        process = self.start(
            *("run", "-n", "3", "--fabric=f.json", "--cwd", "other", "sh", "-c", SHOW_ENVIRONMENT),
            cwd=self.dir,
        )
        self.assertEqual(self.finish(process).status, 0)
        environment = dict(
            line.split("=", 1) for line in self.read("env.0").decode().splitlines() if "=" in line
        )
        self.assertEqual(environment["JACKAL_FABRIC"], os.path.realpath(self.path("f.json")))
        self.check_matrix(environment["JACKAL_DEVICES"], 3, 3)

    def test_fabric_of_the_environment_counts_like_the_option(self):
        fabric = '{"mesh":{"hosts":3,"wires":2}}'
        environments = self.environments(2, env={"JACKAL_FABRIC": fabric})
        self.assertEqual(environments[0]["JACKAL_FABRIC"], fabric)
        self.check_matrix(environments[0]["JACKAL_DEVICES"], 2, 2)

    def test_fabric_without_value_is_the_default_mesh(self):
        fabric = '{"mesh":{"hosts":3,"wires":2}}'
        environments = self.environments(2, "--fabric", env={"JACKAL_FABRIC": fabric})
        self.assertNotIn("JACKAL_FABRIC", environments[0])
        self.check_matrix(environments[0]["JACKAL_DEVICES"], 2, 1)

    def test_nine_ranks_need_a_larger_mesh(self):
        environments = self.environments(9, "-n", "9")
        self.assertEqual(
            json.loads(environments[8]["JACKAL_FABRIC"]), {"mesh": {"hosts": 9, "wires": 1}}
        )
        self.check_matrix(environments[4]["JACKAL_DEVICES"], 9, 1)
        self.assertNotIn("JACKAL_FABRIC", self.environments(8, "-n8")[0])

    def test_sixty_four_ranks(self):
        environments = self.environments(64, "-n", "64")
        self.assertEqual(environments[63]["JACKAL_RANK"], "63")
        self.check_matrix(environments[63]["JACKAL_DEVICES"], 64, 1)

    def test_one_rank_gets_rank_and_size_only(self):
        (environment,) = self.environments(1, "-n", "1")
        ours = {name: value for name, value in environment.items() if name.startswith("JACKAL_")}
        self.assertEqual(ours, {"JACKAL_RANK": "0", "JACKAL_SIZE": "1", "JACKAL_LOG": "warning"})

    def test_one_rank_on_a_fabric_of_its_own(self):
        (environment,) = self.environments(1, "-n", "1", "--fabric")
        self.assertEqual(environment["JACKAL_VERBS"], "fabric")
        self.assertIn("JACKAL_FABRIC_NAME", environment)
        self.assertNotIn("JACKAL_COORDINATOR", environment)

    def test_another_job_is_not_inherited(self):
        outer = {
            name: "outer"
            for name in "JACKAL_RANK JACKAL_LISTEN JACKAL_DEVICES JACKAL_JOB JACKAL_HOSTFILE "
            "JACKAL_COORDINATOR JACKAL_FABRIC_NAME MLX_RANK JACCL_RANK MLX_IBV_DEVICES "
            "MLX_HOSTFILE MLX_JACCL_COORDINATOR".split()
        }
        outer["JACKAL_INIT_TIMEOUT_MS"] = "4321"
        for n_ranks in (1, 2):
            for environment in self.environments(n_ranks, "-n", str(n_ranks), env=outer):
                self.assertNotIn("outer", environment.values())
                self.assertEqual(environment["JACKAL_INIT_TIMEOUT_MS"], "4321")

    def test_env_option_wins(self):
        environments = self.environments(
            *(2, "--env", "JACKAL_VERBS=/a/library.so", "--env=PLAIN=1", "--env", "PLAIN=2"),
            env={"PLAIN": "0", "JACKAL_VERBS": "system"},
        )
        for environment in environments:
            self.assertEqual(environment["JACKAL_VERBS"], "/a/library.so")
            self.assertEqual(environment["PLAIN"], "2")

    def test_env_option_sets_the_path_that_is_searched(self):
        os.mkdir(self.path("bin"))
        script = self.write("bin/own-program", '#!/bin/sh\necho "found $JACKAL_RANK"\n')
        os.chmod(script, 0o755)
        path = self.path("bin") + ":" + os.environ["PATH"]
        result = self.jackal("run", "-n", "1", "--env", f"PATH={path}", "own-program")
        self.assertEqual((result.status, result.out), (0, b"[0] found 0\n"), result.err)


class Words(harness.JobTest):
    def test_f6_arguments_arrive_unchanged(self):
        result = self.jackal(
            "run", "-n", "2", "--", harness.PYTHON, "-c", SHOW_WORDS, *ODD_VALUES
        )
        self.assertEqual((result.status, result.err), (0, b""))
        for rank in range(2):
            self.assertEqual(json.loads(self.read(f"words.{rank}"))[0], ODD_VALUES)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_f6_values_arrive_unchanged(self):
        for number, value in enumerate(ODD_VALUES):
            option = ["--env", f"VALUE={value}"] if number % 2 else [f"--env=VALUE={value}"]
            result = self.run_script(
                ["-n", "1", "--no-prefix", *option], 'printf "%s." "$VALUE"'
            )
            self.assertEqual((result.status, result.out), (0, (value + ".").encode()))
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_f6_working_folder(self):
        for name in ("a b", "-n", "$(x)", "new\nline"):
            os.mkdir(self.path(name))
            process = self.start(
                *("run", "-n", "1", "--no-prefix", "--cwd", name, "--", "pwd", "-P"), cwd=self.dir
            )
            result = self.finish(process)
            expected = os.path.realpath(self.path(name)) + "\n"
            self.assertEqual((result.status, result.out.decode()), (0, expected), result.err)

    def test_options_of_the_program_stay_its_own(self):
        result = self.jackal("run", "-n1", "--no-prefix", "echo", "-n", "--", "--env", "x")
        self.assertEqual((result.status, result.out), (0, b"-- --env x"))

    def test_program_relative_to_the_folder(self):
        os.mkdir(self.path("sub"))
        os.chmod(self.write("sub/tool", "#!/bin/sh\necho here\n"), 0o755)
        result = self.jackal("run", "-n", "1", "--cwd", self.path("sub"), "./tool")
        self.assertEqual((result.status, result.out), (0, b"[0] here\n"), result.err)

    def test_program_not_found(self):
        result = self.jackal("run", "-n", "3", "no-such-program")
        self.assertEqual((result.status, result.out), (127, b""))
        self.assertEqual(result.err.count(b"\n"), 1, result.err)
        self.assertIn(b'"no-such-program"', result.err)

    def test_program_not_executable(self):
        for program in (self.write("plain", "x"), self.dir):
            result = self.jackal("run", "-n", "3", program)
            self.assertEqual((result.status, result.out), (126, b""))
            self.assertEqual(result.err.count(b"\n"), 1, result.err)


class Descriptors(harness.JobTest):
    def test_rank_zero_can_accept_and_nobody_else(self):
        program = """
import os, socket, sys
rank = int(os.environ["JACKAL_RANK"])
host, port = os.environ["JACKAL_COORDINATOR"].rsplit(":", 1)
if rank == 0:
    listener = socket.socket(fileno=int(os.environ["JACKAL_LISTEN"].split(":")[1]))
    assert listener.getsockname() == (host, int(port)), listener.getsockname()
    listener.settimeout(10)
    names = []
    for _ in range(2):
        peer, _ = listener.accept()
        names.append(peer.recv(16, socket.MSG_WAITALL))
        peer.close()
    print(sorted(names))
else:
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(b"rank %011d" % rank)
    for fd in range(3, 256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        sys.exit(f"rank {rank} has descriptor {fd}")
"""
        result = self.jackal("run", "-n", "3", harness.PYTHON, "-c", program)
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(result.out, b"[0] [b'rank 00000000001', b'rank 00000000002']\n")

    def test_rank_zero_has_nothing_but_the_listener(self):
        program = (
            "import os\n"
            "def there(fd):\n"
            "    try: os.fstat(fd)\n"
            "    except OSError: return False\n"
            "    return True\n"
            "print(['fd:%d' % fd for fd in range(3, 256) if there(fd)] =="
            " [os.environ['JACKAL_LISTEN']])\n"
        )
        result = self.run_script(
            ["-n", "2", "--no-prefix"],
            f'[ "$JACKAL_RANK" != 0 ] || exec "{harness.PYTHON}" -c "$1"',
            program,
        )
        self.assertEqual((result.status, result.out), (0, b"True\n"), result.err)

    def test_port_closes_with_rank_zero(self):
        """Ranks that come later are refused, instead of waiting in the queue of a dead socket."""
        program = """
import os, socket, sys, time
host, port = os.environ["JACKAL_COORDINATOR"].rsplit(":", 1)
if os.environ["JACKAL_RANK"] == "0":
    sys.exit(0)
for _ in range(200):
    try:
        socket.create_connection((host, int(port)), 10).close()
    except ConnectionRefusedError:
        print("refused")
        break
    time.sleep(0.02)
"""
        result = self.jackal("run", "-n", "2", harness.PYTHON, "-c", program)
        self.assertEqual((result.status, result.out), (0, b"[1] refused\n"), result.err)

    def test_g3_signal_dispositions_and_limits_are_those_of_the_caller(self):
        """A rank with the default SIGPIPE dies of it; a launcher that ignores it must not show."""
        program = (
            "import resource,signal;"
            "print(signal.pthread_sigmask(signal.SIG_BLOCK, []),"
            " resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        )
        show = ["--no-prefix", "-n", "1", harness.PYTHON, "-c", program]

        def lower():
            import resource

            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))

        result = self.jackal("run", *show, preexec_fn=lower)
        self.assertEqual((result.status, result.out), (0, b"set() 200\n"), result.err)
        result = self.run_script(["-n", "1", "--no-prefix"], "kill -PIPE $$; echo survived")
        self.assertEqual((result.status, result.out), (141, b""))


class Stdin(harness.JobTest):
    def shown(self, mode, data, n_ranks=3):
        options = ["-n", str(n_ranks), *mode]
        result = self.run_script(options, 'cat > "$NOTES/in.$JACKAL_RANK"', data=data)
        self.assertEqual((result.status, result.err), (0, b""))
        return [self.read(f"in.{rank}") for rank in range(n_ranks)]

    def test_nobody_reads_by_default(self):
        self.assertEqual(self.shown([], b"data"), [b"", b"", b""])
        self.assertEqual(self.shown(["--stdin", "none"], b"data"), [b"", b"", b""])

    def test_rank_zero_reads(self):
        data = bytes(range(256)) * 2000
        self.assertEqual(self.shown(["--stdin=rank0"], data), [data, b"", b""])

    def test_all_read_everything(self):
        data = b"".join(b"line %d\n" % i for i in range(50000))
        self.assertEqual(self.shown(["--stdin", "all"], data), [data] * 3)

    def test_a_rank_that_does_not_read_stops_nobody(self):
        data = b"x" * 1000000
        result = self.run_script(
            ["-n", "2", "--stdin", "all"],
            '[ "$JACKAL_RANK" = 1 ] && exec <&- && exit 0; wc -c',
            data=data,
        )
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(result.out.split(), [b"[0]", b"1000000"])

    def test_stdin_that_nobody_needs_does_not_keep_the_launcher(self):
        process = self.start("run", "--stdin", "rank0", "true", stdin=subprocess.PIPE)
        process.wait(10)
        self.assertEqual(process.returncode, 0)


class Options(harness.JobTest):
    def test_f8_every_option_has_a_test(self):
        """A new option is to be added here together with the test that observes its effect."""
        tested = set(
            "--env --cwd --grace --timeout --keep-going --log-dir --no-prefix --stdin --fabric "
            "--help".split()
        )
        options = self.jackal("run", "--help").out.decode()
        self.assertEqual(set(re.findall(r"(?m)^ {2,6}(?:-\w, )?(--[a-z-]+)", options)), tested)


if __name__ == "__main__":
    harness.main()
