"""A loop of accelerate on synthetic points: part I of N, `python3 accelerate_mlp.py I N`."""

import sys

import fl
import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

part = torch.Generator().manual_seed(int(sys.argv[1]))
points = torch.randn(600, 8, generator=part)
labels = points[:, :4].argmax(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
accelerator = Accelerator(cpu=fl.device() == "cpu")
loader = DataLoader(TensorDataset(points[:500], labels[:500]), batch_size=20, shuffle=True)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(net, optimizer, loader)


@fl.evaluate
def test(model):
    outputs = model(points[500:].to(accelerator.device)).cpu()
    accuracy = (outputs.argmax(1) == labels[500:]).float().mean()
    return {"examples": 100, "loss": F.cross_entropy(outputs, labels[500:]), "accuracy": accuracy}


for job in fl.rounds(model, keep=optimizer):  # Adam's moments go on from round to round
    torch.manual_seed(job.seed)
    model.train()
    progress = job.callback()
    for inputs, targets in job.batches(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        progress.step(loss)
    job.done(examples=500, loss=progress.loss)
