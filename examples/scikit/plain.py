"""Trains a linear classifier on handwritten digits."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

images, labels = load_digits(return_X_y=True)
images = images / 16
train_images, train_labels = images[:1500], labels[:1500]
test_images, test_labels = images[1500:], labels[1500:]

model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=0)
model.partial_fit(train_images[:1], train_labels[:1], classes=np.arange(10))  # allocates the weights


def test(model):
    chances = model.predict_proba(test_images)
    accuracy = np.mean(chances.argmax(1) == test_labels)
    return {"examples": len(test_labels), "loss": log_loss(test_labels, chances, labels=range(10)), "accuracy": accuracy}


for epoch in range(5):
    model.partial_fit(train_images, train_labels)
    print(f"epoch {epoch + 1}: {test(model)}")
