"""A LightningModule: part I of N of synthetic points, `python3 lightning_mlp.py I N`."""

import sys

import fl
import lightning
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        outputs = self.net(batch[0])
        self.log("val_loss", F.cross_entropy(outputs, batch[1]))
        self.log("val_acc", (outputs.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
model = Classifier()
points = torch.randn(600, 8, generator=torch.Generator().manual_seed(int(sys.argv[1])))
data = TensorDataset(points, points[:, :4].argmax(1))
train, test = DataLoader(Subset(data, range(500)), 20, shuffle=True), DataLoader(Subset(data, range(500, 600)), 100)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
fl.lightning(model, lambda job: lightning.Trainer(max_epochs=job.train.epochs, **quiet), data=train, validation=test)
