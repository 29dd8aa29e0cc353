"""Trains a linear classifier on handwritten digits."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss


def score(images, labels):
    chances = model.predict_proba(images)
    accuracy = np.mean(chances.argmax(1) == labels)
    return {"examples": len(labels), "loss": log_loss(labels, chances, labels=range(10)), "accuracy": accuracy}


images, labels = load_digits(return_X_y=True)
images = images / 16
held_out = len(images) // 6
train_images, train_labels = images[held_out:], labels[held_out:]
test_images, test_labels = images[:held_out], labels[:held_out]

model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=0)
model.partial_fit(train_images[:1], train_labels[:1], classes=np.arange(10))  # allocates the weights

for epoch in range(5):
    model.partial_fit(train_images, train_labels)
    print(f"epoch {epoch + 1}: {score(test_images, test_labels)}")
