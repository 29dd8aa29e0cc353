"""`transformers.Trainer` in a federation. Skipped without PyTorch and transformers."""

import importlib.util
import struct
import unittest

from fake_client import TRAIN, FakeClient

SCRIPT = """
import torch, transformers
import fl

torch.set_num_threads(1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
    def forward(self, x, labels=None):
        y = self.linear(x).squeeze(1)
        return {"loss": (y - labels).square().mean(), "logits": y}

def figures(predicted):
    return {"mae": abs(predicted.predictions - predicted.label_ids).mean()}

data = [{"x": torch.tensor([i / 10, 1.0]), "labels": torch.tensor(i / 5)} for i in range(10)]
arguments = transformers.TrainingArguments(
    "out", per_device_train_batch_size=99, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True
)
trainer = transformers.Trainer(
    Net(), arguments, train_dataset=data, eval_dataset=data[:4], compute_metrics=figures
)
fl.HuggingFaceCallback(trainer).run()
"""
# What the callback uses of `transformers.Trainer`, with steps of 32 examples.
STAND_IN = """
import array, types
import fl

rows = list(range(320))
weights = array.array("f", [0, 0, 0])

class Stream:
    def __iter__(self):
        return iter(rows)

class Trainer:
    def __init__(self, train, evaluation, figures):
        self.model, self.train_dataset, self.eval_dataset, self.figures = {"w": weights}, train, evaluation, figures
        self.args = types.SimpleNamespace(train_batch_size=32, max_steps=7)
        self.state = types.SimpleNamespace(global_step=0, max_steps=0)
    def add_callback(self, callback):
        self.callback = callback
    def train(self):
        weights[0] += 1
        steps = self.args.max_steps if self.args.max_steps > 0 else 10
        for self.state.global_step in range(1, steps + 1):
            self.callback.on_step_end(self.args, self.state, types.SimpleNamespace(should_training_stop=False))
        return types.SimpleNamespace(training_loss=1.0)
    def evaluate(self):
        return {f"eval_{name}": value for name, value in self.figures.items()} | {"epoch": 1.0}

fl.HuggingFaceCallback(Trainer({train}, {evaluation}, {figures})).run()
"""
NEEDED = ("torch", "transformers", "accelerate")


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), "transformers, accelerate or PyTorch is not installed")
class HuggingFace(unittest.TestCase):
    def test_a_trainer_trains_every_round_from_its_weights_evaluates_and_stops(self):
        with FakeClient(SCRIPT) as client:
            self.assertTrue(client.join()["evaluates"])
            client.weights({"linear.weight": struct.pack("<2f", 0, 0), "linear.bias": struct.pack("<f", 0)})
            train = {**TRAIN, "epochs": None, "steps": 6, "batch_size": 5, "learning_rate": 0.1}
            results = []
            for number in (1, 2):
                client.fit(number, train=train)
                self.assertEqual(client.hear("progress")["total"], 6)
                answer = client.hear("fitted")
                self.assertEqual(answer["examples"], 10)
                self.assertGreater(answer["loss"], 0)
                results.append(client.result())
            client.fit(2, train={**TRAIN, "batch_size": 4})
            self.assertEqual(client.hear("progress")["total"], 3, "10 examples in batches of 4")
            client.hear("fitted")
            self.assertEqual(results[0], results[1], "the second round began from other weights or with other steps")
            self.assertNotEqual(results[0]["linear.weight"], struct.pack("<2f", 0, 0))
            client.fit(3, train={**train, "steps": 10**9, "learning_rate": 0.5})
            client.hear("progress")
            client.say(type="stop")
            self.assertEqual(client.hear("failed")["message"], "stopped")
            client.say(type="evaluate", round=2, weights="model.safetensors")
            told = client.hear("evaluated")
            self.assertEqual(told["examples"], 4)
            self.assertAlmostEqual(told["loss"], sum((i / 5) ** 2 for i in range(4)) / 4, places=6)
            self.assertAlmostEqual(told["metrics"]["mae"], 0.3, places=6)
            self.assertEqual(set(told["metrics"]), {"mae"})
            client.say(type="bye")
            self.assertEqual(client.end(), 0)

    def test_a_dict_of_evaluation_sets_and_a_streamed_training_set(self):
        streamed = """
class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows
    def __iter__(self):
        return iter(self.rows)

sets = {"a": data[:4], "a_b": Stream(data[4:6])}
"""
        script = SCRIPT.replace("arguments =", streamed + "arguments =").replace(
            "eval_dataset=data[:4]", "eval_dataset=sets"
        )
        script = script.replace("train_dataset=data", "train_dataset=Stream(data)").replace(
            "use_cpu=True", "use_cpu=True, max_steps=5"
        )
        with FakeClient(script) as client:
            client.join()
            client.weights({"linear.weight": struct.pack("<2f", 0, 0), "linear.bias": struct.pack("<f", 0)})
            client.fit(1, train={**TRAIN, "epochs": None, "steps": 3, "batch_size": 2})
            self.assertEqual(client.hear("fitted")["examples"], 6)
            client.weights({"linear.weight": struct.pack("<2f", 0, 0), "linear.bias": struct.pack("<f", 0)})
            client.say(type="evaluate", round=1, weights="model.safetensors")
            told = client.hear("evaluated")
            self.assertEqual(told["examples"], 6)
            self.assertAlmostEqual(told["loss"], sum((i / 5) ** 2 for i in range(6)) / 6, places=5)
            self.assertAlmostEqual(told["metrics"]["mae"], sum(i / 5 for i in range(6)) / 6, places=5)
            self.assertAlmostEqual(told["metrics"]["a_b_mae"]["value"], 0.9, places=5)
            self.assertEqual(told["metrics"]["a_b_mae"]["weight"], 2)


