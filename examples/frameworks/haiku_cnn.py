"""A Haiku CNN with batch normalization: part I of N of synthetic images, `python3 haiku_cnn.py I N`."""

import sys

import fl
import haiku as hk
import jax
import numpy as np
import optax


def net(x, train):
    x = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(16, 3, with_bias=False)(x), train)
    return hk.Linear(4)(jax.nn.relu(x).mean((1, 2)))


model = hk.without_apply_rng(hk.transform_with_state(net))


@jax.jit
def step(pair, images, labels, rate):
    def loss_of(params):
        outputs, state = model.apply(params, pair[1], images, True)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean(), state

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(pair[0])
    return (jax.tree.map(lambda p, g: p - rate * g, pair[0], gradients), state), loss


part = np.random.default_rng(int(sys.argv[1]))
labels = part.integers(0, 4, 512)  # stripes of four widths
images = np.sin(np.arange(16) * (labels[:, None] + 1) / 2)[:, None, :, None] + part.normal(0, 0.5, (512, 16, 16, 1))
batches = [slice(at, at + 32) for at in range(0, 512, 32)]
weights = fl.tree(model.init(jax.random.key(0), images[:1], True))  # the pair (params, state)
for job in fl.rounds(weights):
    losses = []
    for at in job.batches(batches):
        weights.tree, loss = step(weights.tree, images[at], labels[at], job.train.learning_rate)
        losses.append(float(loss))
    job.done(examples=512, loss=np.mean(losses))
