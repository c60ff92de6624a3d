/* SPDX-License-Identifier: MIT */
/*
 * `jackal fabric`: looks at emulated fabrics that run and changes them. All of it is done by the
 * provider itself through the few calls of its jackal_fabric.h.
 */
#include "fabric_library.h"
#include "option.h"
#include "tool.h"

#include <jackal/jackal.h>

#include <jansson.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_NAME, OPTION_JSON };

static const struct option fabric_options[] = {
    {"name", 0, OPTION_REQUIRED, "NAME",
     "the fabric; by default that of JACKAL_FABRIC_NAME, else the\n"
     "only one there is, else \"default\""},
    {"json", 0, OPTION_FLAG, NULL, "status, counters, list: print JSON"},
};

static const struct option_command fabric_command = {
    "jackal fabric",
    "ACTION [OPTION...]",
    "Looks at the emulated fabrics of this user and changes them while jobs run.\n"
    "\n"
    "  list                   names of the fabrics that have processes\n"
    "  status [NAME]          processes, devices, cables, objects held\n"
    "  counters [NAME]        bytes, messages and frames of each device\n"
    "  unplug DEVICE          pulls the cable of a device; replug DEVICE puts it back\n"
    "  down DEVICE            its port goes down; up DEVICE\n"
    "  remove DEVICE          the device is gone, for good\n"
    "  slow DEVICE FACTOR     multiplies the rate of its cable; 1 = as described\n"
    "  fault JSON             adds a fault, as in the \"faults\" of a description\n"
    "  clear-faults           takes back all that were added so\n"
    "  check FILE             says whether a description is right",
    "DEVICE is HOST.DEVICE as A.rdma_en2, or A.en2 for short.",
    fabric_options,
    sizeof fabric_options / sizeof fabric_options[0],
};

struct call {
    struct tool_fabric library;
    const char *action;
    const char *operands[4];
    size_t n_operands;
    const char *name;
    bool json;
};

static int failed(const struct call *call) {
    fprintf(stderr, "jackal fabric %s: %s\n", call->action, call->library.error());
    return TOOL_FAILED;
}

/* A text whose length is not known before; NULL after an error line. */
static char *names_of_fabrics(const struct call *call) {
    size_t n_bytes = 4096;
    for (;;) {
        char *text = tool_resize(NULL, n_bytes, 1);
        long n = call->library.list(text, n_bytes);
        if (n >= 0 && (size_t)n < n_bytes) {
            return text;
        }
        free(text);
        if (n < 0) {
            failed(call);
            return NULL;
        }
        n_bytes = (size_t)n + 1024;
    }
}

static json_t *status_of(const struct call *call) {
    size_t n_bytes = 65536;
    json_t *status = NULL;
    for (bool again = true; again;) {
        char *text = tool_resize(NULL, n_bytes, 1);
        long n = call->library.status(call->name, text, n_bytes);
        again = n >= 0 && (size_t)n >= n_bytes;
        if (n < 0) {
            failed(call);
        } else if (!again) {
            status = json_loads(text, 0, NULL);
        }
        n_bytes = n < 0 ? 0 : (size_t)n + 4096;
        free(text);
    }
    return status;
}

/* ---------------------------------------------------------------------- printing */

