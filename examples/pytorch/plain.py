"""Trains a small ResNet on CIFAR-10: `python3 plain.py DATA`, where DATA is the folder of the binary version."""

import lzma
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


def load(pattern, limit):
    """Images `[n, 3, 32, 32]` and labels `[n]` of all files of this pattern."""
    files = sorted(Path(sys.argv[1]).glob(pattern))
    data = b"".join(lzma.open(file).read() if file.suffix == ".xz" else file.read_bytes() for file in files)
    rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 3073)[:limit]
    return (rows[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - 0.47) / 0.25, rows[:, 0].long()


class Block(nn.Module):
    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(width_in, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks = [Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)]
        self.body = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def train(model, batches, learning_rate):
    """One pass over the batches; returns the mean loss."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9, weight_decay=5e-4)
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def test(model):
    """Loss and accuracy on the test images."""
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(images) for images in test_images.split(500)])
    loss = F.cross_entropy(outputs, test_labels).item()
    accuracy = (outputs.argmax(1) == test_labels).float().mean().item()
    return {"examples": len(test_labels), "loss": loss, "accuracy": accuracy}


torch.manual_seed(0)
train_images, train_labels = load("data_batch_1.bin*", 10000)
test_images, test_labels = load("test_batch*.bin*", 1000)
examples = torch.utils.data.TensorDataset(train_images, train_labels)
loader = torch.utils.data.DataLoader(examples, batch_size=32, shuffle=True)
model = ResNet()

for epoch in range(5):
    loss = train(model, loader, learning_rate=0.05)
    print(f"epoch {epoch + 1}: loss {loss:.4f}, test {test(model)}", flush=True)
