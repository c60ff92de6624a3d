/* SPDX-License-Identifier: MIT */
/*
 * Debian's static jansson is compiled for executables. Its one reference that a shared library
 * cannot hold is a comparison with stdin, to read unbuffered from there; the linker turns it to
 * this variable (--wrap=stdin, src/CMakeLists.txt). We never parse standard input.
 */
#ifdef __linux__
extern void *const __wrap_stdin; /* the name is the linker's */
void *const __wrap_stdin = 0;
#endif
