#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Debian's verbs programs, unmodified, on the emulated fabric: they run where the hardware would,
and fail where it would.

Usage: test_programs.py FOLDER_OF_LIBIBVERBS [CLASS[.TEST]]
"""
import os
import re
import sys
import unittest

import pairs

LIBRARY = sys.argv[1]
TB = ("thunderbolt", "rdma_en2")
ROCE = ("roce", "rocep1")


class Case(unittest.TestCase):
    longMessage = False

    def run_pair(self, where, program, *options, server=(), client=()):
        personality, device = where
        return pairs.Pair(LIBRARY, personality, [program, "-d", device, *options], server, client)

    def check_pair(self, pair):
        self.assertEqual(pair.statuses, (0, 0), pair.text())
        self.assertEqual(pair.left, [], "the fabric left files behind")


class Devices(Case):
    PROGRAMS = ("ibv_devices", "ibv_devinfo")

    def run_alone(self, personality, *command):
        status, output = pairs.alone(LIBRARY, personality, *command)
        self.assertEqual(status, 0, output)
        return output

    def test_list(self):
        output = self.run_alone("thunderbolt", "ibv_devices")
        self.assertEqual(re.findall(r"\brdma_en\d+", output), [f"rdma_en{k}" for k in range(2, 9)])
        guids = re.findall(r"\b[0-9a-f]{16}\b", output)
        self.assertEqual(len(set(guids)), 7, output)
        self.assertIn("rocep1", self.run_alone("roce", "ibv_devices"))

    def test_info_thunderbolt(self):
        output = self.run_alone("thunderbolt", "ibv_devinfo", "-v", "-d", "rdma_en2")
        for part in (r"max_qp:\s+11\b", r"max_mr:\s+100\b", r"state:\s+PORT_ACTIVE \(4\)",
                     r"active_mtu:\s+4096 \(5\)", r"link_layer:\s+Ethernet", r"max_srq:\s+0\b",
                     r"max_msg_sz:\s+0xfff000\b", r"GID\[ *0\]:\s+fe80:",
                     r"GID\[ *1\]:\s+(::ffff:169\.254\.|0000:.*:ffff:a9fe:)"):
            self.assertRegex(output, part)

    def test_info_roce(self):
        output = self.run_alone("roce", "ibv_devinfo", "-v", "-d", "rocep1")
        for part in (r"max_qp:\s+4096\b", r"max_qp_rd_atom:\s+[1-9]",
                     r"state:\s+PORT_ACTIVE \(4\)", r"RoCE v1", r"RoCE v2"):
            self.assertRegex(output, part)

    def test_unknown_device(self):
        status, output = pairs.alone(LIBRARY, "thunderbolt", "ibv_devinfo", "-d", "rdma_en99")
        self.assertNotEqual(status, 0, output)


class PingPong(Case):
    PROGRAMS = ("ibv_uc_pingpong", "ibv_rc_pingpong")

    def check(self, where, program, *options):
        pair = self.run_pair(where, program, "-n", "200", *options)
        self.check_pair(pair)
        for output in (pair.server, pair.client):
            self.assertRegex(output, r"(?m)^200 iters in ")
            self.assertNotRegex(output, "(?i)invalid data|failed|couldn't")

    def test_uc_thunderbolt(self):
        self.check(TB, "ibv_uc_pingpong", "-g", "1", "-c")

    def test_uc_thunderbolt_long(self):
        self.check(TB, "ibv_uc_pingpong", "-g", "1", "-c", "-s", "1000000", "-r", "3")

    def test_uc_roce(self):
        self.check(ROCE, "ibv_uc_pingpong", "-g", "3", "-c")

    def test_rc(self):
        self.check(ROCE, "ibv_rc_pingpong", "-g", "3")

    def test_rc_checks_data(self):
        self.check(ROCE, "ibv_rc_pingpong", "-g", "3", "-c", "-s", "65536")

    def test_rc_sleeps_on_events(self):
        self.check(ROCE, "ibv_rc_pingpong", "-g", "3", "-c", "-e")


SIZES = [str(2**k) for k in range(1, 24)]


class Table(Case):
    """perftest's rows: size, iterations, and measurements. Those are "inf" where it did not find out
    the speed of the clock on a busy machine, and 0.00 MB/s where a message of a few bytes was slow."""

    def check(self, where, program, sizes, *options):
        pair = self.run_pair(where, program, "-F", *options)
        self.check_pair(pair)
        rows = [row.split() for row in pair.client.splitlines()
                if re.match(r"\s*\d+\s+\d+\s+(\d|inf)", row)]
        self.assertEqual([row[0] for row in rows], sizes, pair.text())
        for row in rows:
            asked = int(options[options.index("-n") + 1])
            self.assertIn(int(row[1]), (asked, 4 * asked), pair.client)  # of all queue pairs
            self.assertGreater(float(row[3]), 0 if int(row[0]) >= 65536 else -1, pair.client)


    def check_sizes(self, where, program, *options):
        """From 2 bytes to 8 MiB. A run over all sizes takes seconds, most of them to find out the
        speed of the clock, so by default there are a few."""
        if os.environ.get("JACKAL_SOAK"):
            self.check(where, program, SIZES, "-a", *options)
        else:
            for size in ("2", "100000", "8388608"):
                self.check(where, program, [size], "-s", size, *options)


class Bandwidth(Table):
    PROGRAMS = ("ib_send_bw", "ib_write_bw")

    def test_send_uc_thunderbolt(self):
        # One completion a message, because this hardware completes every send, asked or not.
        self.check(TB, "ib_send_bw", ["4096"], "-c", "UC", "-s", "4096", "-x", "1", "-Q", "1",
                   "-n", "1000")

    def test_send_uc(self):
        self.check_sizes(ROCE, "ib_send_bw", "-c", "UC", "-n", "20")

    def test_send_rc_all_sizes(self):
        self.check(ROCE, "ib_send_bw", SIZES, "-c", "RC", "-a", "-n", "5")

    def test_send_rc_events(self):
        self.check(ROCE, "ib_send_bw", ["65536"], "-c", "RC", "-e", "-s", "65536", "-n", "200")

    def test_send_rc_both_ways_on_four_queue_pairs(self):
        self.check(ROCE, "ib_send_bw", ["4096"], "-c", "RC", "-b", "-q", "4", "-s", "4096",
                   "-n", "200")

    def test_write_rc(self):
        self.check_sizes(ROCE, "ib_write_bw", "-c", "RC", "-n", "20")


class Latency(Table):
    PROGRAMS = ("ib_send_lat",)

    def test_send_uc_thunderbolt(self):
        self.check(TB, "ib_send_lat", ["4096"], "-c", "UC", "-s", "4096", "-x", "1", "-n", "200")

    def test_send_uc(self):
        self.check_sizes(ROCE, "ib_send_lat", "-c", "UC", "-n", "20")

    def test_send_rc(self):
        self.check_sizes(ROCE, "ib_send_lat", "-c", "RC", "-n", "20")


class Refusals(Case):
    """What the hardware refuses is refused here, and the programs say so."""
    PROGRAMS = ("ibv_uc_pingpong", "ibv_rc_pingpong", "ib_send_bw")

    def check_refused(self, pair, *texts):
        self.assertTrue(any(status not in (0, None) for status in pair.statuses), pair.text())
        self.assertNotIn("iters in", pair.server + pair.client)
        for text in texts:
            self.assertIn(text, pair.server + pair.client, pair.text())

    def test_rc_on_thunderbolt(self):
        pair = self.run_pair(TB, "ibv_rc_pingpong", "-g", "1")
        self.check_refused(pair, "Failed to modify QP to RTR")

    def test_eleventh_queue_pair(self):
        """C8: there are ten, although max_qp says eleven."""
        options = ("-c", "UC", "-s", "4096", "-x", "1", "-Q", "1", "-n", "20", "-F")
        self.check_pair(self.run_pair(TB, "ib_send_bw", *options, "-q", "10"))
        self.check_refused(self.run_pair(TB, "ib_send_bw", *options, "-q", "11"), "create QP")

    def test_receive_of_another_frame_count(self):
        pair = self.run_pair(TB, "ibv_uc_pingpong", "-g", "1", server=("-s", "4096"),
                             client=("-s", "8192"))
        self.check_refused(pair, "Failed status")
        self.assertNotEqual(pair.statuses[0], 0, "the receiver is told\n" + pair.text())
        self.assertIsNone(pair.statuses[1], "the sender is not told\n" + pair.text())

    def test_no_source_gid_at_that_index(self):
        pair = self.run_pair(TB, "ibv_uc_pingpong", server=("-g", "1"), client=("-g", "7"))
        self.check_refused(pair, "Failed to modify QP to RTR")

    def test_source_gid_of_another_kind(self):
        pair = self.run_pair(TB, "ibv_uc_pingpong", server=("-g", "1"), client=("-g", "0"))
        self.check_refused(pair, "Failed to modify QP to RTR")

    def test_no_global_address(self):
        self.check_refused(self.run_pair(TB, "ibv_uc_pingpong"), "Failed to modify QP to RTR")


def main():
    chosen = sys.argv[2].split(".")[0] if len(sys.argv) > 2 else None
    classes = [chosen] if chosen else ["Devices", "PingPong", "Bandwidth", "Latency", "Refusals"]
    for name in classes:
        pairs.need(*globals()[name].PROGRAMS)
    unittest.main(argv=[sys.argv[0], *(sys.argv[2:] or classes)])


if __name__ == "__main__":
    main()
