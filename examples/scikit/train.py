"""Trains a linear classifier on part I of N of handwritten digits, in a federation: `python3 train.py I N`."""

import sys

import fl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss


def score(images, labels):
    chances = model.predict_proba(images)
    accuracy = np.mean(chances.argmax(1) == labels)
    return {"examples": len(labels), "loss": log_loss(labels, chances, labels=range(10)), "accuracy": accuracy}


images, labels = load_digits(return_X_y=True)
images, labels = images[int(sys.argv[1]) :: int(sys.argv[2])], labels[int(sys.argv[1]) :: int(sys.argv[2])]
images = images / 16
held_out = len(images) // 6
train_images, train_labels = images[held_out:], labels[held_out:]
test_images, test_labels = images[:held_out], labels[:held_out]

model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=0)
model.partial_fit(train_images[:1], train_labels[:1], classes=np.arange(10))  # allocates the weights


@fl.evaluate
def test(_):
    return score(test_images, test_labels)


for job in fl.rounds({"coef": model.coef_, "intercept": model.intercept_}):
    for _ in range(job.train.epochs):
        model.partial_fit(train_images, train_labels)
    job.done(examples=len(train_labels), loss=score(train_images, train_labels)["loss"])
