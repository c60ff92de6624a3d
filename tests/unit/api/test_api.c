/* SPDX-License-Identifier: MIT */
/* Names and texts, configs, descriptions and logs: the public interface without a second rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jackal/collective.h>
#include <jackal/inspect.h>
#include <jackal/jackal.h>

#include <jansson.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- status -----------------------------------------------------------------------------------
 */

static const struct {
    jackal_status status;
    const char *name, *text;
    int retryable;
} table[] = {
#define ROW(name, number, category, retryable, text) {number, #name, text, retryable},
    JACKAL_STATUS_TABLE(ROW)
#undef ROW
};

static void every_status_has_its_words(void **state) {
    size_t n = sizeof table / sizeof table[0];
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(jackal_status_name(table[i].status), table[i].name);
        assert_string_equal(jackal_status_text(table[i].status), table[i].text);
        assert_int_equal(jackal_status_retryable(table[i].status), table[i].retryable);
        assert_int_equal(table[i].status < 0, strncmp(table[i].name, "ERR_", 4) == 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(table[k].status, table[i].status);
            assert_string_not_equal(table[k].name, table[i].name);
            assert_string_not_equal(table[k].text, table[i].text);
        }
    }
    /* Bindings switch on these numbers; they are for ever. */
    assert_int_equal(JACKAL_OK, 0);
    assert_int_equal(JACKAL_PENDING, 1);
    assert_int_equal(JACKAL_ERR_ARGUMENT, -1);
    assert_int_equal(JACKAL_ERR_PEER_LOST, -10);
    assert_int_equal(JACKAL_ERR_FORKED, -21);
}

static void unknown_statuses_are_harmless(void **state) {
    static const jackal_status unknown[] = {2, -22, 12345, INT32_MIN, INT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_string_equal(jackal_status_name(unknown[i]), "UNKNOWN");
        assert_true(strlen(jackal_status_text(unknown[i])) > 0);
        assert_int_equal(jackal_status_retryable(unknown[i]), 0);
    }
}

static void the_version_is_that_of_the_header(void **state) {
    char version[32];
    (void)state;
    snprintf(version, sizeof version, "%d.%d.%d", JACKAL_VERSION_MAJOR, JACKAL_VERSION_MINOR,
             JACKAL_VERSION_PATCH);
    assert_string_equal(jackal_version(), version);
}

/* ---- configs ----------------------------------------------------------------------------------
 */

static void configs_keep_what_they_are_told(void **state) {
    char value[] = "8";
    (void)state;
    unsetenv("JACKAL_SLOT_FRAMES");
    jackal_config *config = jackal_config_new();
    assert_non_null(config);
    assert_string_equal(jackal_config_error(config), "");
    assert_string_equal(jackal_config_get(config, "slot_frames"), "16");
    assert_int_equal(jackal_config_set(config, "slot_frames", value), JACKAL_OK);
    value[0] = '9'; /* it was copied */
    assert_string_equal(jackal_config_get(config, "slot_frames"), "8");
    setenv("JACKAL_SLOT_FRAMES", "32", 1);
    assert_int_equal(jackal_config_from_env(config), JACKAL_OK);
    assert_string_equal(jackal_config_get(config, "slot_frames"), "8");
    assert_int_equal(jackal_config_set(config, "slot_frames", NULL), JACKAL_OK);
    assert_string_equal(jackal_config_get(config, "slot_frames"), "32");
    assert_null(jackal_config_get(config, "no_such_setting"));
    assert_null(jackal_config_get(config, "devices"));
    unsetenv("JACKAL_SLOT_FRAMES");
    jackal_config_free(config);
}

static void wrong_values_are_explained(void **state) {
    (void)state;
    jackal_config *config = jackal_config_new();
    assert_int_equal(jackal_config_set(config, "slot_frames", "many"), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(jackal_config_error(config), "slot_frames"));
    assert_non_null(strstr(jackal_config_error(config), "\"many\""));
    assert_non_null(strstr(jackal_config_error(config), "4 to 128"));
    assert_int_equal(jackal_config_set(config, "slot_farmes", "8"), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(jackal_config_error(config), "slot_farmes"));
    assert_int_equal(jackal_config_set(config, NULL, "8"), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_config_set(NULL, "rank", "8"), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_config_from_env(NULL), JACKAL_ERR_ARGUMENT);
    assert_null(jackal_config_get(NULL, "rank"));
    assert_null(jackal_config_get(config, NULL));
    setenv("JACKAL_CHECKSUM", "often", 1);
    assert_int_equal(jackal_config_from_env(config), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(jackal_config_error(config), "JACKAL_CHECKSUM"));
    unsetenv("JACKAL_CHECKSUM");
    jackal_config_free(config);
}

