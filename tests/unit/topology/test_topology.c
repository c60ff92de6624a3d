/* SPDX-License-Identifier: MIT */
/* Device matrices, good and bad, with the place that each error must name (E1, E10, E19, T11). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- good -------------------------------------------------------------------------------------
 */

static const struct {
    const char *text;
    int size, wires; /* 0 wires = no mesh, but a matrix */
} good[] = {
    {"[[null,\"a\"],[\"b\",null]]", 2, 1},
    {"[[[],[\"a\"]],[[\"b\"],[]]]", 2, 1},
    {" [ [ null , [ \"a\" , \"b\" ] ] , [ [ \"c\" , \"d\" ] , null ] ] ", 2, 0},
    {"[[null,[\"a\",\"b\",\"c\",\"d\"]],[[\"e\",\"f\",\"g\",\"h\"],null]]", 2, 4},
    {"[[null,\"a\",[\"b\",\"c\"]],[\"d\",null,\"e\"],[[\"f\",\"g\"],\"h\",null]]", 3, 1},
    {"[[null,\"a\"],[\"a\",null]]", 2, 1}, /* names are of their own machine */
};

static void good_matrices_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct topology *topology = NULL;
        struct base_error error = {.text = ""};
        const char *text = good[i].text;
        int wires = 0;
        if (text[0] == ' ') /* what does not begin with [ is a path */
            text++;
        assert_int_equal(topology_read(text, &topology, &error), JACKAL_OK);
        assert_int_equal(topology->size, good[i].size);
        if (good[i].wires > 0) {
            assert_int_equal(topology_check_mesh(topology, &wires, &error), JACKAL_OK);
            assert_int_equal(wires, good[i].wires);
        }
        topology_free(topology);
    }
}

static void cells_are_where_they_belong(void **state) {
    struct topology *topology = NULL;
    struct base_error error;
    (void)state;
    const char *text = "[[null,\"01\",[\"02\",\"02b\"]],[\"10\",null,\"12\"],"
                       "[[\"20\",\"20b\"],\"21\",null]]";
    assert_int_equal(topology_read(text, &topology, &error), JACKAL_OK);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            const struct topology_cell *cell = topology_cell(topology, i, j);
            char name[8];
            snprintf(name, sizeof name, "%d%d", i, j);
            assert_int_equal(cell->n_names, i == j ? 0 : i + j == 2 ? 2 : 1);
            if (i != j)
                assert_string_equal(cell->names[0], name);
        }
    }
    assert_string_equal(topology_cell(topology, 2, 0)->names[1], "20b");
    topology_free(topology);
}

/* ---- bad --------------------------------------------------------------------------------------
 */

#define NAME_63 "123456789012345678901234567890123456789012345678901234567890123"

static const struct {
    const char *text;
    const char *parts[3];
} bad[] = {
    {"[", {"line 1, column"}},
    {"[[null,\"a\"],[\"b\",null]", {"line 1, column"}},
    {"[[null,\"a\"],\n[\"b\" null]]", {"line 2, column"}},
    {"[[null,\"a\"],[\"b\",null]] x", {"line 1, column"}},
    {"{\"a\":1,\"a\":2}", {"line 1", "duplicate"}},
    {"{}", {"list of 2 to 64 rows"}},
    {"[]", {"list of 2 to 64 rows"}},
    {"[[null]]", {"list of 2 to 64 rows"}},
    {"[null,null]", {"[0]", "row of 2 cells"}},
    {"[[null,\"a\"],[\"b\"]]", {"[1]", "row of 2 cells"}},
    {"[[null,\"a\",\"b\"],[\"b\",null]]", {"[0]", "row of 2 cells"}},
    {"[[null,1],[\"b\",null]]", {"[0][1]", "null, a device name or a list"}},
    {"[[null,\"a\"],[true,null]]", {"[1][0]"}},
    {"[[null,{}],[\"b\",null]]", {"[0][1]"}},
    {"[[null,\"\"],[\"b\",null]]", {"[0][1]", "1 to 63 characters"}},
    {"[[null,\"a\"],[[\"b\",\"\"],null]]", {"[1][0][1]", "1 to 63"}},
    {"[[null,\"a\"],[[\"b\",null],null]]", {"[1][0][1]"}},
    {"[[null,\"a\"],[[\"b\",[\"c\"]],null]]", {"[1][0][1]"}},
    {"[[null,\"a\"],[\"" NAME_63 "4\",null]]", {"[1][0]", "1 to 63"}},
    {"[[null,[\"a\",\"b\",\"a\"]],[\"b\",null]]", {"[0][1][2]", "a is listed twice"}},
    {"[[null,[\"a\",\"b\",\"c\",\"d\",\"e\"]],[\"b\",null]]", {"[0][1][4]", "more than 4"}},
    {"[[\"a\",\"a\"],[\"b\",null]]", {"[0][0]", "itself"}},
    {"[[null,\"a\"],[\"b\",[\"c\"]]]", {"[1][1]", "itself"}},
    {"/no/such/file", {"/no/such/file", "No such file"}},
    {"rdma_en2", {"rdma_en2", "No such file"}},
};

