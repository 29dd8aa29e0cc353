"""Models of numpy arrays. Skipped without numpy."""

import importlib.util
import struct
import unittest

import fl
from fake_client import FakeClient


@unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
class Numpy(unittest.TestCase):
    def test_arrays_of_any_order_are_loaded_in_place_and_returned(self):
        script = """
import numpy as np
import fl
coef = np.asfortranarray(np.zeros((2, 3)))
model = {"coef": coef, "big": np.zeros(2, ">f4"), "n": np.array(5), "flag": np.array([False])}
model.update(index=np.zeros(1, np.uint16), codes=np.zeros(2, np.int8))
for job in fl.rounds(model):
    assert coef[0].tolist() == [1, 2, 3] and coef[1].tolist() == [4, 5, 6], coef
    assert model["big"].tolist() == [1, 2] and model["index"][0] == 0x3F80 and model["n"] == 7 and model["flag"][0]
    coef += 1
    model["n"] += 1
    job.done(examples=np.int64(3), loss=np.float32(0.5), f1=np.array(0.25))
"""
        with FakeClient(script) as client:
            kinds = {t["name"]: (t["dtype"], t["shape"]) for t in client.join()["tensors"]}
            expected = {
                "coef": ("F64", [2, 3]),
                "big": ("F32", [2]),
                "index": ("U16", [1]),
                "codes": ("I8", [2]),
                "n": ("I64", []),
                "flag": ("BOOL", [1]),
            }
            self.assertEqual(kinds, expected)
            values = {
                "coef": struct.pack("<6d", 1, 2, 3, 4, 5, 6),
                "big": struct.pack("<2f", 1, 2),
                "index": b"\x80\x3f",
                "codes": b"\xff\x7f",
            }
            values.update(n=struct.pack("<q", 7), flag=b"\x01")
            client.weights(values)
            client.fit()
            self.assertEqual(client.hear("fitted")["metrics"], {"f1": 0.25})
            values.update(coef=struct.pack("<6d", 2, 3, 4, 5, 6, 7), n=struct.pack("<q", 8))
            self.assertEqual(client.result(), values)

    def test_squared_gradients_are_converted_to_single_precision(self):
        script = """
import numpy as np
import fl
model = {"w": np.zeros((2, 1))}
for job in fl.rounds(model):
    job.done(examples=1, loss=0.0, squared_gradients={"w": np.array([[0.25], [4.0]])})
"""
        with FakeClient(script) as client:
            client.join()
            client.weights({"w": struct.pack("<2d", 1, 2)})
            client.fit(squared_gradients="squares.safetensors")
            self.assertIs(client.hear("fitted")["squared_gradients"], True)
            slot = fl.read_safetensors(client.work / "squares.safetensors")["w"]
            self.assertEqual((slot.dtype, slot.shape, bytes(slot.data)), ("F32", (2, 1), struct.pack("<2f", 0.25, 4)))

    def test_an_object_with_state_dict_gets_arrays_of_its_own(self):
        script = """
import numpy as np
import fl

class Own:
    def __init__(self):
        self.w, self.name = np.zeros(2, np.float32), "a name"
    def state_dict(self):
        return {"w": self.w, "name": self.name}
    def load_state_dict(self, state):
        assert state["name"] == "a name"
        self.w = state["w"]

model = Own()
for job in fl.rounds(model):
    given = model.w.copy()
    with open(f"{job._session.link.start['folder']}/model.safetensors", "r+b") as file:  # as the client does for the next round
        data = file.read()
        file.seek(0)
        file.write(data[:-8] + bytes(8))
    assert (model.w == given).all(), "the weights changed with the file"
    model.w = model.w + 1
    job.done(examples=1, loss=0)
"""
        with FakeClient(script) as client:
            client.join()
            client.weights({"w": struct.pack("<2f", 1, 2)})
            client.fit()
            client.hear("fitted")
            self.assertEqual(client.result(), {"w": struct.pack("<2f", 2, 3)})

    def trained(self, script, values, kinds=None):
        """The results of two rounds from `values`, of a script that imports numpy and fl."""
        with FakeClient("import numpy as np\nimport fl\n" + script) as client:
            described = {t["name"]: t["dtype"] for t in client.join()["tensors"]}
            self.assertEqual(described, kinds or dict.fromkeys(values, "F32"))
            results = []
            for number in (1, 2):
                client.weights(values)
                client.fit(number)
                client.hear("fitted")
                results.append(client.result())
            self.assertEqual(client.end(), 0)
        return results

    def test_an_object_whose_arrays_cannot_be_written_gets_new_ones(self):
        script = """
class Frozen:
    def __init__(self):
        self.load_state_dict({"w": np.zeros(2, "f4"), "tied": None})
        self.params["tied"] = self.params["w"]
    def state_dict(self):
        return dict(self.params)
    def load_state_dict(self, state):
        assert state["w"] is state["tied"] or state["tied"] is None, state
        self.params = dict(state)
        self.params["w"].flags.writeable = False

model = Frozen()
for job in fl.rounds(model):
    before = model.params["w"]
    new = before + job.round
    model.load_state_dict({"w": new, "tied": new})
    job.done(examples=1, loss=0)
    assert before.tolist() == [1, 2]
"""
        results = self.trained(script, {"w": struct.pack("<2f", 1, 2)})
        self.assertEqual(results, [{"w": struct.pack("<2f", 2, 3)}, {"w": struct.pack("<2f", 3, 4)}])

    def test_in_a_dict_arrays_that_cannot_be_written_are_replaced_and_others_keep_their_place(self):
        script = """
import pathlib
file = pathlib.Path("weights.bin")
file.write_bytes(bytes(8))
fixed = np.zeros(2, "f4")
fixed.flags.writeable = False
model = {
    "mapped": np.memmap(file, "f4", "r"), "fixed": fixed, "tied": fixed, "scalar": np.float32(0),
    "view": np.broadcast_to(np.zeros(1, "f4"), 2), "own": np.zeros(2, "f4"),
}
own = model["own"]
for job in fl.rounds(model):
    assert model["own"] is own and model["fixed"] is model["tied"]
    for name in ("mapped", "fixed", "view", "own"):
        assert model[name].tolist() == [1, 2], model
        model[name] += 1
    assert model["scalar"] == 3
    model["scalar"] = model["scalar"] + np.float32(1)
    assert file.read_bytes() == bytes(8)
    job.done(examples=1, loss=0)
"""
        names = ("mapped", "fixed", "view", "own")
        values = {**{name: struct.pack("<2f", 1, 2) for name in names}, "scalar": struct.pack("<f", 3)}
        expected = {**{name: struct.pack("<2f", 2, 3) for name in names}, "scalar": struct.pack("<f", 4)}
        self.assertEqual(self.trained(script, values), [expected] * 2)

    def test_a_variable_that_is_assigned_stays_the_variable(self):
        script = """
class Variable:  # as one of TensorFlow or Keras
    def __init__(self, value):
        self.value, self.dtype, self.shape = value, value.dtype, value.shape
    def assign(self, value):
        self.value = np.array(value)
    def __array__(self, dtype=None, copy=None):
        return self.value

w = Variable(np.zeros(2, "f4"))
for job in fl.rounds({"w": w}):
    w.assign(w.value + 1)
    job.done(examples=1, loss=0)
"""
        results = self.trained(script, {"w": struct.pack("<2f", 1, 2)})
        self.assertEqual(results, [{"w": struct.pack("<2f", 2, 3)}] * 2)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "jax is not installed")
    def test_arrays_of_jax_in_a_dict_and_in_an_object(self):
        script = """
import jax, jax.numpy as jnp
params = {"w": jnp.zeros((2, 1)), "half": jnp.zeros(2, jnp.bfloat16), "n": jnp.zeros(1, jnp.int32)}
class State:
    def state_dict(self):
        return params
    def load_state_dict(self, state):
        params.update(jax.tree.map(jnp.asarray, state))

for job in fl.rounds(MODEL):
    assert params["w"].tolist() == [[1], [2]] and params["half"].tolist() == [1, 2], params
    params.update({name: value + 1 for name, value in params.items()})
    assert isinstance(params["w"], jax.Array)
    squares = {"w": params["w"] ** 2, "half": params["half"] ** 2}
    job.done(examples=jnp.array(1), loss=params["w"].mean(), squared_gradients=squares)
"""
        values = {"w": struct.pack("<2f", 1, 2), "half": b"\x80\x3f\x00\x40", "n": struct.pack("<i", 7)}
        expected = {"w": struct.pack("<2f", 2, 3), "half": b"\x00\x40\x40\x40", "n": struct.pack("<i", 8)}
        kinds = {"w": "F32", "half": "BF16", "n": "I32"}
        for model in ("params", "State()"):
            with self.subTest(model=model):
                self.assertEqual(self.trained(script.replace("MODEL", model), values, kinds), [expected] * 2)


if __name__ == "__main__":
    unittest.main()
