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
model = {"coef": coef, "big": np.zeros(2, ">f4"), "brain": np.zeros(1, np.uint16), "n": np.array(5), "flag": np.array([False])}
for job in fl.rounds(model):
    assert coef[0].tolist() == [1, 2, 3] and coef[1].tolist() == [4, 5, 6], coef
    assert model["big"].tolist() == [1, 2] and model["brain"][0] == 0x3F80 and model["n"] == 7 and model["flag"][0]
    coef += 1
    model["n"] += 1
    job.done(examples=np.int64(3), loss=np.float32(0.5), f1=np.array(0.25))
"""
        with FakeClient(script) as client:
            kinds = {t["name"]: (t["dtype"], t["shape"]) for t in client.join()["tensors"]}
            expected = {
                "coef": ("F64", [2, 3]),
                "big": ("F32", [2]),
                "brain": ("BF16", [1]),
                "n": ("I64", []),
                "flag": ("BOOL", [1]),
            }
            self.assertEqual(kinds, expected)
            values = {
                "coef": struct.pack("<6d", 1, 2, 3, 4, 5, 6),
                "big": struct.pack("<2f", 1, 2),
                "brain": b"\x80\x3f",
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


if __name__ == "__main__":
    unittest.main()
