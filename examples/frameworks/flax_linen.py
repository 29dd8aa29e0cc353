"""A Flax (linen) CNN with batch normalization: part I of N of synthetic images, `python3 flax_linen.py I N`."""

import sys

import fl
import jax
import numpy as np
import optax
from flax import linen as nn


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Conv(16, (3, 3), use_bias=False)(x))
        return nn.Dense(4)(nn.relu(x).mean((1, 2)))


@jax.jit
def step(variables, images, labels, rate):
    def loss_of(params):
        outputs, state = CNN().apply({**variables, "params": params}, images, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean(), state

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(variables["params"])
    return {**state, "params": jax.tree.map(lambda p, g: p - rate * g, variables["params"], gradients)}, loss


part = np.random.default_rng(int(sys.argv[1]))
labels = part.integers(0, 4, 512)  # stripes of four widths
images = np.sin(np.arange(16) * (labels[:, None] + 1) / 2)[:, None, :, None] + part.normal(0, 0.5, (512, 16, 16, 1))
batches = [slice(at, at + 32) for at in range(0, 512, 32)]
weights = fl.tree(CNN().init(jax.random.key(0), images[:1]))
for job in fl.rounds(weights):
    losses = []
    for at in job.batches(batches):
        weights.tree, loss = step(weights.tree, images[at], labels[at], job.train.learning_rate)
        losses.append(float(loss))
    job.done(examples=512, loss=np.mean(losses))
