"""A Flax (nnx) CNN with batch normalization: part I of N of synthetic images, `python3 flax_nnx.py I N`."""

import sys

import fl
import jax
import numpy as np
import optax
from flax import nnx


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 16, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.dense = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x):
        return self.dense(jax.nn.relu(self.norm(self.conv(x))).mean((1, 2)))


def loss_of(model, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def step(model, optimizer, images, labels):
    loss, gradients = nnx.value_and_grad(loss_of)(model, images, labels)
    optimizer.update(model, gradients)
    return loss


part = np.random.default_rng(int(sys.argv[1]))
labels = part.integers(0, 4, 512)  # stripes of four widths
images = np.sin(np.arange(16) * (labels[:, None] + 1) / 2)[:, None, :, None] + part.normal(0, 0.5, (512, 16, 16, 1))
model = CNN(nnx.Rngs(0))
for job in fl.rounds(fl.tree(model)):
    optimizer = nnx.Optimizer(model, optax.sgd(job.train.learning_rate), wrt=nnx.Param)
    model.train()
    losses = [float(step(model, optimizer, images[at : at + 32], labels[at : at + 32])) for at in job.batches(range(0, 512, 32))]
    job.done(examples=512, loss=np.mean(losses))
