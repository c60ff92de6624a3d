/* SPDX-License-Identifier: MIT */
/* The part of the harness that runs in the test program: starting, waiting, reporting. */
#include "board.h"
#include "folder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

/* How long the others may take after a rank failed: they find out and clean up. */
#define GRACE_S (4.0 * RANKS_SLOW)

/* A job while it runs. Children are ranks, or one process that has all of them. */
struct running {
    const struct ranks_job *job;
    char fabric[64]; /* its name */
    int n_children;
    pid_t children[RANKS_MAX]; /* 0 = has ended */
    int statuses[RANKS_MAX];
    bool killed;
};

/* ---- in the child -----------------------------------------------------------------------------
 */

static void set_variable(const char *name, const char *value) {
    if (value == NULL)
        unsetenv(name);
    else
        setenv(name, value, 1);
}

/* Nothing of the surroundings' own launch may reach a rank. */
static void clear_environment(void) {
    static const char *const names[] = {"JACKAL_RANK",
                                        "JACKAL_SIZE",
                                        "JACKAL_JOB",
                                        "JACKAL_LISTEN",
                                        "JACKAL_COORDINATOR",
                                        "JACKAL_DEVICES",
                                        "JACKAL_STRICT",
                                        "JACKAL_ALGORITHM",
                                        "JACKAL_CHECKSUM",
                                        "JACKAL_VERBS",
                                        "JACKAL_SLOT_FRAMES",
                                        "JACKAL_LOG",
                                        "JACKAL_FABRIC",
                                        "JACKAL_FABRIC_HOST",
                                        "JACKAL_FABRIC_NAME",
                                        "JACCL_RANK",
                                        "MLX_RANK",
                                        "JACCL_COORDINATOR",
                                        "MLX_HOSTFILE",
                                        "MLX_JACCL_COORDINATOR",
                                        "JACCL_IBV_DEVICES",
                                        "MLX_IBV_DEVICES",
                                        "MLX_JACCL_DEVICES",
                                        "JACKAL_PROGRESS_TIMEOUT_MS",
                                        "JACKAL_ORDER",
                                        "JACKAL_BACKEND",
                                        "JACKAL_INIT_TIMEOUT_MS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static void set_fabric(const struct running *running, const char *host) {
    const struct ranks_job *job = running->job;
    char mesh[64];
    snprintf(mesh, sizeof mesh, "{\"mesh\":{\"hosts\":%d,\"wires\":%d}}",
             job->size < 2 ? 2 : job->size, job->wires > 0 ? job->wires : 1);
    set_variable("JACKAL_VERBS", job->verbs != NULL ? job->verbs : "fabric");
    set_variable("JACKAL_FABRIC_NAME", running->fabric);
    set_variable("JACKAL_FABRIC_HOST", host);
    set_variable("JACKAL_FABRIC", job->fabric != NULL ? job->fabric : mesh);
}

static void set_list(jackal_config *config, const char *list) {
    while (list != NULL && list[0] != '\0') {
        char name[64], value[4096];
        size_t span = strcspn(list, ";"), equals = strcspn(list, "=");
        snprintf(name, sizeof name, "%.*s", (int)equals, list);
        snprintf(value, sizeof value, "%.*s", (int)(span - equals - 1), list + equals + 1);
        if (jackal_config_set(config, name, value) != JACKAL_OK)
            ranks_failed(__FILE__, __LINE__, "%s", jackal_config_error(config));
        list += span + (list[span] == ';');
    }
}

/* What a launcher says to one rank: by the environment where the rank has one of its own. */
static void set_launch(jackal_config *config, const char *name, const char *variable,
                       const char *value) {
    if (ranks_are_threads())
        RANKS_EQUAL(jackal_config_set(config, name, value), JACKAL_OK);
    else
        setenv(variable, value, 1);
}

static void launch(const struct running *running, int rank, jackal_config *config) {
    const struct ranks_job *job = running->job;
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    set_launch(config, "rank", "JACKAL_RANK", text);
    snprintf(text, sizeof text, "%d", job->size);
    set_launch(config, "size", "JACKAL_SIZE", text);
    set_launch(config, "job", "JACKAL_JOB", running->fabric);
    set_launch(config, "coordinator", "JACKAL_COORDINATOR", board_coordinators[0]);
    set_launch(config, "devices", "JACKAL_DEVICES",
               job->devices != NULL ? job->devices
                                    : ranks_matrix(job->size, job->wires > 0 ? job->wires : 1));
    snprintf(text, sizeof text, "fd:%d", dup(board_listeners[0]));
    if (rank == 0)
        set_launch(config, "listen", "JACKAL_LISTEN", text);
    set_list(config, job->settings);
    set_list(config, job->of_rank[rank]);
}

static void be_rank(const struct running *running, int rank) {
    board_be_rank(rank);
    jackal_config *config = jackal_config_new();
    RANKS_CHECK(config != NULL);
    if (!running->job->bare)
        launch(running, rank, config);
    int result = running->job->run(rank, running->job->size, config, running->job->argument);
    if (result != 0)
        ranks_failed(__FILE__, __LINE__, "the function returned %d", result);
    jackal_config_free(config);
    atomic_store(&board()->ranks[rank].state, BOARD_DONE);
}

struct thread_start {
    const struct running *running;
    int rank;
};

static void *rank_thread(void *argument) {
    const struct thread_start *start = argument;
    be_rank(start->running, start->rank);
    return NULL;
}

static void be_all_ranks(const struct running *running) {
    pthread_t threads[RANKS_MAX];
    struct thread_start starts[RANKS_MAX];
    for (int rank = 0; rank < running->job->size; rank++) {
        starts[rank] = (struct thread_start){running, rank};
        if (pthread_create(&threads[rank], NULL, rank_thread, &starts[rank]) != 0)
            ranks_failed(__FILE__, __LINE__, "no thread for rank %d", rank);
    }
    for (int rank = 0; rank < running->job->size; rank++)
        pthread_join(threads[rank], NULL);
}

_Noreturn static void be_child(const struct running *running, int rank) {
    char host[16];
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    clear_environment();
    snprintf(host, sizeof host, "%d", rank);
    set_fabric(running, ranks_are_threads() ? "*" : host);
    if (ranks_are_threads()) {
        be_all_ranks(running);
    } else {
        for (int k = 0; k < RANKS_MEETINGS && rank != 0; k++)
            close(board_listeners[k]);
        be_rank(running, rank);
    }
    exit(0);
}

/* ---- in the parent ----------------------------------------------------------------------------
 */

static void open_listeners(void) {
    for (int k = 0; k < RANKS_MEETINGS; k++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        socklen_t n_bytes = sizeof address;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&address, n_bytes) != 0 ||
            listen(fd, 2 * RANKS_MAX) != 0 ||
            getsockname(fd, (struct sockaddr *)&address, &n_bytes) != 0) {
            perror("no listening socket for the tests");
            exit(1);
        }
        board_listeners[k] = fd;
        snprintf(board_coordinators[k], sizeof board_coordinators[k], "127.0.0.1:%u",
                 (unsigned)ntohs(address.sin_port));
    }
}

