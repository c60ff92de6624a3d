/* SPDX-License-Identifier: MIT */
/*
 * The hello: the first thing that either end of a connection to the meeting point says.
 *
 * Its first 16 bytes are frozen for ever, so that any two versions can tell each other why they
 * do not get along:
 *
 *   u32 magic    u16 version    u16 oldest version understood    u32 body bytes    u32 zero
 *
 * The magic is negative as an int32 in either byte order's reading of an MLX root, which expects
 * a rank there and so fails at once instead of pairing with us. The body of version 1:
 *
 *   text job    u64 incarnation    u32 rank    u32 size    u64 features    text library version
 *   u16 settings, then for each: text name, text value
 *
 * (text = u16 length and that many bytes). What follows in the body belongs to later versions.
 * The answer of rank 0 begins with a head of its own, with no body; control frames follow.
 */
#ifndef WIRE_HELLO_H
#define WIRE_HELLO_H

#include "wire/bytes.h"

#include "base/error.h"

/* The bytes "JKL" and 0xCA, as a little-endian number. */
#define WIRE_HELLO_MAGIC UINT32_C(0xca4c4b4a)

enum {
    WIRE_HELLO_HEAD_BYTES = 16,
    WIRE_HELLO_VERSION = 1,
    WIRE_HELLO_OLDEST = 1,
    WIRE_HELLO_BODY_MAX = 64 * 1024,
    WIRE_HELLO_TEXT_BYTES = 256 /* of job and library version, with the zero at the end */
};

struct wire_hello_head {
    uint16_t version;
    uint16_t oldest;
    uint32_t body_bytes;
};

/* Writes WIRE_HELLO_HEAD_BYTES. */
void wire_hello_head_encode(const struct wire_hello_head *head, uint8_t *bytes);

/*
 * Judges the first n_bytes of a head as soon as they are there: JACKAL_PENDING = right so far,
 * more is needed; JACKAL_OK = head_p is filled; JACKAL_ERR_PROTOCOL = a stranger. A version that
 * we do not speak is not an error here.
 */
jackal_status wire_hello_head_decode(const uint8_t *bytes, size_t n_bytes,
                                     struct wire_hello_head *head_p, struct base_error *error);

/* Do the two ends share a version? */
bool wire_hello_compatible(const struct wire_hello_head *a, const struct wire_hello_head *b);

struct wire_hello {
    char job[WIRE_HELLO_TEXT_BYTES];
    uint64_t incarnation; /* 0 = not known yet */
    uint32_t rank;
    uint32_t size;
    uint64_t features;
    char library[WIRE_HELLO_TEXT_BYTES];
    size_t n_settings;
    struct wire_reader settings; /* into the decoded bytes; wire_hello_setting() takes a copy */
};

/*
 * Encoding goes in three steps, since settings are the caller's: begin, one call a setting, end.
 * A writer that went bad (body over the limit or the room) makes the end return 0; else the
 * bytes of head and body together.
 */
void wire_hello_begin(struct wire_writer *writer, const struct wire_hello *hello);
void wire_hello_add(struct wire_writer *writer, const char *name, const char *value);
size_t wire_hello_end(struct wire_writer *writer, size_t n_settings);

/* Decodes a body of version 1; checks all settings. `settings` points into `body`. */
jackal_status wire_hello_decode(const uint8_t *body, size_t n_bytes, struct wire_hello *hello_p,
                                struct base_error *error);

/* A text of a decoded body, not ended by a zero: print with %.*s. */
struct wire_text {
    const char *bytes;
    size_t n_bytes;
};

/* Takes the next setting from a copy of hello.settings; call n_settings times. */
void wire_hello_setting(struct wire_reader *settings, struct wire_text *name_p,
                        struct wire_text *value_p);

bool wire_text_is(struct wire_text text, const char *string);

#endif
