# SPDX-License-Identifier: MIT
"""What ranks print, on its way through `jackal run` (F4)."""

import os
import re
import subprocess
import time

import harness


def by_rank(text):
    """Takes prefixed output apart: {rank: bytes}, continued lines put together again."""
    ranks = {}
    for line in text.splitlines(keepends=True):
        match = re.match(rb"\[ *(\d+)\]([ +])(.*)", line, re.DOTALL)
        if not match:
            raise AssertionError(f"a line without prefix: {line[:80]!r}")
        rank = int(match.group(1))
        so_far = ranks.get(rank, b"")
        if match.group(2) == b"+":
            so_far = so_far[:-1]  # the newline that the launcher put there
        ranks[rank] = so_far + match.group(3)
    return ranks


class Lines(harness.JobTest):
    def python(self, options, program, **more):
        return self.jackal("run", *options, "--", harness.PYTHON, "-c", program, **more)

    def test_each_line_is_prefixed(self):
        result = self.run_script(
            ["-n", "2"], 'printf "a $JACKAL_RANK\\n\\nb\\n"; printf "e\\n" >&2'
        )
        self.assertEqual(result.status, 0)
        self.assertEqual(by_rank(result.out), {0: b"a 0\n\nb\n", 1: b"a 1\n\nb\n"})
        self.assertEqual(by_rank(result.err), {0: b"e\n", 1: b"e\n"})

    def test_prefixes_of_many_ranks_are_aligned(self):
        result = self.run_script(["-n", "11"], "echo x")
        self.assertEqual(
            sorted(result.out.splitlines()), sorted(b"[%2d] x" % rank for rank in range(11))
        )

    def test_last_line_without_newline_is_kept_as_it_is(self):
        result = self.run_script(["-n", "1"], 'printf "a\\nrest"')
        self.assertEqual(result.out, b"[0] a\n[0] rest")
        result = self.run_script(["-n", "2"], '[ "$JACKAL_RANK" = 0 ] || sleep 0.4; printf "rest"')
        self.assertEqual(result.out, b"[0] rest\n[1] rest")

    def test_one_rank_without_prefix_is_byte_identical(self):
        data = os.urandom(300000) + b"\n\n\r\0"
        data += os.urandom(70000).replace(b"\n", b"") + b"\xe2\x82"
        with open(self.path("data"), "wb") as file:
            file.write(data)
        script = 'cat "$NOTES/data"; cat "$NOTES/data" >&2'
        result = self.run_script(["-n", "1", "--no-prefix"], script)
        self.assertEqual(result.out, data)
        self.assertEqual(result.err, data)

    def test_lines_of_ranks_are_never_mixed(self):
        """Each rank writes its lines in pieces that end anywhere."""
        program = (
            "import os\n"
            "rank = os.environ['JACKAL_RANK']\n"
            "text = ''.join('rank %s line %d %s\\n' % (rank, i, rank * (i * 7 % 300))\n"
            "               for i in range(2000)).encode()\n"
            "size = 97 + 31 * int(rank)\n"
            "for start in range(0, len(text), size):\n"
            "    os.write(1, text[start:start + size])\n"
        )
        for prefix in ([], ["--no-prefix"]):
            result = self.python(["-n", "3", *prefix], program)
            self.assertEqual(result.status, 0, result.err)
            seen = [0, 0, 0]
            for line in result.out.splitlines():
                text = line[4:] if not prefix else line
                rank, number = (int(word) for word in re.findall(rb"\d+", text)[:2])
                expected = f"rank {rank} line {number} " + str(rank) * (number * 7 % 300)
                self.assertEqual(text, expected.encode())
                self.assertEqual(number, seen[rank])
                seen[rank] += 1
            self.assertEqual(seen, [2000] * 3)

    def test_stdout_and_stderr_of_one_file_do_not_mix_lines(self):
        script = 'printf out-; sleep 0.35; echo err >&2; sleep 0.35; echo end'
        process = self.start("run", "-n", "1", "sh", "-c", script, stderr=subprocess.STDOUT)
        self.assertEqual(self.finish(process).out, b"[0] out-\n[0] err\n[0]+end\n")

    def test_a_long_line_that_goes_on_is_not_interrupted(self):
        """500 KiB in pieces, while another rank has lines to print; a stall may cut it, rarely."""
        program = (
            "import os, time\n"
            "rank = int(os.environ['JACKAL_RANK'])\n"
            "for i in range(100):\n"
            "    os.write(1, b'x' * 5120 if rank == 0 else b'line\\n')\n"
            "    time.sleep(0.002)\n"
            "os.write(1, b'\\n')\n"
        )
        for _ in range(4):
            result = self.python(["-n", "2"], program)
            self.assertEqual(result.status, 0, result.err)
            self.assertEqual(by_rank(result.out)[0], b"x" * 512000 + b"\n")
            if b"[0]+" not in result.out:
                return
        self.fail("each of four long lines was interrupted")

    def test_prompt_without_newline_is_shown_after_a_moment(self):
        process = self.start(
            *("run", "-n", "1", "--stdin", "rank0", "sh", "-c", 'printf "name? "; read x; echo $x'),
            stdin=subprocess.PIPE,
        )
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"[0] name? ")
        result = self.finish(process, b"ann\n")
        self.assertEqual(result.out, b"ann\n")

    def test_interrupted_line_is_marked(self):
        script = (
            'if [ "$JACKAL_RANK" = 0 ]; then printf "begin-"; sleep 0.7; echo end; '
            "else sleep 0.35; echo other; fi"
        )
        result = self.run_script(["-n", "2"], script)
        self.assertEqual(result.out, b"[0] begin-\n[1] other\n[0]+end\n")
        self.assertEqual(by_rank(result.out), {0: b"begin-end\n", 1: b"other\n"})

    def test_without_prefix_nothing_is_added(self):
        script = (
            'if [ "$JACKAL_RANK" = 0 ]; then printf "begin-"; sleep 0.7; printf end; '
            "else sleep 0.35; printf other; fi"
        )
        result = self.run_script(["-n", "2", "--no-prefix"], script)
        self.assertEqual(result.out, b"begin-otherend")

    def test_a_character_is_not_cut(self):
        """The euro sign comes in two writes with a pause in which another rank prints."""
        script = (
            'if [ "$JACKAL_RANK" = 0 ]; then printf "5 \\342\\202"; sleep 0.7; '
            "printf '\\254\\n'; else sleep 0.35; echo other; fi"
        )
        result = self.run_script(["-n", "2"], script)
        self.assertEqual(result.out, "[0] 5 \n[1] other\n[0]+€\n".encode())

    def test_long_lines_of_several_ranks_arrive_whole(self):
        program = (
            "import os\n"
            "rank = int(os.environ['JACKAL_RANK'])\n"
            "line = bytes([65 + rank]) * 3000000\n"
            "for start in range(0, len(line), 50000): os.write(1, line[start:start + 50000])\n"
            "os.write(1, b'\\n')\n"
        )
        result = self.python(["-n", "3"], program)
        self.assertEqual(result.status, 0, result.err)
        for rank, text in by_rank(result.out).items():
            self.assertEqual(text, bytes([65 + rank]) * 3000000 + b"\n")


