"""`fl.Weights`, callbacks and the sign of life, with plain arrays against a client in Python; and who is sent to which adapter."""

import re
import struct
import unittest
from unittest import mock

import fl
from fake_client import TIMEOUT_S, FakeClient

# A model that copies on both ways, with an attribute for each array. `{body}` follows.
SCRIPT = """
import array, sys, time
import fl

class Model:
    scale, mean, steps = array.array("f", [1, 2]), array.array("f", [5]), array.array("q", [7])

def get():
    return {"scale": Model.scale[:], "mean": Model.mean[:], "steps": Model.steps[:]}

def set(arrays):
    for name, value in arrays.items():
        setattr(Model, name, value[:])

"""
ROLES = 'roles={"scale": "trained", "mean": "buffer", "steps": "counter"}'
TRAIN = """
weights = fl.Weights(get, set, {roles})
for job in fl.rounds(weights):
    with job:
        {body}
        Model.scale[0] += 1
        Model.steps[0] += 1
        job.done(examples=4, loss=1)
"""


def script(body="pass", roles=ROLES, before=""):
    return SCRIPT + before + TRAIN.format(body=body, roles=roles)


class Model:
    def start(self, client, number=1, **fields):
        client.weights(
            {"scale": struct.pack("<2f", 10, 20), "mean": struct.pack("<f", 3), "steps": struct.pack("<q", 70)}
        )
        client.fit(number, **fields)

    def refused(self, text, source):
        with FakeClient(source) as client:
            self.assertIsNone(client.hear())
            client.process.wait(TIMEOUT_S)
            self.assertIn(text, client.stderr())


class AnyModel(Model, unittest.TestCase):
    def test_two_functions_are_a_model_and_roles_are_its_kinds(self):
        with FakeClient(script()) as client:
            hello = client.join()
            kinds = {tensor["name"]: tensor["kind"] for tensor in hello["tensors"]}
            self.assertEqual(kinds, {"scale": "parameter", "mean": "buffer", "steps": "counter"})
            self.start(client)
            client.hear("fitted")
            result = client.result()
            self.assertEqual(struct.unpack("<2f", result["scale"]), (11, 20))
            self.assertEqual(struct.unpack("<q", result["steps"]), (71,))

    def test_a_function_of_the_name_gives_roles_and_none_is_the_default(self):
        with FakeClient(script(roles='lambda name: "local" if name == "mean" else None')) as client:
            kinds = {tensor["name"]: tensor["kind"] for tensor in client.join()["tensors"]}
            self.assertEqual(kinds, {"scale": None, "mean": "local", "steps": None})

    def test_what_is_wrong_is_named(self):
        self.refused("`set` of fl.Weights is a function, not a NoneType", script(before="set = None\n"))
        self.refused(
            "`get` of fl.Weights returns a dict of arrays by name, not a list", script(before="get = lambda: [1]\n")
        )
        self.refused("`roles` says 'average' for `mean`", script(roles='roles={"mean": "average"}'))
        self.refused("`roles` says 'buffer' for `moan`", script(roles='roles={"moan": "buffer"}'))

    def test_a_set_that_leaves_a_name_out_is_refused_before_the_first_round(self):
        ignores = "def set(arrays):\n    Model.scale, Model.steps = arrays['scale'], arrays['steps']\n"
        self.refused("`set` of fl.Weights left out `mean`", script(before=ignores))
        self.refused("is declared global or nonlocal", script(before="def set(arrays):\n    scale = arrays['scale']\n"))

    def test_a_set_that_fails_later_fails_the_round(self):
        later = "place = set\ndef set(arrays):\n    if arrays['scale'][0] != 10:\n        place(arrays)\n"
        with FakeClient(script(before=later)) as client:
            client.join()
            self.start(client)
            self.assertIn("`set` of fl.Weights left out `scale`", client.hear("failed")["message"])

    def test_a_get_with_other_names_than_before_fails_the_round(self):
        with FakeClient(script("get = weights.get; weights.get = lambda: {'other': Model.mean}")) as client:
            client.join()
            self.start(client)
            message = client.hear("failed")["message"]
            self.assertIn("`get` of fl.Weights returned other names, types or shapes than before: `mean`", message)

    def test_a_second_model_in_the_loop_of_the_first_is_refused(self):
        body = "next(fl.rounds(fl.Weights(get, set)))"
        with FakeClient(script(body)) as client:
            client.join()
            self.start(client)
            self.assertIn("has one loop over `fl.rounds`; this is a second model", client.hear("failed")["message"])
            self.start(client, 2)
            self.assertIn("second model", client.hear("failed")["message"], "the first one goes on")

    def test_an_evaluation_is_given_the_subject(self):
        evaluation = '@fl.evaluate\ndef _(model):\n    return {"examples": 1, "loss": model.scale[0]}\n'
        with FakeClient(script(before=evaluation, roles="None, lambda: Model")) as client:
            client.join()
            client.weights({"scale": struct.pack("<2f", 8, 9), "mean": bytes(4), "steps": bytes(8)})
            client.say(type="evaluate", round=1, weights="model.safetensors")
            self.assertEqual(client.hear("evaluated")["loss"], 8)


