#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sums three floats over all ranks, through ctypes alone. Start it with
`jackal run -n 3 -- python3 all_reduce.py`; JACKAL_LIBRARY names the library where the system does not
find it."""
import ctypes
import ctypes.util
import os
import sys

FLOAT32 = 11  # numbers of jackal/types.h

library = ctypes.CDLL(os.environ.get("JACKAL_LIBRARY") or ctypes.util.find_library("jackal")
                      or "libjackal.so.0")
library.jackal_config_error.restype = ctypes.c_char_p
library.jackal_config_error.argtypes = [ctypes.c_void_p]
library.jackal_error_message.restype = ctypes.c_char_p
library.jackal_error_message.argtypes = [ctypes.c_void_p]
library.jackal_init.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
library.jackal_rank.argtypes = [ctypes.c_void_p]
library.jackal_group_free.argtypes = [ctypes.c_void_p]
library.jackal_group_free.restype = None
library.jackal_all_sum.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64,
                                   ctypes.c_int32]


def main():
    group = ctypes.c_void_p()
    if library.jackal_init(None, ctypes.byref(group)) != 0:
        sys.exit(library.jackal_config_error(None).decode())
    rank = library.jackal_rank(group)
    data = (ctypes.c_float * 3)(rank, 1, 10)
    if library.jackal_all_sum(group, data, data, len(data), FLOAT32) != 0:
        sys.exit(library.jackal_error_message(group).decode())
    print(f"rank {rank}: {data[0]:g} {data[1]:g} {data[2]:g}")
    library.jackal_group_free(group)


main()
