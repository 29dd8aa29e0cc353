"""A small Llama over bytes, pretrained on WikiText-2: the model that `configs/experiments/adapters.toml` fine-tunes.

    pip install torch transformers
    python3 fl-sim/benches/pretrain.py ../shared/data/text/wikitext-2/train.txt.gz configs/experiments/base [--steps 1200]

Writes `config.json` and `model.safetensors`. Six minutes on a core with `--steps 1200`.
"""

import argparse
import gzip
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("text", type=Path)
parser.add_argument("output", type=Path)
parser.add_argument("--steps", type=int, default=1200)
options = parser.parse_args()
torch.manual_seed(1)
torch.set_num_threads(1)
text = gzip.open(options.text).read() if options.text.suffix == ".gz" else options.text.read_bytes()
text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=256, hidden_size=192, intermediate_size=512, num_hidden_layers=3, num_attention_heads=6,
    num_key_value_heads=6, max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0))
optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95))
for step in range(options.steps):
    for group in optimizer.param_groups:
        group["lr"] = 2e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / options.steps)
    starts = torch.randint(0, len(text) - 129, (16,))
    tokens = torch.stack([text[start : start + 129] for start in starts]).long()
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % 100 == 0:
        print(f"step {step + 1} of {options.steps}: {loss.item():.3f} nats a byte", flush=True)
model.save_pretrained(options.output)