class Loops(Model, unittest.TestCase):
    def test_a_plain_loop_reports_progress_and_its_mean_loss_and_stops(self):
        loop = "progress = job.callback()\n        while not progress.step(progress.steps % 3): time.sleep(0.01)"
        with FakeClient(script(loop)) as client:
            client.join()
            self.start(client)
            self.assertEqual(client.hear("progress")["done"], 1)
            client.say(type="stop")
            self.assertEqual(client.hear("failed")["message"], "stopped")
        mean = "progress = job.callback()\n        for loss in (1, 2, 6): progress.step(loss)\n        sys.stderr.write(f'<{progress.loss}>')"
        with FakeClient(script(mean)) as client:
            client.join()
            self.start(client)
            client.hear("fitted")
            self.assertIn("<3.0>", client.stderr())

    def test_frameworks_stop_after_the_step_in_which_the_answer_is_no_longer_wanted(self):
        job = fl.Job(None, {"round": 1, "rounds": 1, "seed": 0}, fl.Train())
        model, trainer, control = (
            mock.Mock(stop_training=False),
            mock.Mock(should_stop=False, max_steps=-1),
            mock.Mock(),
        )
        trainer.num_training_batches, trainer.max_epochs, trainer.tloss = 5, 2, {"box": 1.0, "cls": 2.0}
        trainer.train_loader, trainer.epochs, trainer.stop, control.should_training_stop = range(5), 2, False, False
        for stops in (False, True):
            job.stopped = stops
            keras, lightning, face, yolo = (job.callback() for _ in range(4))
            keras.set_model(model)
            keras.set_params({"steps": 5, "epochs": 2})
            keras.on_epoch_begin(0, logs=None)
            keras.on_train_batch_end(0, logs={"loss": 0.5})
            lightning.setup(trainer, None, stage="fit")
            lightning.on_train_batch_end(trainer, None, {"loss": 0.25}, None, 0)
            face.on_step_end(None, mock.Mock(max_steps=9), control)
            face.on_log(None, None, control, logs={"loss": 0.125})
            yolo(trainer)
            self.assertEqual((keras.loss, lightning.loss, face.loss, yolo.loss), (0.5, 0.25, 0.125, 3))
            stopped = (model.stop_training, trainer.should_stop, control.should_training_stop, trainer.stop)
            self.assertEqual(stopped, (stops,) * 4)

    def test_a_callback_that_is_never_called_is_named(self):
        with FakeClient(script("job.callback()")) as client:
            client.join()
            self.start(client)
            client.hear("fitted")
            self.assertIn("round 1: job.callback() was never called", client.stderr())
        with FakeClient(script("job.callback().loss")) as client:
            client.join()
            self.start(client)
            self.assertIn("job.callback() was never given a loss", client.hear("failed")["message"])

    def test_a_process_that_computes_is_alive_without_a_report_and_one_that_waits_is_not(self):
        computes = "sys.stdin.close()\n        until = time.process_time() + 2.5\n        while time.process_time() < until: pass"
        with FakeClient(script(computes)) as client:
            client.join()
            self.start(client)
            self.assertEqual(client.hear("progress", "fitted"), {"type": "progress", "done": 0})
            client.hear("fitted")
        waits = "time.sleep(4)"
        with FakeClient(script(waits)) as client:
            client.join()
            self.start(client)
            if client.hear("progress", "fitted")["type"] == "progress":  # of what the start of the process used
                client.hear("fitted", "failed")

    def test_a_process_that_waits_for_its_workers_is_alive(self):
        workers = "import subprocess\n        subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 3: pass'])"
        with FakeClient(script(workers)) as client:
            client.join()
            self.start(client)
            heard = [client.hear("progress", "fitted")["type"] for _ in range(2)]
            self.assertEqual(heard, ["progress", "progress"])


class Hints(unittest.TestCase):
    def test_an_object_of_a_known_framework_is_sent_to_its_adapter(self):
        for module, use in (
            ("keras.src.models.sequential", "fl.keras(model)"),
            ("flax.nnx.module", "fl.tree(model)"),
            ("equinox._module", "fl.tree(model)"),
            ("lightning.pytorch.trainer.trainer", "fl.lightning(module"),
            ("transformers.trainer", "fl.HuggingFaceCallback(trainer).run()"),
            ("fastai.learner", "learn.model"),
            ("sklearn.linear_model._logistic", "examples/scikit"),
            ("sklearn.ensemble._forest", "nothing to average"),
            ("xgboost.sklearn", "nothing to average"),
            ("lightgbm.basic", "nothing to average"),
            ("mlx.nn.layers", "fl.Weights(get, set)"),
            ("kerasish", "fl.Weights(get, set)"),
        ):
            stranger = type("Model", (), {"__module__": module})()
            with self.assertRaisesRegex(TypeError, re.escape(use)):
                next(fl.rounds(stranger))

        class Detector:
            task_map = {}
            state_dict = load_state_dict = dict

        with self.assertRaisesRegex(TypeError, re.escape("fl.yolo(model, data=..)")):
            next(fl.rounds(Detector()))
        with self.assertRaisesRegex(TypeError, re.escape("a nested dict goes through fl.rounds(fl.tree(tree))")):
            next(fl.rounds({"params": {"w": 1}}))

    def test_each_adapter_refuses_what_is_not_its_own(self):
        with self.assertRaisesRegex(TypeError, "fl.yolo takes an Ultralytics model"):
            fl.yolo({"w": 1}, data="data.yaml")
        with self.assertRaisesRegex(TypeError, "fl.lightning takes a LightningModule, not a dict"):
            fl.lightning({"w": 1}, lambda job: None)


if __name__ == "__main__":
    unittest.main()
