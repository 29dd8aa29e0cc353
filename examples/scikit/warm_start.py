"""`train.py` with a classifier that has no `partial_fit`: `fit` with `warm_start` starts from the weights of the round."""

import sys
import warnings

import fl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss


def score(images, labels):
    chances = model.predict_proba(images)
    accuracy = np.mean(chances.argmax(1) == labels)
    return {"examples": len(labels), "loss": log_loss(labels, chances, labels=range(10)), "accuracy": accuracy}


def load():
    model.coef_, model.intercept_ = weights["coef"].copy(), weights["intercept"].copy()


images, labels = load_digits(return_X_y=True)
images, labels = images[int(sys.argv[1]) :: int(sys.argv[2])], labels[int(sys.argv[1]) :: int(sys.argv[2])]
images = images / 16
held_out = len(images) // 6
train_images, train_labels = images[held_out:], labels[held_out:]
test_images, test_labels = images[:held_out], labels[:held_out]

warnings.simplefilter("ignore", ConvergenceWarning)  # five iterations in each round are not meant to converge
model = LogisticRegression(warm_start=True, max_iter=5)
model.classes_ = np.arange(10)  # `fit` sets them, but the first evaluation comes before it
weights = {"coef": np.zeros((10, 64)), "intercept": np.zeros(10)}


@fl.evaluate
def test(_):
    load()
    return score(test_images, test_labels)


for job in fl.rounds(weights):
    load()
    model.fit(train_images, train_labels)  # makes new arrays
    weights["coef"][:], weights["intercept"][:] = model.coef_, model.intercept_
    job.done(examples=len(train_labels), loss=score(train_images, train_labels)["loss"])
