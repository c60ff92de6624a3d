# SPDX-License-Identifier: MIT
# The two commands of the README, and what stands behind them. The build itself is CMake's.
JOBS ?= 2
PREFIX ?= /usr/local

.PHONY: demo test build install clean check

# The main job: four ranks train a classifier together on the emulated fabric.
demo: build
	build/release/bin/jackal run -n 4 -- build/release/bin/data_parallel --check

# Everything that has to pass, with every missing package installed first.
test:
	scripts/setup test
	scripts/test

build:
	scripts/setup build
	cmake --preset release -DJACKAL_TESTS=OFF >/dev/null
	cmake --build build/release -j $(JOBS)

install: build
	cmake --install build/release --prefix $(PREFIX)
	@# A new library in a system folder is found only after this; elsewhere it does no harm.
	@if [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null 2>&1; then ldconfig; fi

# What takes no build: layers, format, headers.
check:
	scripts/check-layers
	scripts/check-headers
	scripts/check-format

clean:
	rm -rf build