/* ---- descriptions -----------------------------------------------------------------------------
 */

static json_t *inspect(const char *what) {
    char *text = NULL;
    json_error_t error;
    assert_int_equal(jackal_inspect(what, NULL, &text), JACKAL_OK);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    jackal_free_text(text);
    assert_non_null(json);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? "null" : json_string_value(value);
}

static const json_t *find(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(text_of(json_array_get(list, i), "name"), name) == 0)
            return json_array_get(list, i);
    fail_msg("no %s in the list", name);
    return NULL;
}

static void settings_are_described(void **state) {
    static const char *const keys[] = {"name",  "variable", "type",  "default",
                                       "range", "unit",     "value", "source"};
    (void)state;
    unsetenv("JACKAL_RANK");
    setenv("MLX_RANK", "3", 1);
    setenv("JACKAL_SLOT_FRAMES", "7000", 1); /* wrong: shown as it is, for who looks for it */
    json_t *list = inspect("settings");
    assert_true(json_array_size(list) > 15);
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            assert_non_null(text_of(json_array_get(list, i), keys[k]));
    const json_t *rank = find(list, "rank");
    assert_string_equal(text_of(rank, "variable"), "JACKAL_RANK");
    assert_string_equal(text_of(rank, "value"), "3");
    assert_string_equal(text_of(rank, "source"), "MLX_RANK");
    assert_string_equal(text_of(rank, "default"), "null");
    assert_int_equal(json_array_size(json_object_get(rank, "aliases")), 2);
    assert_string_equal(text_of(find(list, "order"), "range"), "auto|canonical|fast");
    assert_string_equal(text_of(find(list, "strict"), "range"), "0|1");
    json_decref(list);
    unsetenv("MLX_RANK");
    unsetenv("JACKAL_SLOT_FRAMES");
}

static void wrong_values_are_shown(void **state) {
    (void)state;
    setenv("JACKAL_SLOT_FRAMES", "7000", 1);
    setenv("JACKAL_LOG", "info", 1); /* behind it in the table */
    json_t *list = inspect("settings");
    assert_string_equal(text_of(find(list, "slot_frames"), "value"), "7000");
    assert_string_equal(text_of(find(list, "slot_frames"), "source"), "JACKAL_SLOT_FRAMES");
    assert_string_equal(text_of(find(list, "log"), "value"), "info");
    json_decref(list);
    unsetenv("JACKAL_SLOT_FRAMES");
    unsetenv("JACKAL_LOG");
}

static void devices_are_listed(void **state) {
    (void)state;
    setenv("JACKAL_VERBS", "fabric", 1);
    setenv("JACKAL_FABRIC", "{\"mesh\":{\"hosts\":4,\"wires\":2}}", 1);
    setenv("JACKAL_FABRIC_HOST", "1", 1);
    json_t *list = inspect("devices");
    assert_int_equal(json_array_size(list), 6);
    find(list, "rdma_en2");
    find(list, "rdma_en7");
    json_decref(list);
    assert_int_equal(jackal_is_available("jaccl"), 1);
    assert_int_equal(jackal_is_available("any"), 1);
    assert_int_equal(jackal_is_available("pigeon"), 0);
    assert_int_equal(jackal_is_available(NULL), 0);
    /* All devices of all hosts of a large fabric have their whole names. */
    setenv("JACKAL_FABRIC", "{\"mesh\":{\"hosts\":8,\"wires\":4}}", 1);
    setenv("JACKAL_FABRIC_HOST", "*", 1);
    list = inspect("devices");
    assert_int_equal(json_array_size(list), 8 * 7 * 4);
    find(list, "h0.rdma_en2");
    find(list, "h7.rdma_en29");
    json_decref(list);
    unsetenv("JACKAL_FABRIC");
    unsetenv("JACKAL_FABRIC_HOST");
    setenv("JACKAL_VERBS", "/no/such/library", 1);
    char *text = (char *)&text;
    assert_int_equal(jackal_inspect("devices", NULL, &text), JACKAL_ERR_NO_DEVICE);
    assert_null(text);
    assert_int_equal(jackal_is_available("jaccl"), 0);
    unsetenv("JACKAL_VERBS");
}

