"""A small sentence-transformers model: part I of N of synthetic pairs, `python3 sentence_transformer.py I N`."""

import random
import sys

import fl
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
)
from sentence_transformers.sentence_transformer.modules import BoW, Dense

random.seed(int(sys.argv[1]))
words = [f"{topic}{i}" for topic in ("cell", "rock", "star", "leaf") for i in range(25)]


def pair(_):
    """Two texts, of the same topic every second time."""
    one, other = (random.choice(words)[:4] for _ in range(2))
    texts = [" ".join(f"{topic}{random.randrange(25)}" for _ in range(6)) for topic in (one, other)]
    return {"sentence1": texts[0], "sentence2": texts[1], "score": float(one == other)}


data = Dataset.from_list([pair(i) for i in range(240)])
model = SentenceTransformer(modules=[BoW(vocab=words), Dense(in_features=100, out_features=8)], device="cpu")
arguments = SentenceTransformerTrainingArguments(
    "out", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no"
)
trainer = SentenceTransformerTrainer(
    model, arguments, data.select(range(200)), data.select(range(200, 240)), losses.CosineSimilarityLoss(model)
)
fl.HuggingFaceCallback(trainer).run()