static void close_listeners(void) {
    for (int k = 0; k < RANKS_MEETINGS; k++)
        close(board_listeners[k]);
}

static void start(struct running *running) {
    running->n_children = ranks_are_threads() ? 1 : running->job->size;
    fflush(NULL);
    for (int i = 0; i < running->n_children; i++) {
        pid_t child = fork();
        if (child == 0)
            be_child(running, i);
        if (child < 0) {
            perror("cannot fork");
            exit(1);
        }
        running->children[i] = child;
    }
}

static int reap(struct running *running) {
    int n_left = 0;
    for (int i = 0; i < running->n_children; i++) {
        if (running->children[i] == 0)
            continue;
        if (waitpid(running->children[i], &running->statuses[i], WNOHANG) == running->children[i])
            running->children[i] = 0;
        else
            n_left++;
    }
    return n_left;
}

static void kill_left(struct running *running) {
    running->killed = true;
    for (int i = 0; i < running->n_children; i++)
        if (running->children[i] != 0)
            kill(running->children[i], SIGKILL);
    for (int i = 0; i < running->n_children; i++)
        if (running->children[i] != 0)
            waitpid(running->children[i], &running->statuses[i], 0);
}

static bool any_failed(const struct running *running) {
    for (int rank = 0; rank < running->job->size; rank++)
        if (atomic_load(&board()->ranks[rank].state) == BOARD_FAILED)
            return true;
    return false;
}

