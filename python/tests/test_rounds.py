"""The loop over `fl.rounds`, with a model of plain arrays, against a client in Python."""

import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
import textwrap
import unittest

import fl
from fake_client import PACKAGE, TIMEOUT_S, TRAIN, FakeClient


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


# Adds 1 to each value in each round. `{body}` begins with the loop.
MODEL = """
import array, sys
import fl
model = {"w": array.array("f", [1, 2, 3]), "head": array.array("f", [7])}
"""
PLAIN = (
    MODEL
    + """
for job in fl.rounds(model):
    for _ in job.batches(range(4)):
        pass
    model["w"][:] = array.array("f", [value + 1 for value in model["w"]])
    job.done(examples=5, loss=0.5, f1=0.25, mae=(2.0, 3))
print("after the loop", file=sys.stderr)
"""
)


class Rounds(unittest.TestCase):
    def round(self, client, number, values, **fields):
        client.weights({"w": floats(*values), **({} if len(client.traveling) == 1 else {"head": floats(7)})})
        client.fit(number, **fields)

    def test_a_round_trains_from_the_weights_of_the_file(self):
        with FakeClient(PLAIN) as client:
            hello = client.join()
            self.assertEqual((hello["version"], hello["evaluates"]), (1, False))
            self.assertEqual(hello["tensors"][0], {"name": "w", "dtype": "F32", "shape": [3], "kind": None})
            first = (client.work / hello["weights"]).read_bytes()
            self.assertTrue(first.endswith(floats(7, 1, 2, 3)))
            self.round(client, 1, [10, 20, 30])
            answer = client.hear("fitted")
            metrics = {"f1": 0.25, "mae": {"value": 2.0, "weight": 3.0}}
            fields = {"type": "fitted", "examples": 5, "loss": 0.5, "metrics": metrics, "unchanged_ok": None}
            self.assertEqual(answer, fields)
            self.assertEqual(client.result(), {"w": floats(11, 21, 31), "head": floats(7)})

    def test_squared_gradients_are_written_if_they_are_asked_for(self):
        script = (
            MODEL
            + """
for job in fl.rounds(model):
    squares = {"w": array.array("f", [job.round, 2, 3])}
    job.done(examples=5, loss=job.wants_squared_gradients, squared_gradients=squares if job.round != 3 else None)
"""
        )
        file = "squared_gradients.safetensors"
        with FakeClient(script) as client:
            client.join({"head": "frozen"})
            for number, asked in enumerate((None, file, file, file), 1):
                self.round(client, number, [1, 2, 3], squared_gradients=asked)
                answer = client.hear("fitted")
                wanted, given = asked is not None, asked is not None and number != 3
                self.assertEqual((answer["loss"], answer.get("squared_gradients", False)), (float(wanted), given))
                self.assertEqual((client.work / file).exists(), wanted)
                if given:
                    slots = fl.read_safetensors(client.work / file)
                    self.assertEqual({n: bytes(s.data) for n, s in slots.items()}, {"w": floats(number, 2, 3)})

    def test_the_file_of_the_result_is_reused(self):
        with FakeClient(PLAIN) as client:
            client.join()
            places = []
            for number in (1, 2, 3):
                self.round(client, number, [number, 0, 0])
                client.hear("fitted")
                places.append((client.work / "update.safetensors").stat().st_ino)
                self.assertEqual(client.result()["w"], floats(number + 1, 1, 1))
            self.assertEqual(len(set(places)), 1)

    def test_the_end_of_the_pipe_or_bye_ends_the_loop_and_the_script_goes_on(self):
        for bye in (False, True):
            with self.subTest(bye=bye), FakeClient(PLAIN) as client:
                client.join()
                if bye:
                    client.say(type="bye")
                    client.hear("bye")
                self.assertEqual(client.end(), 0)
                self.assertIn("after the loop", client.stderr())

    def test_unknown_messages_and_a_stop_that_crossed_an_answer_are_ignored(self):
        with FakeClient(PLAIN) as client:
            client.join()
            client.say(type="stop")
            client.say(type="news", of="a later version")
            self.round(client, 1, [1, 1, 1])
            client.hear("fitted")

    def test_local_and_base_tensors_are_loaded_and_frozen_ones_are_not_returned(self):
        with FakeClient(PLAIN) as client:
            client.tensors = [
                {"name": "w", "dtype": "F32", "shape": [3]},
                {"name": "head", "dtype": "F32", "shape": [1]},
            ]
            client.weights({"head": floats(99)}, "aside.safetensors")
            aside = str(client.work / "aside.safetensors")
            client.join({"head": "local"}, local=aside)
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            self.assertEqual(client.result(), {"w": floats(1, 1, 1), "head": floats(99)})
        with FakeClient(PLAIN) as client:
            client.join({"head": "frozen"})
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            self.assertEqual(client.result(), {"w": floats(1, 1, 1)})

    def test_of_the_file_of_a_base_only_the_frozen_tensors_are_loaded(self):
        script = MODEL + "\nfor job in fl.rounds(model):\n    job.done(examples=1, loss=model['head'][0])\n"
        with FakeClient(script) as client:
            client.tensors = [
                {"name": "w", "dtype": "F32", "shape": [3]},
                {"name": "head", "dtype": "F32", "shape": [1]},
                {"name": "of another model", "dtype": "F32", "shape": [2]},
            ]
            values = {"w": floats(9, 9, 9), "head": floats(99), "of another model": floats(7, 7)}
            client.weights(values, "base.safetensors")
            client.join({"head": "frozen"}, base=str(client.work / "base.safetensors"))
            self.round(client, 1, [0, 0, 0])
            self.assertEqual(client.hear("fitted")["loss"], 99)
            self.assertEqual(client.result(), {"w": floats(0, 0, 0)})

    def test_a_job_has_what_the_run_says(self):
        script = (
            MODEL
            + """
for job in fl.rounds(model, weights=False):
    told = [job.round, job.rounds, job.client, job.extra, job.train.learning_rate, job.train.batch_size]
    assert told == [2, 3, "camera-07", {"augment": True}, 0.5, 8], told
    assert (job.seed, job.seed64) == (2**32 - 1, 2**64 - 1), "what numpy takes, and all of it"
    assert 90 < job.left <= 100, job.left
    batches = list(job.batches("abc"))
    assert batches == list("abcabca"), batches
    job.done(examples=1, loss=0)
"""
        )
        train = {**TRAIN, "learning_rate": 0.5, "batch_size": 8, "epochs": None, "steps": 7, "of_a_later_version": 1}
        with FakeClient(script) as client:
            self.assertIsNone(client.join()["weights"])
            client.weights({"w": floats(1, 2, 3), "head": floats(7)})
            client.fit(2, train=train, extra={"augment": True})
            self.assertEqual(client.hear("progress"), {"type": "progress", "done": 0, "total": 7})
            client.hear("fitted")

    def test_without_steps_the_batches_are_the_epochs(self):
        script = (
            MODEL
            + """
for job in fl.rounds(model):
    assert list(job.batches(iter_twice)) == [1, 2, 1, 2]
    job.done(examples=1, loss=0)
""".replace("iter_twice", "[1, 2]")
        )
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0], train={**TRAIN, "epochs": 2}, deadline_s=None)
            self.assertEqual(client.hear("progress")["total"], 4)
            client.hear("fitted")

    def test_batches_have_the_length_and_the_attributes_of_the_loader(self):
        script = (
            MODEL
            + """
class Loader(list):
    dataset = "abc"

for job in fl.rounds(model):
    batches = job.batches(Loader([1, 2]))
    assert (len(batches), batches.dataset) == (2 * job.round, "abc")
    assert list(enumerate(batches)) == list(enumerate([1, 2] * job.round))
    assert not hasattr(batches, "other")
    job.done(examples=1, loss=0)
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            self.round(client, 2, [0, 0, 0], train={**TRAIN, "epochs": None, "steps": 4})
            client.hear("fitted")

    def test_a_loader_without_a_length_yields_its_batches(self):
        script = (
            MODEL
            + """
class Stream:  # as a DataLoader over an IterableDataset
    def __len__(self):
        raise TypeError("object of type 'Stream' has no len()")
    def __iter__(self):
        return iter("abc")

for job in fl.rounds(model):
    batches = job.batches(Stream())
    assert "".join(batches) == ("abc" if job.round == 1 else "abca")
    assert "".join(job.progress(Stream())) == "abc"
    try:
        job.done(examples=1, loss=len(batches))
    except TypeError as error:
        job.fail(str(error))
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            self.assertEqual(client.hear("progress"), {"type": "progress", "done": 0, "total": 0})
            self.assertEqual(client.hear("failed")["message"], "object of type 'Stream' has no len()")
            self.round(client, 2, [0, 0, 0], train={**TRAIN, "epochs": None, "steps": 4})
            self.assertEqual(client.hear("fitted")["loss"], 4)

    def test_a_sampler_that_shuffles_by_its_epoch_has_another_one_in_each_pass(self):
        script = (
            MODEL
            + """
class Sampler:
    epochs = []
    def set_epoch(self, epoch):
        self.epochs.append(epoch)

class Loader(list):
    def __init__(self, **samplers):
        super().__init__([1, 2])
        vars(self).update(samplers)

for job in fl.rounds(model):
    list(job.batches(Loader(sampler=Sampler())))
    list(job.batches(Loader(batch_sampler=Loader(sampler=Sampler()))))
    job.done(examples=1, loss=len(set(Sampler.epochs)), least=min(Sampler.epochs), most=max(Sampler.epochs))
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0], seed=5, train={**TRAIN, "epochs": 3})
            self.assertEqual(client.hear("fitted")["loss"], 3)
            self.round(client, 2, [0, 0, 0], train={**TRAIN, "epochs": 3})
            answer = client.hear("fitted")
            self.assertEqual(answer["loss"], 6)
            self.assertTrue(0 <= answer["metrics"]["least"] <= answer["metrics"]["most"] < 2**31)

    def test_an_evaluation_without_a_loss_says_what_to_return(self):
        script = PLAIN.replace("for job in", "@fl.evaluate\ndef _(model):\n    print('nothing')\n\nfor job in")
        with FakeClient(script) as client:
            client.join()
            client.weights({"w": floats(4, 5, 6), "head": floats(7)})
            client.say(type="evaluate", round=1, weights="model.safetensors")
            why = "a function marked by fl.evaluate returns a dict with `examples` and `loss`, not None"
            self.assertIn(why, client.hear("failed")["message"])

    def test_evaluation_counts_what_is_correct(self):
        script = (
            MODEL
            + """
@fl.evaluate
def _(model):
    assert list(model["w"]) == [4, 5, 6]
    return {"examples": 200, "loss": 0.25, "accuracy": 0.615, "f1": 0.5}
for job in fl.rounds(model):
    pass
"""
        )
        with FakeClient(script) as client:
            self.assertTrue(client.join()["evaluates"])
            client.weights({"w": floats(4, 5, 6), "head": floats(7)})
            client.say(type="evaluate", round=1, weights="model.safetensors")
            told = {"examples": 200, "loss": 0.25, "correct": 123, "metrics": {"f1": 0.5}}
            self.assertEqual(client.hear("evaluated"), {"type": "evaluated", **told})

    def test_an_evaluation_that_raises_fails_and_the_loop_goes_on(self):
        script = PLAIN.replace("for job in", "@fl.evaluate\ndef _(model):\n    return 1 / 0\n\nfor job in")
        with FakeClient(script) as client:
            client.join()
            client.weights({"w": floats(4, 5, 6), "head": floats(7)})
            client.say(type="evaluate", round=1, weights="model.safetensors")
            self.assertRegex(client.hear("failed")["message"], r"^ZeroDivisionError: division by zero \(train.py:\d+\)$")
            self.round(client, 1, [1, 1, 1])
            client.hear("fitted")


class Faults(unittest.TestCase):
    round = Rounds.round

    FAULTY = (
        MODEL
        + """
def train(job):
    model["w"][0] += 1
    model["head"][0] += 1
    if job.round == 1:
        raise ValueError("bad data")

for job in fl.rounds(model):
    with job:
        train(job)
        job.done(examples=5, loss=0.5)
"""
    )

    def test_an_error_inside_with_job_fails_the_round_and_the_next_one_is_trained(self):
        with FakeClient(self.FAULTY) as client:
            client.join({"head": "local"})
            self.round(client, 1, [0, 0, 0])
            self.assertRegex(client.hear("failed")["message"], r"^ValueError: bad data \(train.py:\d+\)$")
            self.round(client, 2, [0, 0, 0])
            client.hear("fitted")
            self.assertEqual(client.result()["w"], floats(1, 0, 0))
            self.assertEqual(client.result()["head"], floats(8), "the local tensor of the failed round counts")

    def test_the_place_of_an_error_is_in_the_script_and_not_in_a_library(self):
        inside = "import json\n" + self.FAULTY.replace('raise ValueError("bad data")', 'json.loads("{")')
        with FakeClient(inside) as client:
            client.join({"head": "local"})
            self.round(client, 1, [0, 0, 0])
            self.assertRegex(client.hear("failed")["message"], r"^JSONDecodeError: .* \(train.py:\d+\)$")
            self.assertEqual(client.stderr().count("Traceback"), 1)

    def test_a_second_loop_says_that_the_run_is_over(self):
        with FakeClient(PLAIN + "next(fl.rounds(model))") as client:
            client.join()
            client.say(type="bye")
            client.hear("bye")
            self.assertEqual(client.end(), 1)
            self.assertIn("RuntimeError: the run is over", client.stderr())

    def test_an_error_elsewhere_is_reported_and_ends_the_script_without_bye(self):
        with FakeClient(self.FAULTY.replace("with job:", "if True:")) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            self.assertIn("ValueError: bad data", client.hear("failed")["message"])
            self.assertIsNone(client.hear())
            self.assertEqual(client.end(), 1)
            self.assertIn("Traceback", client.stderr())

    def test_leaving_the_loop_fails_the_round_and_says_bye(self):
        with FakeClient(MODEL + "for job in fl.rounds(model):\n    break\n") as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            self.assertIn("left the loop", client.hear("failed")["message"])
            client.hear("bye")
            self.assertEqual(client.end(), 0)

    def test_a_round_without_done_fails(self):
        with FakeClient(MODEL + "for job in fl.rounds(model):\n    pass\n") as client:
            client.join()
            for number in (1, 2):
                self.round(client, number, [0, 0, 0])
                self.assertIn("without `job.done()`", client.hear("failed")["message"])

    def test_a_second_done_is_an_error(self):
        script = PLAIN.replace("job.done(", "job.done(examples=5, loss=0.5)\n    job.done(")
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            self.assertEqual(client.end(), 1)
            self.assertIn("round 1 has an answer already", client.stderr())

    def test_a_loss_that_is_no_finite_number_fails_the_round_only(self):
        losses = {
            'float("nan")': "`loss` is nan; the figures of a round must be finite",
            "None": "`loss` is no number, but a NoneType",
            '"low"': "`loss` is no number, but a str",
        }
        for loss, why in losses.items():
            script = PLAIN.replace("loss=0.5", f"loss={loss} if job.round == 1 else 0.5")
            with self.subTest(loss=loss), FakeClient(script) as client:
                client.join()
                self.round(client, 1, [0, 0, 0])
                self.assertEqual(client.hear("failed")["message"], why)
                self.round(client, 2, [0, 0, 0])
                client.hear("fitted")

    def test_names_of_metrics_are_kept_and_what_cannot_be_sent_is_left_out_with_a_warning(self):
        script = (
            MODEL
            + """
GOOD = {"metrics/mAP50-95(B)": 0.5, "cosine_accuracy@1": 0.25, "top 5": 1, "dice_%": 0, "préc": 2, "x" * 64: (3, 2.5)}
BAD = {
    "nan": float("nan"), "much": float("inf"), "text": "high", "nothing": None, "list": [1, 2, 3], "triple": (1, 2, 3),
    "no weight": (1, 0), "nan weight": (1, float("nan")), "": 1, "a\\nb": 1, "\\udc80": 1, "é" * 33: 1, "perplexity": 2,
    "round": 1,
}
@fl.evaluate
def _(model):
    return {**BAD, 7: 1, "examples": 10, **GOOD, "loss": 0.5, "accuracy": 87.5}

for job in fl.rounds(model):
    model["w"][0] += 1
    figures = {**BAD, **GOOD} if job.round == 1 else {f"class_{k}": k for k in range(40)}
    job.done(examples=5, loss=0.5, **figures)
""".replace("\\\\", "\\")
        )
        good = {"metrics/mAP50-95(B)": 0.5, "cosine_accuracy@1": 0.25, "top 5": 1, "dice_%": 0, "préc": 2}
        good["x" * 64] = {"value": 3, "weight": 2.5}
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            self.assertEqual(client.hear("fitted")["metrics"], good)
            said = client.stderr().splitlines()
            self.assertEqual(len([line for line in said if line.endswith("it is left out")]), 14, said)
            self.assertIn("fl: `nan` is nan; the figures of a round must be finite; it is left out", said)
            self.assertIn("fl: `perplexity` is a name of the server; give the metric another one; it is left out", said)
            self.round(client, 2, [0, 0, 0])
            self.assertEqual(client.hear("fitted")["metrics"], {f"class_{k}": k for k in range(32)})
            self.assertIn(
                "fl: `class_39` is one more than the 32 metrics of an answer; it is left out", client.stderr()
            )
            client.say(type="evaluate", round=2, weights="model.safetensors")
            answer = client.hear("evaluated")
            expected = {"type": "evaluated", "examples": 10, "loss": 0.5, "metrics": good, "language": True}
            self.assertEqual(answer, expected)
            self.assertIn("`accuracy` is 87.5; it is a share from 0 to 1, not percent; it is left out", client.stderr())
            self.assertIn("fl: `7` has a name that is not a text", client.stderr())

    def test_more_examples_cannot_be_correct_than_there_are_but_for_rounding(self):
        for figure, correct in (
            ('"correct": 5', 5),
            ('"correct": 6', None),
            ('"accuracy": 1.0000000000000002', 5),
            ('"accuracy": -0.2', None),
            ('"correct": 3, "accuracy": 1', 3),
            ('"accuracy": 0.5', 2.5),
        ):
            script = (
                MODEL
                + f"""
@fl.evaluate
def _(model):
    return {{"loss": 0.5, {figure}, "examples": 5}}
for job in fl.rounds(model):
    pass
"""
            )
            with self.subTest(figure=figure), FakeClient(script) as client:
                client.join()
                client.weights({"w": floats(4, 5, 6), "head": floats(7)})
                client.say(type="evaluate", round=1, weights="model.safetensors")
                self.assertEqual(client.hear("evaluated").get("correct"), correct)

    def test_a_loader_without_batches_fails_the_round_in_place_of_an_endless_loop(self):
        loaders = {"[]": "pass 1", "iter([1, 2])": "pass 2"}
        for loader, where in loaders.items():
            for train in ({"epochs": None, "steps": 5}, {"epochs": 2}):
                script = (
                    MODEL
                    + f"""
for job in fl.rounds(model):
    with job:
        for _ in job.batches({loader}):
            pass
        job.done(examples=1, loss=0)
"""
                )
                with self.subTest(loader=loader, train=train), FakeClient(script) as client:
                    client.join()
                    self.round(client, 1, [0, 0, 0], train={**TRAIN, **train})
                    why = f"ValueError: the loader of job.batches has no batch in {where}; with drop_last,"
                    self.assertIn(why, client.hear("failed")["message"])

    def test_half_a_file_or_other_tensors_fail_the_round_only(self):
        with FakeClient(PLAIN) as client:
            client.join()
            path = client.work / "model.safetensors"
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            whole = path.read_bytes()
            other = whole.replace(b'"w"', b'"v"')
            for content, why in (
                (whole[:-4], "ValueError"),
                (b"", "ValueError"),
                (other, "tensor `v` of the run, F32 [3], is not"),
            ):
                path.write_bytes(content)
                client.fit(2)
                self.assertIn(why, client.hear("failed")["message"])
            path.write_bytes(whole)
            client.fit(3)
            client.hear("fitted")

    def test_stop_ends_the_batches(self):
        endless = (
            MODEL
            + """
for job in fl.rounds(model):
    if job.round == 1:
        for _ in job.progress(iter(int, 1)):
            pass
        print("ended early", file=sys.stderr)
    model["w"][0] += 1
    job.done(examples=5, loss=0.5)
"""
        )
        inside = endless.replace("for job in fl.rounds(model):\n", "for job in fl.rounds(model):\n  with job:\n")
        for script, early in ((endless, True), (inside, False)):
            with self.subTest(early=early), FakeClient(script) as client:
                client.join()
                self.round(client, 1, [0, 0, 0])
                self.assertEqual(client.hear("progress")["done"], 0)
                client.say(type="stop")
                self.assertEqual(client.hear("failed")["message"], "stopped")
                self.assertEqual("ended early" in client.stderr(), early)
                self.round(client, 2, [0, 0, 0])
                client.hear("fitted")
                self.assertEqual(client.result()["w"], floats(1, 0, 0))

    def test_the_end_of_the_pipe_ends_a_training(self):
        script = (
            MODEL
            + """
for job in fl.rounds(model):
    for _ in job.progress(iter(int, 1)):
        pass
    job.done(examples=5, loss=0.5)
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            client.hear("progress")
            self.assertEqual(client.end(), 0)

    def test_a_client_of_another_version_is_refused(self):
        with FakeClient(PLAIN, start=False) as client:
            client.say(type="start", version=0, folder=str(client.work), task="t", device="cpu")
            self.assertEqual(client.end(), 1)
            self.assertIn("not `start` of version 1 or newer", client.stderr())

    def test_a_model_with_another_type_is_refused_by_name(self):
        for value, why in (
            ('memoryview(bytearray(4)).cast("c")', "has type c"),
            (
                "3",
                "is a int, not a tensor or array; a model is a torch.nn.Module, a dict of arrays by name, or an object",
            ),
            ('b"12"', "read-only"),
        ):
            script = MODEL + f'model["counts"] = {value}\nfor job in fl.rounds(model):\n    pass\n'
            with self.subTest(value=value), FakeClient(script) as client:
                self.assertEqual(client.end(), 1)
                self.assertIn("`counts`", client.stderr())
                self.assertIn(why, client.stderr())

    def test_what_is_no_model_is_refused_with_the_kinds_of_models(self):
        values = ("None", "[array.array('f', [1])]", "object()", "dict", "lambda: 0", "model.values()")
        no_arrays = "type('Lists', (), {'state_dict': lambda _: {'coef': [1.0]}, 'load_state_dict': None})()"
        for value in (*values, "{}", no_arrays, "{0: array.array('f', [1])}", "{('a', 'b'): array.array('f', [1])}"):
            script = MODEL + f"for job in fl.rounds({value}):\n    pass\n"
            with self.subTest(value=value), FakeClient(script) as client:
                self.assertEqual(client.end(), 1)
                told = client.stderr().splitlines()[-1]
                self.assertTrue(told.startswith("TypeError: "), told)
                self.assertIn("a torch.nn.Module, a dict of arrays by name, or an object with state_dict()", told)


class Ways(unittest.TestCase):
    """Ways to be started."""

    round = Rounds.round

    def test_a_child_of_the_command_finds_the_pipes(self):
        launcher = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, r'{script}']))"
        with FakeClient(PLAIN, command=[sys.executable, "-c", launcher]) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            self.assertEqual(client.end(), 0)

    def test_programs_that_the_script_starts_do_not_inherit_the_pipes(self):
        probe = "import os; [os.fstat(fd) for fd in (3, 4) if 'pipe' in os.readlink(f'/proc/self/fd/{fd}')]"
        script = PLAIN.replace(
            "    job.done",
            f"""
    import subprocess
    ran = subprocess.run([sys.executable, "-c", {probe!r}], close_fds=False, capture_output=True, text=True)
    assert "FileNotFoundError" in ran.stderr, ran
    job.done""",
        )
        with FakeClient(script) as client:
            client.join()
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")

    # Workers import the script, and compute where the client says. `{pool}` makes one.
    WORKERS = """
import array, concurrent.futures, multiprocessing, subprocess, sys
import fl

{before}
DEVICE = fl.device()

def work(_):
    return [DEVICE, fl.device()]

if __name__ == "__main__":
    model = {{"w": array.array("f", [1, 2, 3])}}
    {pool}
    for job in fl.rounds(model):
        assert answers == [["cuda:3", "cuda:3"]] * 2, answers
        for _ in job.batches(range(4)):
            model["w"][0] += 1
        job.done(examples=5, loss=0.5)
"""

    def workers(self, pool, before="", env=None):
        """A round of a script with workers."""
        with FakeClient(self.WORKERS.format(pool=pool, before=before), start=False, env=env) as client:
            client.say(type="start", version=1, folder=str(client.work), task="test", device="cuda:3")
            client.join()
            self.round(client, 1, [0, 0, 0])
            client.hear("fitted")
            self.assertEqual(client.result(), {"w": floats(4, 0, 0)})
            self.assertEqual(client.end(), 0)

    POOLS = (
        """with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("{method}")) as pool:
        answers = list(pool.map(work, range(2)))""",
        """with multiprocessing.get_context("{method}").Pool(2) as pool:
        answers = pool.map(work, range(2))""",
    )

    def test_workers_that_import_the_script_leave_the_pipes_alone_and_know_the_device(self):
        for method in ("spawn", "forkserver", "fork"):
            for pool in self.POOLS:
                with self.subTest(method=method, pool=pool):
                    self.workers(pool.format(method=method))

    def test_workers_that_start_before_the_script_asks_have_the_device_from_the_environment(self):
        early = """
if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    early = multiprocessing.Pool(2)
"""
        for method in ("spawn", "forkserver", "fork"):
            with self.subTest(method=method):
                pool = "with early: answers = [early.apply(fl.device) for _ in range(2)]; answers = [[a, a] for a in answers]"
                self.workers(pool, early.format(method=method), env={"FL_TRAINER_DEVICE": "cuda:3"})

    def test_programs_of_a_connected_script_leave_the_pipes_alone(self):
        run = "subprocess.run([sys.executable, '-c', 'import fl; print(fl.device())'], capture_output=True, text=True, check=True)"
        self.workers(f"answers = [[{run}.stdout.strip()] * 2 for _ in range(2)]")

    @unittest.skipUnless(importlib.util.find_spec("joblib"), "joblib is not installed")
    def test_workers_of_joblib_leave_the_pipes_alone(self):
        self.workers("answers = joblib.Parallel(2)(joblib.delayed(work)(i) for i in range(2))", "import joblib")

    def test_a_loop_in_a_worker_is_an_error_that_says_where_it_belongs(self):
        script = """
import array, multiprocessing, sys
import fl

def work():
    for job in fl.rounds({"w": array.array("f", [1])}):
        pass

if __name__ == "__main__":
    fl.device()
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""
        with FakeClient(script) as client:
            self.assertEqual(client.process.wait(TIMEOUT_S), 1)
            self.assertIn('put the loop under `if __name__ == "__main__":`', client.stderr())

    def test_alone_the_loop_runs_once_from_the_own_weights(self):
        script = PLAIN.replace(
            "for job in", '@fl.evaluate\ndef _(m):\n    return {"examples": 1, "loss": 1}\n\nfor job in'
        )
        environment = {name: value for name, value in os.environ.items() if name != "FL_TRAINER"}
        ran = subprocess.run(
            [sys.executable, "-c", script + "print(list(model['w']))"],
            env={**environment, "PYTHONPATH": str(PACKAGE)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        self.assertEqual(ran.stdout.strip(), "[2.0, 3.0, 4.0]")
        told = ran.stderr.splitlines()
        self.assertIn("no client", told[0])
        self.assertEqual(json.loads(told[1].partition("trained: ")[2])["examples"], 5)
        self.assertEqual(json.loads(told[2].partition("evaluated: ")[2])["loss"], 1)

    def test_alone_too_what_is_no_model_is_refused(self):
        environment = {name: value for name, value in os.environ.items() if name != "FL_TRAINER"}
        ran = subprocess.run(
            [sys.executable, "-c", "import fl\nfor job in fl.rounds([1.0]):\n    pass"],
            env={**environment, "PYTHONPATH": str(PACKAGE)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        self.assertEqual(ran.returncode, 1)
        self.assertIn("TypeError: fl.rounds takes a torch.nn.Module", ran.stderr)

    def attached(self, helper, script, conversation):
        """Runs a script that attaches, before the client listens; returns its status and what it printed."""
        helper.end()  # only its folder is used
        folder = helper.folder / ("of a long name " * 16)  # a socket's own path has at most 107 bytes
        path = str(folder / "trainer.sock")
        environment = {name: value for name, value in os.environ.items() if name != "FL_TRAINER"}
        script = textwrap.dedent(script).replace("for job", f"fl.attach({path!r})\nfor job", 1)
        notebook = subprocess.Popen(
            [sys.executable, "-c", script],
            env={**environment, "PYTHONPATH": str(PACKAGE)},
            stderr=subprocess.PIPE,
            text=True,
        )
        told = notebook.stderr.readline()
        self.assertIn(f"attaching to {path}", told)
        folder.mkdir()  # only now, while the script waits
        opened = os.open(folder, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{opened}/trainer.sock")
            os.close(opened)
            listener.listen()
            listener.settimeout(TIMEOUT_S)
            for talk in conversation:
                connection, _ = listener.accept()
                with connection, connection.makefile("rw") as lines:

                    def say(lines=lines, **message):
                        lines.write(json.dumps(message) + "\n")
                        lines.flush()

                    talk(say, lambda lines=lines: json.loads(lines.readline()))
        _, told = notebook.communicate(timeout=TIMEOUT_S)
        return notebook.returncode, told

    def test_a_notebook_attaches_over_a_socket_and_can_do_so_again(self):
        script = PLAIN + "\nfor job in fl.rounds(model):\n    job.done(examples=1, loss=1)\n"
        with FakeClient(PLAIN, start=False) as helper:

            def talk(say, hear):
                say(type="start", version=1, folder=str(helper.work))
                self.assertEqual(hear()["type"], "hello")
                say(type="bye")
                self.assertEqual(hear()["type"], "bye")

            self.assertEqual(self.attached(helper, script, [talk, talk])[0], 0)

    def test_workers_of_a_notebook_do_not_attach_and_know_the_device(self):
        script = """
