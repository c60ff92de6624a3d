/* SPDX-License-Identifier: MIT */
/*
 * What each rank gets. Everything that can be wrong with the input is found here, before anything
 * is started.
 */
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/*
 * Variables that describe one process of one job, in our words and in those of MLX. What the
 * launcher's own environment says about them belongs to another job (a launcher may be started by
 * a launcher), so ranks never inherit them.
 */
static const char *const launch_variables[] = {
    "JACKAL_RANK",        "JACKAL_SIZE",           "JACKAL_JOB",
    "JACKAL_COORDINATOR", "JACKAL_LISTEN",         "JACKAL_FABRIC_NAME",
    "JACKAL_FABRIC_HOST", "JACKAL_DEVICES",        "JACKAL_HOSTFILE",
    "JACCL_RANK",         "JACCL_COORDINATOR",     "JACCL_IBV_DEVICES",
    "MLX_RANK",           "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES",
    "MLX_JACCL_DEVICES",  "MLX_HOSTFILE",
};

enum {
    N_LAUNCH_VARIABLES = sizeof launch_variables / sizeof launch_variables[0],
    N_OWNED = 7,           /* of them, and JACKAL_FABRIC */
    MAX_VARIABLE = 128000, /* Linux takes 128 KiB in one string */
};

static bool is_variable(const char *name, const char *entry, size_t n_entry_name) {
    return strlen(name) == n_entry_name && strncmp(name, entry, n_entry_name) == 0;
}

bool run_plan_owns(const char *variable, size_t n_name) {
    for (size_t i = 0; i < N_OWNED; ++i) {
        if (is_variable(launch_variables[i], variable, n_name)) {
            return true;
        }
    }
    return is_variable("JACKAL_FABRIC", variable, n_name);
}

/* Reads the description; ranks get it as it is. */
static int read_fabric(struct run_plan *plan, const char *text) {
    int status = run_fabric_read(&plan->described, text);
    if (status != 0) {
        return status;
    }
    if (text[0] == '{') {
        plan->fabric = tool_copy(text);
    } else {
        plan->fabric = realpath(text, NULL); /* ranks may start in another folder */
    }
    if (!plan->fabric) {
        fprintf(stderr, "jackal run: fabric %s: %s\n", text, strerror(errno));
        return TOOL_USAGE;
    }
    return 0;
}

static int plan_fabric(struct run_plan *plan) {
    const struct run_options *options = plan->options;
    const char *text = options->fabric_given ? options->fabric : getenv("JACKAL_FABRIC");
    bool described = text && (text[0] || options->fabric_given);
    plan->described = (struct run_fabric){.n_hosts = RUN_DEFAULT_HOSTS, .n_wires = 1};
    if (described) {
        int status = read_fabric(plan, text);
        if (status != 0) {
            return status;
        }
    }
    int n_hosts = plan->described.n_hosts;
    plan->n_ranks = options->n_ranks;
    if (plan->n_ranks == 0) {
        plan->n_ranks = options->fabric_given && options->fabric ? n_hosts : RUN_DEFAULT_RANKS;
    }
    if (plan->n_ranks > RUN_MAX_RANKS) {
        fprintf(stderr, "jackal run: the fabric has %d hosts, more than %d ranks; give -n\n",
                n_hosts, RUN_MAX_RANKS);
        return TOOL_USAGE;
    }
    if (described && plan->n_ranks > n_hosts) {
        fprintf(stderr,
                "jackal run: %d ranks need as many hosts, the fabric has %d; lower -n or "
                "describe more hosts (mesh.hosts)\n",
                plan->n_ranks, n_hosts);
        return TOOL_USAGE;
    }
    if (plan->n_ranks > n_hosts) {
        struct tool_buffer mesh = {0};
        tool_buffer_print(&mesh, "{\"mesh\":{\"hosts\":%d,\"wires\":1}}", plan->n_ranks);
        plan->fabric = tool_copy(tool_buffer_data(&mesh));
        tool_buffer_free(&mesh);
    }
    plan->has_fabric = plan->n_ranks > 1 || options->fabric_given;
    return 0;
}

static int plan_devices(struct run_plan *plan) {
    int n = plan->n_ranks;
    plan->devices = run_fabric_matrix(&plan->described, n);
    if (strlen(plan->devices) > MAX_VARIABLE) {
        fprintf(stderr,
                "jackal run: the device matrix of %d ranks is too long for a variable; use fewer "
                "of them, or fewer wires\n",
                n);
        return TOOL_USAGE;
    }
    return 0;
}

static int plan_names(struct run_plan *plan) {
    unsigned char random[26];
    if (getentropy(random, sizeof random) != 0) {
        fprintf(stderr, "jackal run: no random numbers for the job id: %s\n", strerror(errno));
        return TOOL_FAILED;
    }
    for (size_t i = 0; i < 16; ++i) {
        snprintf(plan->job + 2 * i, 3, "%02x", random[i]);
    }
    memcpy(plan->fabric_name, "run-", 5);
    for (size_t i = 0; i < 10; ++i) {
        snprintf(plan->fabric_name + 4 + 2 * i, 3, "%02x", random[16 + i]);
    }
    return 0;
}

/*
 * The launcher binds the port itself and lets rank 0 inherit the socket: no other program can take
 * the port in between, and ranks may connect before rank 0 has come as far as accepting.
 */
