"""The Trainer of Hugging Face with gradient accumulation: a step is one of the optimizer."""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from common import STEPS, finish, needs

needs("transformers")

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(
    n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config)
tokens = torch.randint(0, 64, (4 * STEPS, 8)).tolist()
arguments = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_steps=STEPS,
    report_to=[],
    save_strategy="no",
    logging_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
)
data = [{"input_ids": row, "labels": row} for row in tokens]
Trainer(model, arguments, train_dataset=data).train()
finish(model)
