/* SPDX-License-Identifier: MIT */
/*
 * Links between engines of one process, stricter than any hardware and in no hurry:
 *
 *  - a send that finds no receive slot at the other end is written down as a fault;
 *  - bytes are taken from the sender's buffer as late as possible, just before the send completes;
 *  - a receive slot is overwritten when it is given back, and a buffer may be late in coming back;
 *  - what is under way moves at random moments, in order within a queue only.
 */
#ifndef FAKE_LINK_H
#define FAKE_LINK_H

#include "link/link.h"

/* The two ends of a wire between ranks a and b, of which each engine gets one. */
jackal_status fake_link_pair(const struct link_geometry *geometry, int a, int b, int wire,
                             uint64_t seed, struct link **of_a_p, struct link **of_b_p);

/* Loses the n-th message from now on that leaves this end on the queue. */
void fake_link_lose(struct link *end, enum link_queue queue, uint32_t n);

/* Sends that found no slot, since the start of the program. */
int fake_link_faults(void);

/* Ends that have not been closed. */
int fake_link_open_ends(void);

#endif
