/* SPDX-License-Identifier: MIT */
/* The table of settings, and how values are found, checked and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/setting.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table --------------------------------------------------------------------------------
 */

static void names_follow_from_each_other(void **state) {
    (void)state;
    for (int i = 0; i < SETTING_COUNT; i++) {
        const struct base_setting *setting = &base_setting_table[i];
        char variable[64] = "JACKAL_";
        for (size_t k = 0; k < strlen(setting->name); k++)
            variable[7 + k] = (char)toupper((unsigned char)setting->name[k]);
        assert_string_equal(setting->variable, variable);
        assert_int_equal(base_setting_find(setting->name), i);
        assert_true(strlen(setting->help) > 10);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(setting->name, base_setting_table[k].name);
    }
    assert_int_equal(base_setting_find("no_such"), -1);
    assert_int_equal(base_setting_find(""), -1);
    assert_int_equal(base_setting_find("RANK"), -1);
}

/* A default that its own check refuses would show only where nobody sets the value. */
static void defaults_are_allowed(void **state) {
    struct base_settings settings = {.environment_read = false};
    struct base_error error;
    (void)state;
    for (int i = 0; i < SETTING_COUNT; i++)
        if (base_setting_table[i].fallback != NULL)
            assert_int_equal(base_settings_set(&settings, base_setting_table[i].name,
                                               base_setting_table[i].fallback, &error),
                             JACKAL_OK);
    base_settings_free(&settings);
}

static void aliases_are_unique(void **state) {
    char all[4096] = " ";
    (void)state;
    for (int i = 0; i < SETTING_COUNT; i++) {
        char copy[256], *rest = copy;
        snprintf(copy, sizeof copy, "%s", base_setting_table[i].aliases);
        for (char *alias = strtok_r(copy, " ", &rest); alias != NULL;
             alias = strtok_r(NULL, " ", &rest)) {
            char padded[128];
            assert_true(strncmp(alias, "JACCL_", 6) == 0 || strncmp(alias, "MLX_", 4) == 0);
            snprintf(padded, sizeof padded, " %s ", alias);
            assert_null(strstr(all, padded));
            strcat(all, padded + 1);
        }
    }
}

/* ---- values -----------------------------------------------------------------------------------
 */

static const struct {
    const char *name, *value;
    bool is_good;
} values[] = {
    {"rank", "0", true},
    {"rank", "65535", true},
    {"rank", "65536", false},
    {"rank", "-1", false},
    {"rank", "", false},
    {"rank", " 1", false},
    {"rank", "1 ", false},
    {"rank", "1x", false},
    {"rank", "0x1", false},
    {"rank", "1e3", false},
    {"size", "0", false},
    {"size", "1", true},
    {"strict", "1", true},
    {"strict", "0", true},
    {"strict", "true", true},
    {"strict", "FALSE", true},
    {"strict", "Yes", true},
    {"strict", "off", true},
    {"strict", "2", false},
    {"strict", "", false},
    {"strict", "yess", false},
    {"order", "auto", true},
    {"order", "canonical", true},
    {"order", "fast", true},
    {"order", "Fast", false},
    {"order", "fas", false},
    {"order", "auto|fast", false},
    {"order", "", false},
    {"slot_frames", "4", true},
    {"slot_frames", "3", false},
    {"slot_frames", "128", true},
    {"slot_frames", "129", false},
    {"job", "", true},
    {"job", "anything at all", true},
    {"progress_timeout_ms", "-5", true},
    {"progress_timeout_ms", "99999999999999999999", false},
    {"init_timeout_ms", "0", false},
};

static void values_are_checked(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct base_settings settings = {.environment_read = false};
        struct base_error error = {.text = ""};
        jackal_status status =
            base_settings_set(&settings, values[i].name, values[i].value, &error);
        if (status != (values[i].is_good ? JACKAL_OK : JACKAL_ERR_CONFIG))
            fail_msg("%s = \"%s\": status %d", values[i].name, values[i].value, status);
        enum base_setting_id id = (enum base_setting_id)base_setting_find(values[i].name);
        if (values[i].is_good) {
            assert_string_equal(base_settings_text(&settings, id), values[i].value);
            assert_string_equal(base_settings_source(&settings, id), "explicit");
        } else {
            char quoted[64];
            snprintf(quoted, sizeof quoted, "\"%s\"", values[i].value);
            assert_non_null(strstr(error.text, values[i].name));
            assert_non_null(strstr(error.text, quoted));
            assert_non_null(strstr(error.text, "want"));
            assert_string_equal(base_settings_source(&settings, id), "default");
        }
        base_settings_free(&settings);
    }
}

static void unknown_settings_are_refused(void **state) {
    struct base_settings settings = {.environment_read = false};
    struct base_error error;
    (void)state;
    assert_int_equal(base_settings_set(&settings, "rnak", "0", &error), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(error.text, "\"rnak\""));
    assert_int_equal(base_settings_set(&settings, "rnak", NULL, &error), JACKAL_ERR_CONFIG);
    base_settings_free(&settings);
}

