/* SPDX-License-Identifier: MIT */
#include "decode_any.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    decode_any(bytes, n_bytes);
    return 0;
}
