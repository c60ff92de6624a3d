/* SPDX-License-Identifier: MIT */
/*
 * One clock for all waits: monotonic nanoseconds. A deadline is a point on it; BASE_NEVER is none.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define BASE_NEVER UINT64_MAX

/* Nanoseconds of the monotonic clock. */
uint64_t base_now_ns(void);

/* The point `timeout_ms` from now; 0 = BASE_NEVER, the meaning that all limits give to 0. */
uint64_t base_deadline_ns(uint64_t timeout_ms);

bool base_expired(uint64_t deadline_ns);

/* What is left until a deadline, rounded up, for poll(): −1 = for ever, at most INT32_MAX. */
int base_left_ms(uint64_t deadline_ns);

/* Sleeps; a signal may end it early. */
void base_sleep_us(uint64_t us);

#endif