/* A refused value leaves the old one; NULL takes it back. */
static void values_can_be_taken_back(void **state) {
    struct base_settings settings = {.environment_read = false};
    struct base_error error;
    (void)state;
    assert_int_equal(base_settings_set(&settings, "slot_frames", "8", &error), JACKAL_OK);
    assert_int_equal(base_settings_set(&settings, "slot_frames", "9000", &error),
                     JACKAL_ERR_CONFIG);
    assert_int_equal(base_settings_integer(&settings, SETTING_slot_frames, 0), 8);
    assert_int_equal(base_settings_set(&settings, "slot_frames", NULL, &error), JACKAL_OK);
    assert_int_equal(base_settings_integer(&settings, SETTING_slot_frames, 0), 16);
    assert_int_equal(base_settings_integer(&settings, SETTING_rank, 42), 42);
    assert_int_equal(base_settings_word(&settings, SETTING_algorithm), 0);
    assert_int_equal(base_settings_set(&settings, "algorithm", "mesh", &error), JACKAL_OK);
    assert_int_equal(base_settings_word(&settings, SETTING_algorithm), 2);
    base_settings_free(&settings);
}

/* ---- the environment --------------------------------------------------------------------------
 */

static jackal_status read_with(struct base_settings *settings, struct base_error *error,
                               const char *const *pairs) {
    static const char *const all[] = {"JACKAL_RANK", "JACCL_RANK", "MLX_RANK", "JACKAL_SIZE",
                                      "JACKAL_STRICT"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        unsetenv(all[i]);
    for (size_t i = 0; pairs[i] != NULL; i += 2)
        setenv(pairs[i], pairs[i + 1], 1);
    return base_settings_read_environment(settings, error);
}

#define PAIRS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void the_first_variable_that_is_set_counts(void **state) {
    static const struct {
        const char *pairs[7];
        int64_t value;
        const char *source;
    } cases[] = {
        {{"MLX_RANK", "3"}, 3, "MLX_RANK"},
        {{"MLX_RANK", "3", "JACCL_RANK", "2"}, 2, "JACCL_RANK"},
        {{"MLX_RANK", "3", "JACCL_RANK", "2", "JACKAL_RANK", "1"}, 1, "JACKAL_RANK"},
        {{"MLX_RANK", "3", "JACCL_RANK", "", "JACKAL_RANK", ""}, 3, "MLX_RANK"},
        {{"JACKAL_RANK", ""}, -1, "default"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct base_settings settings = {.environment_read = false};
        struct base_error error;
        assert_int_equal(read_with(&settings, &error, cases[i].pairs), JACKAL_OK);
        assert_true(settings.environment_read);
        assert_int_equal(base_settings_integer(&settings, SETTING_rank, -1), cases[i].value);
        assert_string_equal(base_settings_source(&settings, SETTING_rank), cases[i].source);
        base_settings_free(&settings);
    }
}

static void wrong_variables_are_named(void **state) {
    struct base_settings settings = {.environment_read = false};
    struct base_error error;
    (void)state;
    assert_int_equal(read_with(&settings, &error, PAIRS("JACCL_RANK", "two")), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(error.text, "JACCL_RANK is \"two\""));
    assert_false(settings.environment_read);
    /* What is set explicitly is not looked at in the environment. */
    assert_int_equal(base_settings_set(&settings, "rank", "5", &error), JACKAL_OK);
    assert_int_equal(read_with(&settings, &error, PAIRS("JACCL_RANK", "two")), JACKAL_OK);
    assert_int_equal(base_settings_integer(&settings, SETTING_rank, -1), 5);
    base_settings_free(&settings);
}

static void a_snapshot_is_taken_anew(void **state) {
    struct base_settings settings = {.environment_read = false};
    struct base_error error;
    (void)state;
    assert_int_equal(read_with(&settings, &error, PAIRS("JACKAL_RANK", "1")), JACKAL_OK);
    setenv("JACKAL_RANK", "2", 1);
    assert_int_equal(base_settings_integer(&settings, SETTING_rank, -1), 1);
    assert_int_equal(read_with(&settings, &error, PAIRS("JACKAL_SIZE", "4")), JACKAL_OK);
    assert_int_equal(base_settings_integer(&settings, SETTING_rank, -1), -1);
    assert_int_equal(base_settings_integer(&settings, SETTING_size, -1), 4);
    base_settings_free(&settings);
}

static void mistyped_variables_are_found(void **state) {
    size_t place = 0;
    bool seen = false;
    const char *entry;
    (void)state;
    setenv("JACKAL_RANKS", "1", 1);
    setenv("JACKAL_TEST_ANYTHING", "1", 1);
    setenv("JACKAL_RANK", "1", 1);
    while ((entry = base_setting_unknown(&place)) != NULL) {
        seen = seen || strcmp(entry, "JACKAL_RANKS=1") == 0;
        assert_true(strncmp(entry, "JACKAL_RANK=", 12) != 0);
        assert_true(strncmp(entry, "JACKAL_TEST_", 12) != 0);
    }
    assert_true(seen);
    unsetenv("JACKAL_RANKS");
    unsetenv("JACKAL_TEST_ANYTHING");
    unsetenv("JACKAL_RANK");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_follow_from_each_other),
        cmocka_unit_test(defaults_are_allowed),
        cmocka_unit_test(aliases_are_unique),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(unknown_settings_are_refused),
        cmocka_unit_test(values_can_be_taken_back),
        cmocka_unit_test(the_first_variable_that_is_set_counts),
        cmocka_unit_test(wrong_variables_are_named),
        cmocka_unit_test(a_snapshot_is_taken_anew),
        cmocka_unit_test(mistyped_variables_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
