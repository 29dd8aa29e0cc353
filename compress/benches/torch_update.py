#!/usr/bin/env python3
"""Real updates of two language models, to try codecs on: a small transformer and an LSTM over characters.

Each is first trained on one half of the text, so that it is past its first steps, and then, as a client would, for about
one epoch over the first 40,000 letters of the other half. Writes transformer.safetensors and lstm.safetensors into the folder given.

    python3 compress/benches/torch_update.py ../shared/data/text/tinyshakespeare/input.txt OUT_DIR

Needs torch only.
"""

import json
import pathlib
import struct
import sys

import torch
from torch import nn

CONTEXT, BATCH = 64, 32


class Transformer(nn.Module):
    def __init__(self, vocabulary, width=128, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.body(x, mask=mask, is_causal=True))


class Lstm(nn.Module):
    def __init__(self, vocabulary, width=256):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, 64)
        self.body = nn.LSTM(64, width, 2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.body(self.tokens(x))[0])


def batches(text, count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,), generator=generator)
        rows = torch.stack([text[s : s + CONTEXT + 1] for s in starts.tolist()])
        yield rows[:, :-1], rows[:, 1:]


def train(model, optimizer, text, count, seed):
    total = 0.0
    for x, y in batches(text, count, seed):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / count


def save(path, tensors):
    header, body, offset = {}, [], 0
    for name, value in sorted(tensors.items()):
        data = value.detach().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [offset, offset + len(data)]}
        body.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(body))


def main():
    text = pathlib.Path(sys.argv[1]).read_text()
    out = pathlib.Path(sys.argv[2])
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(c) for c in text])
    half = len(codes) // 2
    for name, make, rate in [("transformer", Transformer, 0.1), ("lstm", Lstm, 1.0)]:
        torch.manual_seed(42)
        model = make(len(letters))
        warm = torch.optim.Adam(model.parameters(), 1e-3)
        first = train(model, warm, codes[:half], 300, 1)
        before = {key: value.detach().clone() for key, value in model.named_parameters()}
        local = torch.optim.SGD(model.parameters(), rate)
        loss = train(model, local, codes[half : half + 40_000], 40_000 // (BATCH * CONTEXT), 2)
        update = {key: value - before[key] for key, value in model.named_parameters()}
        save(out / f"{name}.safetensors", update)
        count = sum(value.numel() for value in update.values())
        print(f"{name}: {count} values, loss {first:.3f} while warming up, {loss:.3f} in the client's epoch")


if __name__ == "__main__":
    main()
