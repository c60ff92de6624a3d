# SPDX-License-Identifier: MIT
"""How a job ends when something goes wrong: T12 with its variants, F1, F2, F10, H5."""

import os
import signal
import subprocess
import time

import harness

# 300 KiB without a newline; the 3-byte character begins one byte before offset 8192.
T12_TEXT = b"x" * 8191 + "€".encode() + b"y" * (300 * 1024 - 8194)

# Ranks other than 1 and a child of rank 0 ignore SIGTERM and sleep for a minute.
T12_STAY = (
    'trap "" TERM; '
    '[ "$JACKAL_RANK" != 0 ] || { sh -c \'echo $$ > "$NOTES/pid.child"; sleep 60\' & }; '
    'echo $$ > "$NOTES/pid.$JACKAL_RANK"; sleep 60; exit 0; '
)

WAIT_FOR_ALL = (
    'while ! [ -s "$NOTES/pid.0" ] || ! [ -s "$NOTES/pid.2" ] || ! [ -s "$NOTES/pid.child" ]; do '
    "sleep 0.02; done; "
)


class T12(harness.JobTest):
    def setUp(self):
        super().setUp()
        self.temporary = self.path("temporary")
        os.mkdir(self.temporary)
        with open(self.path("text"), "wb") as file:
            file.write(T12_TEXT)

    def start_job(self, end, *options, **more):
        """Ranks 0 and 2 stay; rank 1 waits until they are there and does `end`."""
        script = f'[ "$JACKAL_RANK" = 1 ] || {{ {T12_STAY} }}; {WAIT_FOR_ALL} {end}'
        return self.start(
            *("run", "-n", "3", *options, "--", "sh", "-c", script),
            env={"TMPDIR": self.temporary},
            **more,
        )

    def assert_clean(self):
        self.assertEqual(os.listdir(self.temporary), [])

    def test_t12_byte_exact_status_and_time(self):
        before = harness.children_cpu_s()
        end = 'cat "$NOTES/text"; echo reason >&2; exit 7'
        result = self.finish(self.start_job(end, "--no-prefix"))
        pids = self.noted_pids()
        self.assertEqual(set(pids), {"0", "2", "child"})
        self.assert_gone(pids)
        self.assertEqual(result.status, 7, result.err)
        self.assertLess(result.seconds, 7.0)
        self.assertGreater(result.seconds, 5.0)  # the others had their grace
        self.assertLess(harness.children_cpu_s() - before, 0.5)
        self.assertEqual(len(result.out), 300 * 1024)
        self.assertTrue(result.out == T12_TEXT)
        self.assertIn(b"rank 1 exited with 7 first\n", result.err)
        self.assertTrue(result.err.endswith(b"its last lines on stderr:\n  reason\n"))
        self.assert_clean()

    def test_t12_rank_dies_of_a_signal_behind_a_prefix(self):
        end = 'cat "$NOTES/text"; kill -SEGV $$'
        result = self.finish(self.start_job(end, "--grace", "0.2"))
        self.assertEqual(result.status, 139)
        self.assertTrue(result.out == b"[1] " + T12_TEXT)
        self.assertIn(b"rank 1 was killed by SIGSEGV first\n", result.err)
        self.assertIn(b"ranks 0, 2 were killed by SIGKILL\n", result.err)
        self.assert_gone(self.noted_pids())

    def signal_launcher(self, number, status):
        process = self.start_job("sleep 60", "--grace", "0.3")
        pids = self.wait_for_notes("0", "2", "child")
        process.send_signal(number)
        result = self.finish(process)
        self.assertEqual(result.status, status, result.err)
        self.assertIn(b"ended the job after " + number.name.encode(), result.err)
        self.assert_gone(pids)
        self.assert_clean()

    def test_t12_launcher_gets_sigint(self):
        self.signal_launcher(signal.SIGINT, 130)

    def test_launcher_gets_sigterm(self):
        self.signal_launcher(signal.SIGTERM, 143)

    def test_launcher_gets_sighup(self):
        self.signal_launcher(signal.SIGHUP, 129)

    def test_t12_launcher_is_killed(self):
        process = self.start_job("sleep 60")
        pids = self.wait_for_notes("0", "2", "child")
        table = subprocess.run(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, check=True)
        for line in table.stdout.splitlines():
            pid, parent = (int(word) for word in line.split())
            if parent == process.pid and pid not in pids.values():
                pids[f"process {pid}"] = pid
        self.assertEqual(len(pids), 3 + 2, pids)  # with rank 1 and the guard
        process.kill()
        killed_at = time.monotonic()
        # The pipes must close at once: nobody but the launcher held the other ends.
        out, _ = process.communicate(timeout=5)
        self.assertEqual(out, b"")
        self.assert_gone(pids, 10 - (time.monotonic() - killed_at))
        self.assert_clean()


    def test_everything_in_the_group_of_the_launcher_is_killed(self):
        """As `kill -9` of a shell's job does: the guard must not be part of it."""
        process = self.start_job("sleep 60", start_new_session=True)
        pids = self.wait_for_notes("0", "2", "child")
        os.killpg(process.pid, signal.SIGKILL)
        self.assertEqual(self.finish(process).status, -9)
        self.assert_gone(pids, 10)


