"""A Flax (nnx) CNN with batch normalization: part I of N of synthetic images, `python3 flax_nnx.py I N`."""

import sys

import fl
import numpy as np
import optax
from flax import nnx


def loss_of(model, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def step(model, optimizer, images, labels):
    loss, gradients = nnx.value_and_grad(loss_of)(model, images, labels)
    optimizer.update(model, gradients)
    return loss


rngs, part = nnx.Rngs(0), np.random.default_rng(int(sys.argv[1]))
layers = [nnx.Conv(1, 16, (3, 3), rngs=rngs), nnx.BatchNorm(16, momentum=0.9, rngs=rngs), nnx.relu]
model = nnx.Sequential(*layers, lambda x: x.mean((1, 2)), nnx.Linear(16, 4, rngs=rngs))
labels = part.integers(0, 4, 600)  # stripes of four widths
images = np.sin(np.arange(16) * (labels[:, None] + 1) / 2)[:, None, :, None] + part.normal(0, 0.5, (600, 16, 16, 1))


@fl.evaluate
def test(model):
    model.eval()
    right = model(images[512:]).argmax(1) == labels[512:]
    return {"examples": 88, "loss": loss_of(model, images[512:], labels[512:]), "correct": right.sum()}


optimizer = nnx.Optimizer(model, optax.sgd(0.5), wrt=nnx.Param)
for job in fl.rounds(fl.tree(model)):
    model.train()
    losses = [float(step(model, optimizer, images[at:512:16], labels[at:512:16])) for at in job.batches(range(16))]
    job.done(examples=512, loss=np.mean(losses))
