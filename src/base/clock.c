/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

uint64_t base_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t base_deadline_ns(uint64_t timeout_ms) {
    if (timeout_ms == 0 || timeout_ms > UINT64_MAX / 4000000u)
        return BASE_NEVER;
    return base_now_ns() + timeout_ms * 1000000u;
}

bool base_expired(uint64_t deadline_ns) {
    return deadline_ns != BASE_NEVER && base_now_ns() >= deadline_ns;
}

int base_left_ms(uint64_t deadline_ns) {
    if (deadline_ns == BASE_NEVER)
        return -1;
    uint64_t now = base_now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t left_ms = (deadline_ns - now + 999999u) / 1000000u;
    return left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
}

void base_sleep_us(uint64_t us) {
    struct timespec span = {(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000};
    nanosleep(&span, NULL);
}