class Folder(harness.JobTest):
    """The folder of the emulated fabric, here made by the ranks themselves."""

    MAKE = (
        'umask 077; mkdir -p "$ROOT/$JACKAL_FABRIC_NAME"; '
        'echo x > "$ROOT/$JACKAL_FABRIC_NAME/host.$JACKAL_FABRIC_HOST"; '
        'echo "$JACKAL_FABRIC_NAME" > "$NOTES/name"; '
    )

    def setUp(self):
        super().setUp()
        self.root = harness.fabric_root()

    def folder(self):
        return os.path.join(self.root, self.read("name").decode().strip())

    def start_job(self, script, *options):
        return self.start(
            *("run", "-n", "2", *options, "sh", "-c", self.MAKE + script), env={"ROOT": self.root}
        )

    def test_f10_removed_after_success_and_failure(self):
        for script, status in (("exit 0", 0), ("exit $JACKAL_RANK", 1), ("kill -KILL $$", 137)):
            result = self.finish(self.start_job(script, "--grace", "0.2"))
            self.assertEqual(result.status, status, result.err)
            self.assertFalse(os.path.exists(self.folder()))

    def test_f10_removed_after_signals(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            process = self.start_job(
                'echo $$ > "$NOTES/pid.$JACKAL_RANK"; exec sleep 60', "--grace", "0.3"
            )
            pids = self.wait_for_notes("0", "1")
            folder = self.folder()
            self.assertEqual(sorted(os.listdir(folder)), ["host.0", "host.1"])
            process.send_signal(number)
            self.assertEqual(self.finish(process).status, status)
            self.assert_gone(pids, 10)
            harness.wait_until(lambda f=folder: not os.path.exists(f), 10, "removal of the folder")
            for rank in (0, 1):
                os.unlink(self.path(f"pid.{rank}"))

    def test_c10_guard_that_was_killed_is_replaced_by_the_launcher(self):
        process = self.start_job('echo $$ > "$NOTES/pid.$JACKAL_RANK"; exec sleep 1')
        ranks = set(self.wait_for_notes("0", "1").values())
        table = subprocess.run(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, check=True)
        children = {
            int(line.split()[0])
            for line in table.stdout.splitlines()
            if int(line.split()[1]) == process.pid
        }
        (guard,) = children - ranks
        os.kill(guard, signal.SIGKILL)
        result = self.finish(process)
        self.assertEqual(result.status, 0, result.err)
        self.assertFalse(os.path.exists(self.folder()))

    def test_links_are_not_followed(self):
        os.mkdir(self.path("precious"))
        self.write("precious/file", "keep")
        script = (
            'ln -s "$NOTES/precious" "$ROOT/$JACKAL_FABRIC_NAME/link.$JACKAL_FABRIC_HOST"; '
            'ln -s "$NOTES/precious/file" "$ROOT/$JACKAL_FABRIC_NAME/file.$JACKAL_FABRIC_HOST"'
        )
        self.assertEqual(self.finish(self.start_job(script)).status, 0)
        self.assertEqual(self.read("precious/file"), b"keep")
        folder = self.folder()
        for name in os.listdir(folder):
            self.assertTrue(os.path.islink(os.path.join(folder, name)), name)
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)

    def test_folder_that_is_a_link_is_left_alone(self):
        os.mkdir(self.path("precious"))
        self.write("precious/file", "keep")
        script = (
            '[ "$JACKAL_RANK" = 0 ] && exit 0; sleep 0.3; rm -r "$ROOT/$JACKAL_FABRIC_NAME"; '
            'ln -s "$NOTES/precious" "$ROOT/$JACKAL_FABRIC_NAME"'
        )
        result = self.finish(self.start_job(script))
        self.assertEqual((result.status, result.err), (0, b""))
        self.assertEqual(self.read("precious/file"), b"keep")
        os.unlink(self.folder())