static const char *word(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static long long number(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_rate(const json_t *device, char *text, size_t n_bytes) {
    double rate = json_number_value(json_object_get(device, "rate"));
    double factor = json_number_value(json_object_get(device, "factor"));
    if (rate <= 0) {
        snprintf(text, n_bytes, "unpaced");
    } else {
        snprintf(text, n_bytes, "%.3g GB/s", rate * factor / 1e9);
    }
}

static void print_device(const char *host, const json_t *device) {
    const json_t *objects = json_object_get(device, "objects");
    bool plugged = json_is_true(json_object_get(device, "plugged"));
    bool up = json_is_true(json_object_get(device, "up"));
    char label[80], rate[32];
    snprintf(label, sizeof label, "%s.%s", host, word(device, "name"));
    print_rate(device, rate, sizeof rate);
    printf("%-18s %-18s %-8s %-9s %-4s %-10s %3lld %3lld %3lld %3lld %3lld\n", label,
           word(device, "peer"), word(device, "state"), plugged ? "plugged" : "unplugged",
           up ? "up" : "down", rate, number(objects, "contexts"),
           number(objects, "protection_domains"), number(objects, "memory_regions"),
           number(objects, "completion_queues"), number(objects, "queue_pairs"));
}

static void print_counters(const char *host, const json_t *device) {
    const json_t *sent = json_object_get(device, "sent");
    const json_t *received = json_object_get(device, "received");
    char label[80];
    snprintf(label, sizeof label, "%s.%s", host, word(device, "name"));
    printf("%-18s %14lld %10lld %10lld %14lld %10lld %10lld\n", label, number(sent, "bytes"),
           number(sent, "messages"), number(sent, "frames"), number(received, "bytes"),
           number(received, "messages"), number(received, "frames"));
}

static void print_processes(const json_t *status) {
    size_t i;
    json_t *process;
    printf("%s: %s, %s, for %.1f s, %lld faults added; processes:", word(status, "name"),
           word(status, "personality"),
           json_is_true(json_object_get(status, "switched")) ? "a switch" : "cables",
           json_number_value(json_object_get(status, "age_s")), number(status, "faults"));
    json_array_foreach(json_object_get(status, "processes"), i, process) {
        printf(" %lld (host %s)", number(process, "pid"), word(process, "host"));
    }
    printf("%s\n", json_array_size(json_object_get(status, "processes")) == 0 ? " none" : "");
}

static void print_status(const json_t *status, bool counters) {
    size_t h, d;
    json_t *host, *device;
    print_processes(status);
    if (counters) {
        printf("%-18s %14s %10s %10s %14s %10s %10s\n", "device", "bytes sent", "messages",
               "frames", "bytes received", "messages", "frames");
    } else {
        printf("%-18s %-18s %-8s %-9s %-4s %-10s ctx  pd  mr  cq  qp\n", "device", "leads to",
               "state", "cable", "port", "rate");
    }
    json_array_foreach(json_object_get(status, "hosts"), h, host) {
        json_array_foreach(json_object_get(host, "devices"), d, device) {
            if (counters) {
                print_counters(word(host, "name"), device);
            } else {
                print_device(word(host, "name"), device);
            }
        }
    }
}

/* ----------------------------------------------------------------------- actions */

/* Without a name: that of the environment, or the only fabric there is. */
static void choose_name(struct call *call, char *buffer, size_t n_bytes) {
    const char *given = getenv("JACKAL_FABRIC_NAME");
    if (call->name) {
        return;
    }
    call->name = given && given[0] ? given : "default";
    if (given && given[0]) {
        return;
    }
    char *names = names_of_fabrics(call);
    size_t length = names ? strcspn(names, "\n") : 0;
    if (length > 0 && length < n_bytes && strcmp(names + length, "\n") == 0) {
        memcpy(buffer, names, length);
        buffer[length] = '\0';
        call->name = buffer;
    }
    free(names);
}

static int act_list(struct call *call) {
    char *names = names_of_fabrics(call);
    if (!names) {
        return TOOL_FAILED;
    }
    if (!call->json) {
        fputs(names, stdout);
    } else {
        json_t *list = json_array();
        for (char *at = strtok(names, "\n"); at; at = strtok(NULL, "\n")) {
            json_array_append_new(list, json_string(at));
        }
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(list);
    }
    free(names);
    return TOOL_GOOD;
}

static int act_status(struct call *call) {
    json_t *status = status_of(call);
    if (!status) {
        return TOOL_FAILED;
    }
    if (call->json) {
        json_dumpf(status, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        print_status(status, strcmp(call->action, "counters") == 0);
    }
    json_decref(status);
    return TOOL_GOOD;
}

static int act_check(struct call *call) {
    int n_hosts = call->library.check(call->operands[0]);
    if (n_hosts < 0) {
        fprintf(stderr, "jackal fabric check: %s\n", call->library.error());
        return TOOL_USAGE;
    }
    printf("%s: %d host%s\n", call->operands[0][0] == '{' ? "right" : call->operands[0], n_hosts,
           n_hosts == 1 ? "" : "s");
    return TOOL_GOOD;
}

static int act_command(struct call *call) {
    struct tool_buffer command = {0};
    if (strcmp(call->action, "clear-faults") == 0) {
        tool_buffer_print(&command, "faults clear");
    } else {
        tool_buffer_print(&command, "%s", call->action);
    }
    for (size_t i = 0; i < call->n_operands; ++i) {
        tool_buffer_print(&command, " %s", call->operands[i]);
    }
    tool_buffer_add(&command, "", 1);
    int status = call->library.control(call->name, tool_buffer_data(&command)) == 0 ? TOOL_GOOD
                                                                                    : failed(call);
    tool_buffer_free(&command);
    return status;
}

static const struct action {
    const char *name;
    size_t n_operands; /* needed */
    bool takes_name;   /* as one more operand */
    bool needs_fabric;
    int (*function)(struct call *call);
} actions[] = {
    {"list", 0, false, false, act_list},     {"status", 0, true, true, act_status},
    {"counters", 0, true, true, act_status}, {"check", 1, false, false, act_check},
    {"unplug", 1, false, true, act_command}, {"replug", 1, false, true, act_command},
    {"down", 1, false, true, act_command},   {"up", 1, false, true, act_command},
    {"remove", 1, false, true, act_command}, {"slow", 2, false, true, act_command},
    {"fault", 1, false, true, act_command},  {"clear-faults", 0, false, true, act_command},
};

enum { N_ACTIONS = sizeof actions / sizeof actions[0] };

static const struct action *find_action(const char *name) {
    for (size_t i = 0; i < N_ACTIONS; ++i) {
        if (strcmp(actions[i].name, name) == 0) {
            return &actions[i];
        }
    }
    return NULL;
}

static int scan_words(struct call *call, int argc, char **argv, const char **words,
                      size_t *n_words_p) {
    struct option_scan scan;
    option_start(&scan, &fabric_command, argc, argv);
    for (;;) {
        int found = option_next(&scan);
        if (found == OPTION_END) {
            break;
        }
        if (found == OPTION_HELP || found == OPTION_BAD) {
            return found;
        }
        if (found == OPTION_NAME) {
            call->name = scan.value;
        } else if (found == OPTION_JSON) {
            call->json = true;
        } else if (*n_words_p < 4) {
            words[(*n_words_p)++] = argv[scan.index - 1];
        } else {
            return option_error(&fabric_command, "too many words at \"%s\"", argv[scan.index - 1]);
        }
    }
    while (scan.index < argc && *n_words_p < 4) {
        words[(*n_words_p)++] = argv[scan.index++];
    }
    return 0;
}

static int run_action(struct call *call, const struct action *action) {
    char buffer[80];
    int status = tool_fabric_load(&call->library);
    if (status != 0) {
        return status;
    }
    if (action->needs_fabric) {
        choose_name(call, buffer, sizeof buffer);
    }
    return action->function(call);
}

int tool_fabric(int argc, char **argv) {
    struct call call = {0};
    const char *words[4];
    size_t n_words = 0;
    int found = scan_words(&call, argc, argv, words, &n_words);
    if (found != 0) {
        return found == OPTION_HELP ? TOOL_GOOD : TOOL_USAGE;
    }
    if (n_words == 0) {
        option_error(&fabric_command, "no action is given");
        return TOOL_USAGE;
    }
    const struct action *action = find_action(words[0]);
    if (!action) {
        const char *nearest =
            tool_nearest(words[0], &actions[0].name, N_ACTIONS, sizeof actions[0]);
        option_error(&fabric_command, "unknown action \"%s\"%s%s%s", words[0],
                     nearest ? ", did you mean \"" : "", nearest ? nearest : "",
                     nearest ? "\"?" : "");
        return TOOL_USAGE;
    }
    call.action = words[0];
    call.n_operands = n_words - 1;
    memcpy(call.operands, words + 1, call.n_operands * sizeof *words);
    if (action->takes_name && call.n_operands == 1) {
        call.name = call.operands[0];
        call.n_operands = 0;
    }
    if (call.n_operands != action->n_operands) {
        option_error(&fabric_command, "%s takes %zu operand%s, not %zu", call.action,
                     action->n_operands, action->n_operands == 1 ? "" : "s", call.n_operands);
        return TOOL_USAGE;
    }
    return run_action(&call, action);
}
