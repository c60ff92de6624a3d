/* SPDX-License-Identifier: MIT */
/* Threads of the library: they block every signal, so that the program's handlers stay its own. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* Returns 0 or an errno value. */
int base_thread_start(pthread_t *thread, void *(*function)(void *), void *argument);

#endif