class Failure(harness.JobTest):
    def test_f1_status_is_that_of_the_first_failure(self):
        script = "sleep 0.$JACKAL_RANK; exit $((9 - JACKAL_RANK))"
        result = self.run_script(["-n", "4"], script)
        self.assertEqual(result.status, 9)
        self.assertIn(b"rank 0 exited with 9 first\n", result.err)
        for rank in (1, 2, 3):
            self.assertIn(b"rank %d exited with %d\n" % (rank, 9 - rank), result.err)

    def test_f1_a_crash_counts_before_an_exit_that_is_found_with_it(self):
        """The launcher sleeps while both die, so it cannot know who was first."""
        script = (
            'echo $$ > "$NOTES/pid.$JACKAL_RANK"; while ! [ -e "$NOTES/go" ]; do sleep 0.02; done; '
            '[ "$JACKAL_RANK" = 1 ] && kill -SEGV $$; exit 1'
        )
        process = self.start("run", "-n", "3", "sh", "-c", script)
        pids = self.wait_for_notes("0", "1", "2")
        process.send_signal(signal.SIGSTOP)
        self.write("go", "")
        self.assert_gone(pids, 10)
        process.send_signal(signal.SIGCONT)
        result = self.finish(process)
        self.assertEqual(result.status, 139)
        self.assertIn(b"rank 1 was killed by SIGSEGV first\n", result.err)
        self.assertIn(b"ranks 0, 2 exited with 1\n", result.err)

    def test_all_good_is_silent(self):
        result = self.run_script(["-n", "3"], "exit 0")
        self.assertEqual((result.status, result.out, result.err), (0, b"", b""))

    def test_f2_others_may_report_before_they_are_ended(self):
        script = '[ "$JACKAL_RANK" = 1 ] && exit 3; sleep 0.5; echo "saw it $JACKAL_RANK"'
        result = self.run_script(["-n", "3"], script)
        self.assertEqual(result.status, 3)
        self.assertEqual(sorted(result.out.splitlines()), [b"[0] saw it 0", b"[2] saw it 2"])
        self.assertLess(result.seconds, 4.0)  # nobody is left, so the grace is not waited for

    def test_grace_then_sigterm_then_sigkill(self):
        """Rank 0 ends tidily on SIGTERM, rank 2 ignores it."""
        script = (
            'case "$JACKAL_RANK" in 1) sleep 0.2; exit 3;; 2) trap "" TERM;; '
            "0) trap 'echo tidy; exit 0' TERM;; esac; "
            "i=0; while [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done"
        )
        result = self.run_script(["-n", "3", "--grace", "0.7"], script)
        self.assertEqual(result.status, 3)
        self.assertEqual(result.out, b"[0] tidy\n")
        self.assertIn(b"rank 0 exited with 0\n", result.err)
        self.assertIn(b"rank 2 was killed by SIGKILL\n", result.err)
        self.assertGreater(result.seconds, 0.2 + 0.7 + 1.4)
        self.assertLess(result.seconds, 0.2 + 0.7 + 3.0)

    def test_h5_last_lines_of_the_first_failure(self):
        script = (
            'if [ "$JACKAL_RANK" = 1 ]; then for i in 1 2 3 4 5 6 7; do echo "line $i" >&2; done; '
            'exit 5; fi; sleep 0.3; echo "peer lost" >&2; exit 1'
        )
        result = self.run_script(["-n", "2"], script)
        self.assertEqual(result.status, 5)
        summary = result.err[result.err.index(b"jackal run:") :]
        self.assertEqual(
            summary,
            b"jackal run: rank 0 exited with 1\n"
            b"jackal run: rank 1 exited with 5 first\n"
            b"jackal run: its last lines on stderr:\n"
            + b"".join(b"  line %d\n" % i for i in range(3, 8)),
        )

    def test_keep_going_leaves_the_others_alone(self):
        script = '[ "$JACKAL_RANK" = 0 ] && exit 4; sleep 0.8; echo done'
        result = self.run_script(["-n", "2", "--keep-going", "--grace", "0.1"], script)
        self.assertEqual((result.status, result.out), (4, b"[1] done\n"))
        self.assertIn(b"rank 0 exited with 4 first\n", result.err)
        result = self.run_script(["-n", "2", "--grace", "0.1"], script)
        self.assertEqual((result.status, result.out), (4, b""))

    def test_timeout_ends_the_job(self):
        script = 'echo $$ > "$NOTES/pid.$JACKAL_RANK"; exec sleep 60'
        result = self.run_script(["-n", "2", "--timeout", "0.5"], script)
        self.assertEqual(result.status, 124)
        self.assertIn(b"--timeout 0.5 s", result.err)
        self.assertLess(result.seconds, 5.0)
        self.assert_gone(self.noted_pids())
        self.assertEqual(self.run_script(["--timeout", "20"], "exit 0").status, 0)

    def test_second_interrupt_does_not_wait_for_the_grace(self):
        script = 'trap "" INT; echo $$ > "$NOTES/pid.$JACKAL_RANK"; sleep 60; sleep 60'
        process = self.start("run", "-n", "2", "--grace", "20", "sh", "-c", script)
        pids = self.wait_for_notes("0", "1")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        result = self.finish(process, limit_s=10)
        self.assertEqual(result.status, 130)
        self.assert_gone(pids)

    def test_interrupt_reaches_the_ranks_as_it_is(self):
        script = (
            "trap 'echo interrupted; exit 0' INT; echo $$ > \"$NOTES/pid.$JACKAL_RANK\"; "
            "while :; do sleep 0.05; done"
        )
        process = self.start("run", "-n", "2", "sh", "-c", script)
        self.wait_for_notes("0", "1")
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assertEqual(result.status, 130)
        self.assertEqual(result.out.count(b"interrupted\n"), 2)

    def test_ignored_hang_up_stays_ignored(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        script = 'echo $$ > "$NOTES/pid.$JACKAL_RANK"; sleep 0.6; echo done'
        process = self.start(
            "run", "-n", "1", "sh", "-c", script, preexec_fn=ignore
        )
        self.wait_for_notes("0")
        process.send_signal(signal.SIGHUP)
        result = self.finish(process)
        self.assertEqual((result.status, result.out), (0, b"[0] done\n"))

    def test_blocked_reader_does_not_stop_an_interrupt(self):
        script = 'echo $$ > "$NOTES/pid.$JACKAL_RANK"; yes'
        process = self.start("run", "-n", "2", "--grace", "0.3", "sh", "-c", script)
        pids = self.wait_for_notes("0", "1")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.wait(10)  # and nobody has read a byte
        self.assertEqual(process.returncode, 130)
        self.assert_gone(pids)


class Descendants(harness.JobTest):
    def test_f4_output_of_a_child_that_outlives_its_rank(self):
        script = '[ "$JACKAL_RANK" = 1 ] || { (sleep 0.6; printf "late") & }; echo early'
        result = self.run_script(["-n", "2"], script)
        self.assertEqual(result.status, 0)
        self.assertTrue(result.out.endswith(b"[0] late"), result.out)

    def test_child_that_holds_the_pipes_has_the_grace(self):
        script = 'sh -c \'echo $$ > "$NOTES/pid.child.$JACKAL_RANK"; exec sleep 60\' & exit 0'
        result = self.run_script(["-n", "2", "--grace", "0.5"], script)
        self.assertEqual(result.status, 0, result.err)
        self.assertLess(result.seconds, 4.0)
        self.assert_gone(self.noted_pids())

    def test_silent_child_is_ended_with_the_job(self):
        script = (
            'sh -c \'echo $$ > "$NOTES/pid.child.$JACKAL_RANK"; exec sleep 60\' >&- 2>&- & '
            'while ! [ -s "$NOTES/pid.child.$JACKAL_RANK" ]; do sleep 0.02; done'
        )
        result = self.run_script(["-n", "2"], script)
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(len(self.noted_pids()), 2)
        self.assert_gone(self.noted_pids(), 1)

    def test_child_in_a_session_of_its_own_cannot_hold_the_launcher(self):
        program = (
            "import os,time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    open(os.environ['NOTES'] + '/pid.child', 'w').write('%d\\n' % os.getpid())\n"
            "    while True:\n"
            "        os.write(1, b'still here\\n')\n"
            "        time.sleep(0.01)\n"
            "time.sleep(0.3)\n"
        )
        # The pipe closes in the end, which is what such a child notices.
        process = self.start(
            "run", "-n", "1", "--grace", "0.3", harness.PYTHON, "-c", program
        )
        result = self.finish(process, limit_s=10)
        self.assertEqual(result.status, 0, result.err)
        self.assertIn(b"[0] still here\n", result.out)
        self.assert_gone(self.noted_pids(), 5)


if __name__ == "__main__":
    harness.main()