/* Until all have ended. Names those that did not, before they are killed. */
static bool wait_for_all(struct running *running) {
    const struct ranks_job *job = running->job;
    double limit_s = (job->limit_ms > 0 ? job->limit_ms : 30000) * 1e-3 * RANKS_SLOW;
    double deadline_s = ranks_now_s() + limit_s;
    bool hurried = false;
    while (reap(running) > 0) {
        if (!hurried && any_failed(running)) {
            hurried = true;
            double soon_s = ranks_now_s() + GRACE_S;
            deadline_s = soon_s < deadline_s ? soon_s : deadline_s;
        }
        if (ranks_now_s() < deadline_s) {
            ranks_nap_ms(2);
            continue;
        }
        for (int rank = 0; rank < job->size && !hurried; rank++)
            if (atomic_load(&board()->ranks[rank].state) <= BOARD_RUNNING)
                fprintf(stderr, "rank %d of %d did not end within %.1f s, at: %s\n", rank,
                        job->size, limit_s, board()->ranks[rank].where);
        kill_left(running);
        return false;
    }
    return true;
}

static void describe_end(const char *who, int number, int status) {
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s %d died of signal %d, at: %s\n", who, number, WTERMSIG(status),
                board()->ranks[number].where);
    else
        fprintf(stderr, "%s %d ended with status %d, at: %s\n", who, number, WEXITSTATUS(status),
                board()->ranks[number].where);
}

static bool report(const struct running *running) {
    const struct ranks_job *job = running->job;
    bool good = true;
    for (int rank = 0; rank < job->size; rank++) {
        if (atomic_load(&board()->ranks[rank].state) != BOARD_FAILED)
            continue;
        fprintf(stderr, "rank %d of %d: %s (at: %s)\n", rank, job->size,
                board()->ranks[rank].failure, board()->ranks[rank].where);
        good = false;
    }
    for (int i = 0; i < running->n_children && !running->killed; i++) {
        if (running->statuses[i] == 0 || (job->gone >> i & 1) != 0 ||
            atomic_load(&board()->ranks[i].state) == BOARD_FAILED)
            continue;
        describe_end(ranks_are_threads() ? "process" : "rank", i, running->statuses[i]);
        good = false;
    }
    return good;
}

int ranks_run(const struct ranks_job *job) {
    static unsigned serial;
    struct running running = {.job = job};
    snprintf(running.fabric, sizeof running.fabric, "ranks-%d-%u", (int)getpid(), serial++);
    board_clear();
    open_listeners();
    start(&running);
    close_listeners();
    bool good = wait_for_all(&running);
    good = report(&running) && good;
    int n_files = folder_remove(running.fabric);
    if (good && n_files >= 0) {
        fprintf(stderr, "the fabric's folder %s was left with %d files in it\n", running.fabric,
                n_files);
        good = false;
    }
    return good ? 0 : 1;
}

const char *ranks_matrix(int size, int wires) {
    static _Thread_local char text[8192];
    size_t used = 0;
#define ADD(...) used += (size_t)snprintf(text + used, sizeof text - used, __VA_ARGS__)
    for (int i = 0; i < size; i++) {
        ADD("%s", i == 0 ? "[[" : "],[");
        for (int j = 0; j < size; j++) {
            ADD("%s%s", j > 0 ? "," : "", i == j ? "null" : "[");
            for (int wire = 0; wire < wires && i != j; wire++) {
                ADD("%s\"", wire > 0 ? "," : "");
                if (ranks_are_threads())
                    ADD("h%d.", i);
                /* The k-th group of a host's devices leads to the k-th other host. */
                ADD("rdma_en%d\"", 2 + (j < i ? j : j - 1) * wires + wire);
            }
            ADD("%s", i == j ? "" : "]");
        }
    }
    ADD("]]");
#undef ADD
    return text;
}
