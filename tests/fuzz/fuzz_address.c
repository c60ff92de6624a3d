/* SPDX-License-Identifier: MIT */
/* An address that is taken is written back the same, up to leading zeros of the port. */
#include "base/address.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    struct base_address address, again;
    struct base_error error;
    char written[BASE_ADDRESS_BYTES];
    char *text = malloc(n_bytes + 1);
    if (text == NULL)
        abort();
    if (n_bytes > 0)
        memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    if (base_address_parse(text, true, &address, &error) == JACKAL_OK) {
        base_address_format(&address, written);
        if (base_address_parse(written, true, &again, &error) != JACKAL_OK ||
            again.port != address.port || strcmp(again.host, address.host) != 0)
            abort();
    }
    free(text);
    return 0;
}
