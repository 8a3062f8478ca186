"""The Trainer of Lightning, with a validation before the training."""

import logging
import sys

import torch
from common import STEPS, Net, finish, needs

needs("lightning")

from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Lit(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.net(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


data = TensorDataset(torch.randn(4 * STEPS, 16), torch.randint(4, (4 * STEPS,)))
loader = DataLoader(data, batch_size=4)
model = Lit()
trainer = Trainer(
    max_epochs=1,
    accelerator="cpu",
    default_root_dir=sys.argv[1],
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    logger=False,
)
trainer.fit(model, loader, loader)
finish(model)
