"""The examples: what a federation changes in a script, and the trainer of the shell against a client in Python."""

import difflib
import re
import shutil
import struct
import unittest

from fake_client import PACKAGE, TRAIN, FakeClient

EXAMPLES = PACKAGE.parent / "examples"


@unittest.skipUnless(EXAMPLES.is_dir(), "the examples are not beside the package")
class Examples(unittest.TestCase):
    def test_a_federated_script_differs_from_its_plain_one_in_at_most_20_lines(self):
        for name in ("pytorch", "huggingface-lora", "scikit"):
            plain, federated = ((EXAMPLES / name / file).read_text().splitlines() for file in ("plain.py", "train.py"))
            changes = [line for line in difflib.ndiff(plain, federated) if line.startswith(("+", "-"))]
            self.assertLessEqual(len(changes), 20, name)
            self.assertIn("+ import fl", changes, name)

    def test_the_page_of_other_frameworks_shows_lines_of_scripts_of_at_most_40(self):
        page = (PACKAGE.parent / "docs" / "guide" / "other-frameworks.md").read_text()
        sections = page.partition("## Any other framework")[0].split("\n## ")
        shown = set()
        for section in sections:
            for name in re.findall(r"examples/frameworks/(\w+\.py)\)", section)[:1]:
                script = (EXAMPLES / "frameworks" / name).read_text()
                self.assertLessEqual(len(script.splitlines()), 40, name)
                shown.add(name)
                blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
                self.assertTrue(blocks, name)
                for block in blocks:
                    self.assertIn(block, script, name)
        self.assertEqual(shown, {path.name for path in (EXAMPLES / "frameworks").glob("*.py")})

    @unittest.skipUnless(shutil.which("awk") and shutil.which("od"), "there is no awk or no od")
    def test_the_shell_trains_and_evaluates_a_line(self):
        points = "".join(f"{x / 10} {3 * x / 10 - 2}\n" for x in range(-10, 10))
        with FakeClient(points, command=[str(EXAMPLES / "shell" / "train.sh"), "{script}"]) as client:
            hello = client.join()
            self.assertEqual(hello["tensors"], [{"name": "line", "dtype": "F32", "shape": [2]}])
            self.assertEqual((client.work / hello["weights"]).read_bytes()[-8:], bytes(8))
            for b, w in ((0, 0), (-1.9, 2.8), (1e-3, -1e6), (-2, 3)):
                client.weights({"line": struct.pack("<2f", b, w)})
                client.fit(train={**TRAIN, "epochs": 1, "learning_rate": 0.0})
                answer = client.hear("fitted")
                self.assertEqual(
                    struct.unpack("<2f", client.result()["line"]), struct.unpack("<2f", struct.pack("<2f", b, w))
                )
            self.assertEqual(answer["examples"], 20)
            self.assertAlmostEqual(answer["loss"], 0)
            client.weights({"line": struct.pack("<2f", 0, 0)})
            client.fit(train={**TRAIN, "epochs": 300, "learning_rate": 0.3})
            client.hear("fitted")
            b, w = struct.unpack("<2f", client.result()["line"])
            self.assertAlmostEqual(b, -2, places=4)
            self.assertAlmostEqual(w, 3, places=4)
            client.say(type="evaluate", round=1, weights="model.safetensors")
            told = client.hear("evaluated")
            self.assertEqual((told["examples"], told["metrics"]), (20, {"slope": 0}))
            client.say(type="bye")
            self.assertEqual(client.end(), 0)


if __name__ == "__main__":
    unittest.main()