static void unknown_descriptions_are_refused(void **state) {
    char *text = (char *)&text;
    (void)state;
    assert_int_equal(jackal_inspect("weather", NULL, &text), JACKAL_ERR_ARGUMENT);
    assert_null(text);
    assert_int_equal(jackal_inspect(NULL, NULL, &text), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_inspect("settings", NULL, NULL), JACKAL_ERR_ARGUMENT);
}

/* ---- logs -------------------------------------------------------------------------------------
 */

struct log {
    int n_lines, worst;
    char last[1024];
};

static void take_line(void *context, int level, const char *line) {
    struct log *log = context;
    log->n_lines++;
    log->worst = level;
    snprintf(log->last, sizeof log->last, "%s", line);
    assert_null(strchr(line, '\n'));
}

static void log_lines_go_to_the_function(void **state) {
    struct log log = {0, 0, ""};
    jackal_group *group = NULL;
    (void)state;
    jackal_config *config = jackal_config_new();
    jackal_config_set_log(config, take_line, &log);
    assert_int_equal(jackal_init(config, &group), JACKAL_ERR_CONFIG);
    assert_null(group);
    assert_int_equal(log.n_lines, 1);
    assert_int_equal(log.worst, JACKAL_LOG_ERROR);
    assert_non_null(strstr(log.last, jackal_config_error(config)));
    jackal_config_set_log(NULL, take_line, &log);
    jackal_config_free(config);
}

/* ---- a group of one ---------------------------------------------------------------------------
 */

/* Texts belong to a group and a thread, and outlive neither (E3: nothing is cached). */
static void errors_are_of_their_group(void **state) {
    jackal_group *one = NULL, *two = NULL;
    int32_t value = 5;
    (void)state;
    jackal_config *config = jackal_config_new();
    assert_int_equal(jackal_config_set(config, "size", "1"), JACKAL_OK);
    assert_int_equal(jackal_init(config, &one), JACKAL_OK);
    assert_int_equal(jackal_init(config, &two), JACKAL_OK);
    jackal_config_free(config);
    assert_ptr_not_equal(one, two);
    assert_string_equal(jackal_error_message(one), "");
    assert_int_equal(jackal_error_peer(one), -1);
    assert_int_equal(jackal_broadcast(one, &value, 1, JACKAL_INT32, 9), JACKAL_ERR_ARGUMENT);
    assert_non_null(strstr(jackal_error_message(one), "root is 9"));
    assert_string_equal(jackal_error_message(two), "");
    jackal_abort(two, "why not");
    assert_int_equal(jackal_barrier(two), JACKAL_ERR_ABORTED);
    assert_non_null(strstr(jackal_error_message(two), "why not"));
    assert_int_equal(jackal_error_peer(two), 0);
    assert_int_equal(jackal_barrier(one), JACKAL_OK);
    jackal_group_free(two);
    jackal_group_free(one);
    config = jackal_config_new();
    assert_int_equal(jackal_init(config, &one), JACKAL_ERR_CONFIG); /* strict again */
    jackal_config_free(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_words),
        cmocka_unit_test(unknown_statuses_are_harmless),
        cmocka_unit_test(the_version_is_that_of_the_header),
        cmocka_unit_test(configs_keep_what_they_are_told),
        cmocka_unit_test(wrong_values_are_explained),
        cmocka_unit_test(settings_are_described),
        cmocka_unit_test(wrong_values_are_shown),
        cmocka_unit_test(devices_are_listed),
        cmocka_unit_test(unknown_descriptions_are_refused),
        cmocka_unit_test(log_lines_go_to_the_function),
        cmocka_unit_test(errors_are_of_their_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
