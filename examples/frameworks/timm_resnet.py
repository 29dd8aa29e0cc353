"""A timm model on synthetic images of stripes, with its EMA evaluated: part I of N, `python3 timm_resnet.py I N`."""

import sys

import fl
import timm
import torch
from timm.utils import ModelEmaV2
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = timm.create_model("test_resnet", num_classes=4, in_chans=1)
part = torch.Generator().manual_seed(int(sys.argv[1]))
labels = torch.randint(0, 4, (240,), generator=part)  # stripes of four widths
images = torch.sin(torch.arange(32) * (labels[:, None] + 1) / 2)[:, None, None].expand(240, 1, 32, 32)
images = images + torch.randn(images.shape, generator=part) * 0.5
loader = DataLoader(TensorDataset(images[:200], labels[:200]), batch_size=20, shuffle=True)


@fl.evaluate
def test(model):
    outputs = model(images[200:])
    accuracy = (outputs.argmax(1) == labels[200:]).float().mean()
    return {"examples": 40, "loss": F.cross_entropy(outputs, labels[200:]), "accuracy": accuracy}


for job in fl.rounds(model):
    torch.manual_seed(job.seed)
    optimizer, average, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), ModelEmaV2(model, decay=0.9), []
    model.train()
    for inputs, targets in job.batches(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        average.update(model)
        losses.append(loss.item())
    model.load_state_dict(average.module.state_dict())  # the averaged weights are this client's answer
    job.done(examples=200, loss=sum(losses) / len(losses))