static int plan_listener(struct run_plan *plan) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1; /* its connections may close first here, and a second group wants the port again */
    plan->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (plan->listener < 0 || run_set_flag(plan->listener, F_GETFD, F_SETFD, FD_CLOEXEC) != 0 ||
        setsockopt(plan->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(plan->listener, (const struct sockaddr *)&address, length) != 0 ||
        listen(plan->listener, 2 * plan->n_ranks) != 0 ||
        getsockname(plan->listener, (struct sockaddr *)&address, &length) != 0) {
        fprintf(stderr, "jackal run: cannot listen on 127.0.0.1 for rank 0: %s\n", strerror(errno));
        return TOOL_FAILED;
    }
    snprintf(plan->coordinator, sizeof plan->coordinator, "127.0.0.1:%d", ntohs(address.sin_port));
    return 0;
}

static int check_folders(const struct run_options *options) {
    struct stat entry;
    if (options->cwd && stat(options->cwd, &entry) == 0 && !S_ISDIR(entry.st_mode)) {
        errno = ENOTDIR;
    } else if (!options->cwd || access(options->cwd, X_OK) == 0) {
        return 0;
    }
    fprintf(stderr, "jackal run: cannot start in --cwd \"%s\": %s\n", options->cwd,
            strerror(errno));
    return TOOL_USAGE;
}

/* Three descriptors a rank, two log files, and macOS allows 256 by default. */
static void raise_limit(struct run_plan *plan) {
    const rlim_t enough = 16 + 6 * RUN_MAX_RANKS;
    if (getrlimit(RLIMIT_NOFILE, &plan->n_files) == 0 && plan->n_files.rlim_cur < enough) {
        struct rlimit raised = plan->n_files;
        raised.rlim_cur = raised.rlim_max < enough ? raised.rlim_max : enough;
        setrlimit(RLIMIT_NOFILE, &raised); /* if not, opening what is too much says so */
    }
}

int run_plan_make(struct run_plan *plan, const struct run_options *options) {
    plan->options = options;
    int status = check_folders(options);
    if (status == 0) {
        status = plan_fabric(plan);
    }
    if (status == 0) {
        status = plan_names(plan);
    }
    if (status == 0 && plan->n_ranks > 1) {
        status = plan_devices(plan);
        if (status == 0) {
            status = plan_listener(plan);
        }
    }
    raise_limit(plan);
    return status;
}

void run_plan_free(struct run_plan *plan) {
    if (plan->listener >= 0) {
        close(plan->listener);
    }
    run_fabric_free(&plan->described);
    free(plan->fabric);
    free(plan->devices);
}

struct environment {
    char **entries;
    size_t count;
};

static void append(struct environment *environment, const char *entry) {
    environment->entries =
        tool_resize(environment->entries, environment->count + 2, sizeof *environment->entries);
    environment->entries[environment->count++] = tool_copy(entry);
    environment->entries[environment->count] = NULL;
}

/* `name` may be an entry, NAME=VALUE. */
static void drop(struct environment *environment, const char *name, size_t n_name) {
    size_t kept = 0;
    for (size_t i = 0; i < environment->count; ++i) {
        char *entry = environment->entries[i];
        if (strncmp(entry, name, n_name) == 0 && entry[n_name] == '=') {
            free(entry);
        } else {
            environment->entries[kept++] = entry;
        }
    }
    environment->count = kept;
    environment->entries[kept] = NULL;
}

static void set(struct environment *environment, const char *name, const char *value) {
    struct tool_buffer entry = {0};
    tool_buffer_print(&entry, "%s=%s", name, value);
    drop(environment, name, strlen(name));
    append(environment, tool_buffer_data(&entry));
    tool_buffer_free(&entry);
}

static struct environment inherited(const struct run_plan *plan) {
    struct environment environment = {tool_resize(NULL, 1, sizeof(char *)), 0};
    environment.entries[0] = NULL;
    for (char **entry = environ; *entry; ++entry) {
        append(&environment, *entry);
    }
    for (size_t i = 0; i < N_LAUNCH_VARIABLES; ++i) {
        drop(&environment, launch_variables[i], strlen(launch_variables[i]));
    }
    if (plan->has_fabric) {
        drop(&environment, "JACKAL_FABRIC", strlen("JACKAL_FABRIC"));
    }
    return environment;
}

char **run_plan_environment(const struct run_plan *plan, int rank) {
    struct environment environment = inherited(plan);
    char number[16];
    snprintf(number, sizeof number, "%d", rank);
    set(&environment, "JACKAL_RANK", number);
    if (plan->has_fabric) {
        set(&environment, "JACKAL_VERBS", "fabric");
        set(&environment, "JACKAL_FABRIC_NAME", plan->fabric_name);
        set(&environment, "JACKAL_FABRIC_HOST", number);
        if (plan->fabric) {
            set(&environment, "JACKAL_FABRIC", plan->fabric);
        }
    }
    /* The library is silent unless asked; a job that waits for half its limit should say so. */
    if (getenv("JACKAL_LOG") == NULL) {
        set(&environment, "JACKAL_LOG", "warning");
    }
    snprintf(number, sizeof number, "%d", plan->n_ranks);
    set(&environment, "JACKAL_SIZE", number);
    if (plan->n_ranks > 1) {
        set(&environment, "JACKAL_JOB", plan->job);
        set(&environment, "JACKAL_COORDINATOR", plan->coordinator);
        set(&environment, "JACKAL_DEVICES", plan->devices);
        if (rank == 0) {
            snprintf(number, sizeof number, "fd:%d", plan->listener);
            set(&environment, "JACKAL_LISTEN", number);
        }
    }
    for (size_t i = 0; i < plan->options->n_settings; ++i) {
        const char *setting = plan->options->settings[i];
        const char *equals = strchr(setting, '=');
        drop(&environment, setting, (size_t)(equals - setting));
        append(&environment, setting);
    }
    return environment.entries;
}

void run_plan_environment_free(char **environment) {
    for (char **entry = environment; *entry; ++entry) {
        free(*entry);
    }
    free(environment);
}