class Reader(harness.JobTest):
    def test_slow_reader_loses_nothing_and_costs_no_memory(self):
        program = (
            "import os\n"
            "for i in range(20000): os.write(1, b'%07d ' % i * 128 + b'\\n')\n"
        )
        process = self.start("run", "-n", "2", "--no-prefix", harness.PYTHON, "-c", program)
        time.sleep(0.7)  # nobody reads: the pipes fill, and the ranks wait
        state = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(process.pid)], stdout=subprocess.PIPE, check=True
        )
        self.assertLess(int(state.stdout), 30000, "KiB of the launcher, for 40 MiB of output")
        self.assertIsNone(process.poll())
        result = self.finish(process)
        self.assertEqual(result.status, 0, result.err)
        lines = result.out.splitlines()
        expected = [b"%07d " % i * 128 for i in range(20000)]
        self.assertEqual(sorted(lines), sorted(expected * 2))

    def test_slow_reader_after_the_end_of_the_ranks(self):
        """The grace bounds how long pipes stay open, not how long a reader may take."""
        script = "head -c 60000 /dev/zero; echo"
        process = self.start("run", "-n", "4", "--grace", "0.2", "--no-prefix", "sh", "-c", script)
        time.sleep(1.5)
        self.assertIsNone(process.poll())
        self.assertEqual(len(self.finish(process).out), 4 * 60001)

    def test_reader_that_leaves_ends_the_job_quietly(self):
        process = self.start("run", "-n", "2", "--grace", "0.3", "sh", "-c", "yes")
        os.read(process.stdout.fileno(), 100)
        process.stdout.close()
        process.wait(10)
        self.assertEqual(process.returncode, 141)
        self.assertNotIn(b"cannot write", process.stderr.read())

    def test_f5_stdin_at_its_end_costs_nothing(self):
        before = harness.children_cpu_s()
        result = self.run_script(["-n", "2", "--stdin", "all"], "sleep 1")
        self.assertEqual(result.status, 0)
        self.assertLess(harness.children_cpu_s() - before, 0.5)

    def test_closed_standard_descriptors(self):
        script = f'exec <&- >&- 2>&-; exec "{harness.JACKAL}" run -n 2 sh -c "$1"'
        job = 'echo out; echo err >&2; cat; echo done > "$NOTES/done.$JACKAL_RANK"'
        environment = dict(os.environ, NOTES=self.dir)
        status = subprocess.run(
            ["sh", "-c", script, "sh", job], env=environment, timeout=20, check=False
        ).returncode
        self.assertEqual(status, 0)
        self.assertEqual(self.read("done.1"), b"done\n")


class Logs(harness.JobTest):
    def test_log_folder_holds_every_byte(self):
        folder = self.path("logs")
        script = 'printf "out $JACKAL_RANK"; printf "err\\n$JACKAL_RANK" >&2'
        for _ in range(2):  # the second time into the same folder
            result = self.run_script(["-n", "2", "--log-dir", folder], script)
            self.assertEqual(result.status, 0, result.err)
            self.assertEqual(sorted(result.out.split(b"\n")), [b"[0] out 0", b"[1] out 1"])
            names = [f"rank-{rank}.{kind}" for rank in (0, 1) for kind in ("err", "out")]
            self.assertEqual(sorted(os.listdir(folder)), names)
            for rank in (0, 1):
                self.assertEqual(self.read(f"logs/rank-{rank}.out"), b"out %d" % rank)
                self.assertEqual(self.read(f"logs/rank-{rank}.err"), b"err\n%d" % rank)

    def test_log_goes_on_when_the_reader_has_left(self):
        folder = self.path("logs")
        script = "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.002; done"
        process = self.start("run", "-n", "1", "--log-dir", folder, "sh", "-c", script)
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        process.wait(20)
        self.assertEqual(self.read("logs/rank-0.out").count(b"\n"), 200)


if __name__ == "__main__":
    harness.main()