import array, multiprocessing
import fl
model = {"w": array.array("f", [1, 2, 3])}
for job in fl.rounds(model):
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(fl.device) == "cuda:3", method
    job.done(examples=1, loss=0)
"""
        with FakeClient(PLAIN, start=False) as helper:
            helper.tensors = [{"name": "w", "dtype": "F32", "shape": [3], "role": "trained"}]
            helper.weights({"w": floats(4, 5, 6)})

            def talk(say, hear):
                say(type="start", version=1, folder=str(helper.work), device="cuda:3")
                self.assertEqual(hear()["type"], "hello")
                say(type="join", run="r", client="c", tensors=helper.tensors)
                names = {"weights": "model.safetensors", "result": "update.safetensors"}
                say(type="fit", round=1, rounds=1, seed=1, train=TRAIN, **names)
                self.assertEqual(hear()["type"], "fitted")
                say(type="bye")
                self.assertEqual(hear()["type"], "bye")

            self.assertEqual(self.attached(helper, script, [talk])[0], 0)

    def test_a_notebook_that_the_client_turns_away_says_why(self):
        why = "another trainer is attached to this client; end it first"
        with FakeClient(PLAIN, start=False) as helper:
            status, told = self.attached(helper, PLAIN, [lambda say, _: say(type="bye", message=why)])
            self.assertEqual(status, 1)
            self.assertIn(f"RuntimeError: {why}", told)
        with FakeClient(PLAIN, start=False) as helper:

            def talk(say, hear):
                say(type="start", version=1, folder=str(helper.work))
                hear()
                say(type="bye", message="`w` is F32 [4] in the run")

            status, told = self.attached(helper, PLAIN, [talk])
            self.assertEqual(status, 0)
            self.assertIn("fl: the client ended the conversation: `w` is F32 [4] in the run", told)


if __name__ == "__main__":
    unittest.main()
