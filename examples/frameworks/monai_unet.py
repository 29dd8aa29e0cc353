"""A MONAI UNet on synthetic scans with a bright ball: part I of N, `python3 monai_unet.py I N`."""

import sys

import fl
import torch
from monai.losses import DiceLoss
from monai.metrics import compute_dice
from monai.networks.nets import UNet
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model, loss_of = UNet(2, 1, 1, channels=(8, 16, 32), strides=(2, 2), norm="batch"), DiceLoss(sigmoid=True)

part = torch.Generator().manual_seed(int(sys.argv[1]))
at, radius = torch.rand(120, 2, 1, 1, generator=part) * 16 + 8, torch.rand(120, 1, 1, generator=part) * 4 + 3
rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
masks = ((rows - at[:, 0]) ** 2 + (columns - at[:, 1]) ** 2 < radius**2).float()[:, None]
scans = masks + torch.randn(masks.shape, generator=part) * 0.7
loader = DataLoader(TensorDataset(scans[:100], masks[:100]), batch_size=10, shuffle=True)


@fl.evaluate
def test(model):
    outputs = model(scans[100:])
    dice = compute_dice((outputs > 0).float(), masks[100:]).mean()
    return {"examples": 20, "loss": loss_of(outputs, masks[100:]), "dice": dice}


for job in fl.rounds(model):
    torch.manual_seed(job.seed)
    model.train()
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for images, labels in job.batches(loader):
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    job.done(examples=100, loss=sum(losses) / len(losses))
