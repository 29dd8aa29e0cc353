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


if __name__ == "__main__":
    unittest.main()
