"""A Keras CNN with batch normalization, of any backend: part I of N of synthetic images, `python3 keras_cnn.py I N`."""

import sys

import fl
import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input((16, 16, 1)),
        keras.layers.Conv2D(16, 3, use_bias=False),
        keras.layers.BatchNormalization(momentum=0.9),
        keras.layers.ReLU(),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(4, activation="softmax"),
    ]
)
model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])

part = np.random.default_rng(int(sys.argv[1]))
labels = part.integers(0, 4, 600)  # stripes of four widths
images = np.sin(np.arange(16) * (labels[:, None] + 1) / 2)[:, None, :, None] + part.normal(0, 0.5, (600, 16, 16, 1))


@fl.evaluate
def test(model):
    loss, accuracy = model.evaluate(images[500:], labels[500:], verbose=0)
    return {"examples": 100, "loss": loss, "accuracy": accuracy}


for job in fl.rounds(fl.keras(model)):
    keras.utils.set_random_seed(job.seed)
    model.optimizer.learning_rate = job.train.learning_rate
    history = model.fit(images[:500], labels[:500], epochs=job.train.epochs, verbose=0, callbacks=[job.callback()])
    job.done(examples=500, loss=history.history["loss"][-1])
