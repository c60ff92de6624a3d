# SPDX-License-Identifier: MIT
"""`jackal fabric` from outside, on jobs that run; and the examples against their schema.

Usage: test_fabric_tool.py JACKAL EXAMPLES SCHEMA [unittest arguments]
"""

import glob
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
EXAMPLES = os.path.abspath(sys.argv.pop(2))
SCHEMA = os.path.abspath(sys.argv.pop(2))
import harness  # noqa: E402  (takes the path of jackal out of sys.argv)

# Says which fabric it is in, then measures.
BENCH = (
    'echo $JACKAL_FABRIC_NAME > $NOTES/name.$JACKAL_RANK.new; '
    "mv $NOTES/name.$JACKAL_RANK.new $NOTES/name.$JACKAL_RANK; "
    'exec "$@"'
)
PAIR = (
    '{"hosts":[{"name":"A","devices":[{"name":"rdma_en2"}]},'
    '{"name":"B","devices":[{"name":"rdma_en2"}]}],'
    '"cables":[{"ends":["A.rdma_en2","B.rdma_en2"]}]}'
)


class FabricTest(harness.JobTest):
    def job(self, *bench, fabric=PAIR, options=()):
        """A bench on two hosts. Returns the process and the name of its fabric."""
        process = self.start(
            "run", "-n", "2", f"--fabric={fabric}", "--no-prefix", *options, "--",
            "sh", "-c", BENCH, "sh", harness.JACKAL, "bench", *bench,
            env={"JACKAL_PROGRESS_TIMEOUT_MS": "1500"},
        )
        harness.wait_until(lambda: os.path.exists(self.path("name.0")), 20, "start of rank 0")
        return process, self.read("name.0").decode().strip()

    def status(self, name):
        result = self.jackal("fabric", "status", name, "--json")
        return json.loads(result.out) if result.status == 0 else None

    def wait_for_traffic(self, name):
        def moving():
            status = self.status(name)
            devices = status["hosts"][0]["devices"] if status else []
            return devices and devices[0]["sent"]["messages"] > 20

        harness.wait_until(moving, 20, "messages on the cable")


class Running(FabricTest):
    def test_status_and_counters(self):
        process, name = self.job("-b", "64K", "-e", "64K", "-n", "3000", "-c")
        self.wait_for_traffic(name)
        self.assertIn(name, self.jackal("fabric", "list").out.decode().split())
        self.assertIn(name, json.loads(self.jackal("fabric", "list", "--json").out))
        status = self.status(name)
        self.assertEqual([host["name"] for host in status["hosts"]], ["A", "B"])
        self.assertEqual(sorted(p["host"] for p in status["processes"]), ["A", "B"])
        a = status["hosts"][0]["devices"][0]
        self.assertEqual(a["peer"], "B.rdma_en2")
        self.assertGreater(a["objects"]["queue_pairs"], 0)
        self.assertEqual(len(a["objects"]["processes"]), 1)
        text = self.jackal("fabric", "status", name).out.decode()
        self.assertRegex(text, r"A\.rdma_en2 +B\.rdma_en2 +active +plugged +up +unpaced")
        text = self.jackal("fabric", "counters", f"--name={name}").out.decode()
        self.assertRegex(text, r"B\.rdma_en2 +[1-9][0-9]* +[1-9]")
        self.assertEqual(self.finish(process).status, 0)
        self.assertEqual(self.jackal("fabric", "status", name).status, 1)

    def test_unplug_ends_the_job_with_an_error(self):
        process, name = self.job("-b", "64K", "-e", "64K", "-n", "1000000", options=("--timeout=25",))
        self.wait_for_traffic(name)
        self.assertEqual(self.jackal("fabric", "unplug", "A.en2", "--name", name).status, 0)
        status = self.status(name)
        if status:  # unless the ranks have ended already
            self.assertFalse(status["hosts"][0]["devices"][0]["plugged"])
        result = self.finish(process)
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds, 24)
        self.assertRegex(result.err.decode(), r"ERR_(PEER_LOST|TIMEOUT|LINK_DOWN|LINK|DATA_LOST)")

    def test_slow_takes_longer_and_is_right(self):
        process, name = self.job(
            "-b", "1M", "-e", "1M", "-n", "200", "-c", fabric=PAIR.replace(
                '"cables":[{', '"cables":[{"rate":"4GB/s",'
            ),
        )
        self.wait_for_traffic(name)
        self.assertEqual(self.jackal("fabric", "slow", "A.en2", "0.05", "--name", name).status, 0)
        result = self.finish(process)
        self.assertEqual(result.status, 0, result.err)
        self.assertNotIn(b"wrong elements", result.err)
        # Most of 200 MiB each way at 200 MB/s.
        self.assertGreater(result.seconds, 1.0)

    def test_fault_while_it_runs(self):
        process, name = self.job("-b", "64K", "-e", "64K", "-n", "1000000", options=("--timeout=25",))
        self.wait_for_traffic(name)
        fault = '{"kind":"status","device":"B.en2","probability":1,"status":12}'
        self.assertEqual(self.jackal("fabric", "fault", fault, f"--name={name}").status, 0)
        result = self.finish(process)
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds, 24)


