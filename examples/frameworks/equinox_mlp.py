"""An Equinox model: part I of N of synthetic points, `python3 equinox_mlp.py I N`."""

import sys

import equinox as eqx
import fl
import jax
import numpy as np
import optax


@eqx.filter_value_and_grad
def loss_of(model, points, labels):
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(points), labels).mean()


@eqx.filter_jit
def step(model, state, points, labels):
    loss, gradients = loss_of(model, points, labels)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


part = np.random.default_rng(int(sys.argv[1]))
points = part.normal(size=(512, 8)).astype("float32")
labels = np.argmax(points[:, :4], 1)
optimizer = optax.adam(0.01)
batches = [slice(at, at + 32) for at in range(0, 512, 32)]
weights = fl.tree(eqx.nn.MLP(8, 4, 32, 2, key=jax.random.key(0)))
for job in fl.rounds(weights):
    state, losses = optimizer.init(eqx.filter(weights.tree, eqx.is_inexact_array)), []
    for at in job.batches(batches):
        weights.tree, state, loss = step(weights.tree, state, points[at], labels[at])
        losses.append(float(loss))
    job.done(examples=512, loss=np.mean(losses))