class Sets(unittest.TestCase):
    def answers(self, train, evaluation, figures, **settings):
        values = {"{train}": train, "{evaluation}": evaluation, "{figures}": repr(figures)}
        script = STAND_IN
        for name, value in values.items():
            script = script.replace(name, value)
        with FakeClient(script) as client:
            hello = client.join()
            client.weights({"w": bytes(12)})
            client.fit(1, train={**TRAIN, **settings})
            fitted = client.hear("fitted")
            if hello["evaluates"]:
                client.say(type="evaluate", round=1, weights="model.safetensors")
                return fitted["examples"], client.hear("evaluated", "failed")
            return fitted["examples"], None

    def test_examples_of_training_sets_of_every_form(self):
        for train, settings, examples in (
            ("rows", {}, 320),
            ('{"a": rows[:200], "b": {"c": rows[:20], "d": rows[:7]}}', {}, 227),
            ("Stream()", {}, 7 * 32),  # the script's own `max_steps`
            ("Stream()", {"epochs": None, "steps": 3}, 3 * 32),
            ('{"a": rows, "b": Stream()}', {"epochs": None, "steps": 3}, 3 * 32),
            ("None", {}, 7 * 32),
        ):
            with self.subTest(train=train, settings=settings):
                self.assertEqual(self.answers(train, "{}", {}, **settings), (examples, None))

    def test_figures_of_evaluation_sets_of_every_form(self):
        one = {"loss": 2.0, "runtime": 0.1, "cosine_accuracy@1": 0.5, "steps_per_second": 3}
        metrics = {"cosine_accuracy@1": 0.5}
        for evaluation, figures, examples in (
            ("rows[:100]", one, 100),
            ("Stream()", {**one, "runtime": 0.25, "samples_per_second": 88.0}, 22),
            ("Stream()", one, 320),  # counted
        ):
            with self.subTest(evaluation=evaluation):
                expected = {"type": "evaluated", "examples": examples, "loss": 2.0, "metrics": metrics}
                self.assertEqual(self.answers("rows", evaluation, figures)[1], expected)
        figures = {"a_loss": 1.0, "a_runtime": 1, "a_accuracy": 1.0, "a_f1": 0.5, "a_b_loss": 2.0, "a_b_accuracy": 0.5}
        told = self.answers("rows", '{"a": rows[:60], "a_b": rows[:40]}', figures)[1]
        self.assertEqual((told["examples"], told["correct"]), (100, 80))
        self.assertAlmostEqual(told["loss"], 1.4)
        pair = lambda value, weight: {"value": value, "weight": weight}  # noqa: E731
        expected = {"a_loss": pair(1, 60), "a_accuracy": pair(1, 60), "a_f1": pair(0.5, 60), "a_b_loss": pair(2, 40)}
        self.assertEqual(told["metrics"], {**expected, "a_b_accuracy": pair(0.5, 40)})

    def test_an_evaluation_without_labels_says_what_is_missing(self):
        told = self.answers("rows", "rows", {"runtime": 1})[1]
        self.assertIn("returned no `eval_loss`; the evaluation sets need labels", told["message"])


if __name__ == "__main__":
    unittest.main()