class Words(FabricTest):
    def test_check(self):
        for path in sorted(glob.glob(os.path.join(EXAMPLES, "*.json"))):
            self.assertEqual(self.jackal("fabric", "check", path).status, 0, path)
        bad = self.write("bad.json", '{"hosts": [{"name": "A"}],\n "cables": [{"ends": 3}]}')
        self.assert_usage(self.jackal("fabric", "check", bad), "cables[0].ends")
        worse = self.write("worse.json", '{"mesh":\n {')
        self.assert_usage(self.jackal("fabric", "check", worse), "worse.json, line 2")
        self.assert_usage(self.jackal("fabric", "check", "none.json"), "none.json")

    def test_wrong_usage(self):
        self.assert_usage(self.jackal("fabric"), "no action")
        self.assert_usage(self.jackal("fabric", "unplugg"), "unplugg", "mean \"unplug\"")
        self.assert_usage(self.jackal("fabric", "unplug"), "1 operand")
        self.assert_usage(self.jackal("fabric", "slow", "A.en2"), "2 operands")
        self.assert_usage(self.jackal("fabric", "list", "x"), "0 operands")

    def test_no_such_fabric(self):
        for words in (["status", "nix"], ["unplug", "A.en2", "--name=nix"]):
            result = self.jackal("fabric", *words)
            self.assertEqual(result.status, 1)
            self.assertIn(b"nix", result.err)


class Matrix(FabricTest):
    def matrix(self, fabric, n, env=None):
        result = self.run_script(
            ["-n", str(n), f"--fabric={fabric}", "--no-prefix"],
            'if [ $JACKAL_RANK = 0 ]; then echo "$JACKAL_DEVICES"; fi', env=env,
        )
        self.assertEqual(result.status, 0, result.err)
        return json.loads(result.out)

    def test_ring(self):
        matrix = self.matrix(os.path.join(EXAMPLES, "ring-of-four.json"), 4)
        for i in range(4):
            for j in range(4):
                right = {1: ["rdma_en2"], 3: ["rdma_en3"]}.get((j - i) % 4)
                self.assertEqual(matrix[i][j], right, (i, j))

    def test_two_cables_and_fewer_ranks(self):
        both = ["rdma_en2", "rdma_en3"]
        matrix = self.matrix(os.path.join(EXAMPLES, "two-hosts.json"), 2)
        self.assertEqual(matrix, [[None, both], [both, None]])
        matrix = self.matrix(os.path.join(EXAMPLES, "ring-of-four.json"), 2)
        self.assertEqual(matrix, [[None, ["rdma_en2"]], [["rdma_en3"], None]])

    def test_switch(self):
        matrix = self.matrix(os.path.join(EXAMPLES, "roce-pair.json"), 2)
        self.assertEqual(matrix, [[None, ["rocep1"]], [["rocep1"], None]])
        matrix = self.matrix(
            '{"mesh":{"hosts":3,"wires":2}}', 3, env={"JACKAL_FABRIC_PERSONALITY": "roce"}
        )
        self.assertEqual(matrix[2], [["rocep1", "rocep2"], ["rocep1", "rocep2"], None])

    def test_more_ranks_than_hosts(self):
        fabric = os.path.join(EXAMPLES, "two-hosts.json")
        result = self.jackal("run", "-n", "3", f"--fabric={fabric}", "true")
        self.assert_usage(result, "3 ranks", "has 2")


