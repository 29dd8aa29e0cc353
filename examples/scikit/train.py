"""Trains a linear classifier on part I of N of handwritten digits, in a federation: `python3 train.py I N`."""

import sys

import fl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

images, labels = load_digits(return_X_y=True)
part = slice(int(sys.argv[1]), None, int(sys.argv[2]))
images = images / 16
train_images, train_labels = images[:1500][part], labels[:1500][part]
test_images, test_labels = images[1500:][part], labels[1500:][part]

model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=0)
model.partial_fit(train_images[:1], train_labels[:1], classes=np.arange(10))  # allocates the weights


@fl.evaluate
def test(_):
    chances = model.predict_proba(test_images)
    accuracy = np.mean(chances.argmax(1) == test_labels)
    return {"examples": len(test_labels), "loss": log_loss(test_labels, chances, labels=range(10)), "accuracy": accuracy}


for job in fl.rounds({"coef": model.coef_, "intercept": model.intercept_}):
    for _ in range(job.train.epochs):
        model.partial_fit(train_images, train_labels)
    job.done(examples=len(train_labels), loss=log_loss(train_labels, model.predict_proba(train_images), labels=range(10)))
