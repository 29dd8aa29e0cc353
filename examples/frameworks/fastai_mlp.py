"""A fastai Learner on synthetic points: part I of N, `python3 fastai_mlp.py I N`."""

import sys

import fl
import torch
from fastai.basics import CrossEntropyLossFlat, DataLoader, DataLoaders, Learner, accuracy, set_seed

set_seed(0)
part = torch.Generator().manual_seed(int(sys.argv[1]))
points = torch.randn(600, 8, generator=part)
data = list(zip(points, points[:, :4].argmax(1)))
loaders = DataLoaders(DataLoader(data[:500], bs=20, shuffle=True), DataLoader(data[500:], bs=100))
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
learn = Learner(loaders, net, loss_func=CrossEntropyLossFlat(), metrics=accuracy)


@fl.evaluate
def test(_):
    loss, share = learn.validate()
    return {"examples": 100, "loss": loss, "accuracy": share}


for job in fl.rounds(learn.model):
    set_seed(job.seed % 2**31)
    learn.fit(job.train.epochs, lr=0.01)
    job.done(examples=500, loss=learn.recorder.losses[-1])