def problems(value, schema, root, path="$"):
    """What of `value` breaks `schema`: the keywords that ours uses, for when no validator is
    installed."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return problems(value, root["$defs"][name], root, path)
    found = []
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
             "number": (int, float)}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or
                 (kind in ("integer", "number") and isinstance(value, bool))):
        return [f"{path}: is no {kind}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: is not {schema['const']}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: is none of {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path}: does not match {schema['pattern']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{path}: below {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        found.append(f"{path}: above {schema['maximum']}")
    if isinstance(value, dict):
        for key in schema.get("required", []):
            if key not in value:
                found.append(f"{path}: lacks {key}")
        for key, needs in schema.get("dependentRequired", {}).items():
            if key in value and any(need not in value for need in needs):
                found.append(f"{path}: {key} needs {needs}")
        properties = schema.get("properties", {})
        for key, item in value.items():
            if key in properties:
                found += problems(item, properties[key], root, f"{path}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{path}: unknown {key}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{path}: {len(value)} items")
        for i, item in enumerate(value):
            found += problems(item, schema.get("items", {}), root, f"{path}[{i}]")
    if "oneOf" in schema:
        n = sum(not problems(value, one, root, path) for one in schema["oneOf"])
        if n != 1:
            found.append(f"{path}: {n} of the alternatives fit")
    if "not" in schema and not problems(value, schema["not"], root, path):
        found.append(f"{path}: is what it must not be")
    return found


class Schema(unittest.TestCase):
    def setUp(self):
        with open(SCHEMA, encoding="utf-8") as file:
            self.schema = json.load(file)

    def check(self, value):
        try:
            import jsonschema
        except ImportError:
            return problems(value, self.schema, self.schema)
        jsonschema.Draft202012Validator.check_schema(self.schema)
        validator = jsonschema.Draft202012Validator(self.schema)
        ours = problems(value, self.schema, self.schema)
        theirs = list(validator.iter_errors(value))
        self.assertEqual(bool(ours), bool(theirs), (value, ours, theirs))
        return ours

    def test_examples(self):
        paths = sorted(glob.glob(os.path.join(EXAMPLES, "*.json")))
        self.assertGreaterEqual(len(paths), 6)
        for path in paths:
            with open(path, encoding="utf-8") as file:
                self.assertEqual(self.check(json.load(file)), [], path)

    def test_what_is_wrong(self):
        for text in (
            '{"mash": {}}', '{"mesh": {"hosts": 1}}', '{"link": {"rate": "8"}}',
            '{"link": {"latency": 5}}', '{"cables": []}', '{"mesh": {}, "hosts": [{"name": "a"}]}',
            '{"hosts": [{"name": "a.b"}]}', '{"strict": {"second_open": "crash"}}',
            '{"faults": [{"kind": "melt"}]}', '{"faults": [{"kind": "drop"}]}',
            '{"faults": [{"kind": "drop", "message": 1, "probability": 0.5}]}',
            '{"faults": [{"kind": "drop", "message": 1, "bit": 3}]}',
            '{"faults": {"seed": 3}}', '{"limits": {"held": {"qp": -1}}}',
        ):
            self.assertNotEqual(self.check(json.loads(text)), [], text)

    def test_what_is_right(self):
        for text in (
            "{}", '{"faults": []}', '{"faults": {"seed": 3, "list": [{"kind": "poll"}]}}',
            '{"faults": [{"kind": "unplug", "device": "h0.en2", "at": "2s", "for": "1s"}]}',
            '{"personality": "roce", "switched": true, "idle_death": "23min"}',
        ):
            self.assertEqual(self.check(json.loads(text)), [], text)


if __name__ == "__main__":
    harness.main()
