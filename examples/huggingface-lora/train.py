"""Fine-tunes a small GPT-2 on part I of N of a text with LoRA, in a federation: `python3 train.py TEXT I N`."""

import sys
from pathlib import Path

import fl
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

LENGTH = 64


def blocks(text):
    """The bytes of the text, which are its tokens, in blocks."""
    tokens = torch.tensor(list(text))
    return [{"input_ids": block, "labels": block} for block in tokens[: len(tokens) // LENGTH * LENGTH].split(LENGTH)]


set_seed(0)
text = Path(sys.argv[1]).read_bytes()[:100000]
part = len(text) // int(sys.argv[3])
text = text[int(sys.argv[2]) * part :][:part]
held_out = len(text) // 10
config = GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=2)
base = GPT2LMHeadModel(config)  # a real script loads pretrained weights here
lora = LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn", "c_fc", "c_proj"], task_type="CAUSAL_LM")
model = get_peft_model(base, lora)
arguments = TrainingArguments(
    "out",
    num_train_epochs=3,
    learning_rate=5e-3,
    per_device_train_batch_size=16,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model, arguments, train_dataset=blocks(text[held_out:]), eval_dataset=blocks(text[:held_out]))
fl.HuggingFaceCallback(trainer).run()