static void bad_matrices_are_explained(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct topology *topology = NULL;
        struct base_error error = {.text = ""};
        if (topology_read(bad[i].text, &topology, &error) != JACKAL_ERR_CONFIG)
            fail_msg("%s: taken, or another status: %s", bad[i].text, error.text);
        assert_null(topology);
        for (int k = 0; k < 3 && bad[i].parts[k] != NULL; k++)
            if (strstr(error.text, bad[i].parts[k]) == NULL)
                fail_msg("%s: \"%s\" does not contain \"%s\"", bad[i].text, error.text,
                         bad[i].parts[k]);
    }
    struct topology *topology = NULL;
    struct base_error error;
    assert_int_equal(topology_read("[[null,\"" NAME_63 "\"],[\"b\",null]]", &topology, &error),
                     JACKAL_OK);
    topology_free(topology);
}

static const struct {
    const char *text;
    const char *parts[3];
} no_mesh[] = {
    {"[[null,null],[\"b\",null]]", {"[0][1]", "rank 0 to rank 1"}},
    {"[[null,\"a\"],[[],null]]", {"[1][0]", "two ends"}},
    {"[[null,[\"a\",\"b\"]],[\"c\",null]]", {"[0][1]", "[1][0]", "two ends"}},
    /* A ring of three lacks nothing; a line does (E10). */
    {"[[null,\"a\",null],[\"b\",null,\"c\"],[null,\"d\",null]]", {"[0][2]"}},
};

static void what_is_no_mesh_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof no_mesh / sizeof no_mesh[0]; i++) {
        struct topology *topology = NULL;
        struct base_error error = {.text = ""};
        int wires = -5;
        assert_int_equal(topology_read(no_mesh[i].text, &topology, &error), JACKAL_OK);
        assert_int_equal(topology_check_mesh(topology, &wires, &error), JACKAL_ERR_CONFIG);
        assert_int_equal(wires, -5);
        for (int k = 0; k < 3 && no_mesh[i].parts[k] != NULL; k++)
            assert_non_null(strstr(error.text, no_mesh[i].parts[k]));
        topology_free(topology);
    }
}

/* A full matrix of n ranks. */
static char *full(int n) {
    char *text = malloc((size_t)(n * n) * 8 + 16);
    assert_non_null(text);
    char *at = text;
    for (int i = 0; i < n; i++) {
        at += sprintf(at, "%s", i == 0 ? "[[" : ",[");
        for (int j = 0; j < n; j++)
            at += sprintf(at, "%s%s", j > 0 ? "," : "", i == j ? "null" : "\"d\"");
        at += sprintf(at, "]");
    }
    sprintf(at, "]");
    return text;
}

static void sizes_have_limits(void **state) {
    static const struct {
        int size;
        jackal_status read, mesh;
    } cases[] = {{8, JACKAL_OK, JACKAL_OK},
                 {9, JACKAL_OK, JACKAL_ERR_LIMIT},
                 {64, JACKAL_OK, JACKAL_ERR_LIMIT},
                 {65, JACKAL_ERR_CONFIG, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct topology *topology = NULL;
        struct base_error error;
        char *text = full(cases[i].size);
        int wires;
        assert_int_equal(topology_read(text, &topology, &error), cases[i].read);
        if (topology != NULL)
            assert_int_equal(topology_check_mesh(topology, &wires, &error), cases[i].mesh);
        topology_free(topology);
        free(text);
    }
}

static void files_are_read_as_well(void **state) {
    char path[] = "/tmp/jackal-matrix-XXXXXX";
    struct topology *topology = NULL;
    struct base_error error;
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = "[\n  [null, \"a\"],\n  [\"b\" null]\n]\n";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(topology_read(path, &topology, &error), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(error.text, path));
    assert_non_null(strstr(error.text, "line 3, column"));
    text = "[[null, \"a\"], [\"b\", null]]";
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
    assert_int_equal(topology_read(path, &topology, &error), JACKAL_OK);
    topology_free(topology);
    topology_free(NULL);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_matrices_are_read),     cmocka_unit_test(cells_are_where_they_belong),
        cmocka_unit_test(bad_matrices_are_explained), cmocka_unit_test(what_is_no_mesh_is_refused),
        cmocka_unit_test(sizes_have_limits),          cmocka_unit_test(files_are_read_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
