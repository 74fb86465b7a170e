r"""A small training as a user would have it: eager PyTorch, one `loss.item()` a step. Runs alone, and as a tenant.

`python my_train.py` trains until it is stopped and prints every tenth step; a suite counts its steps by `step()`, by
those lines (`match = 'step (\d+)'`), or calls `my_train:build`.
"""

import os
from collections import deque
from collections.abc import Callable

import torch
from torch import nn

from fleetlab.gpu import step

REHEARSAL = bool(os.environ.get("FLEETLAB_REHEARSAL"))
losses: deque[float] = deque([0.0], maxlen=1)  # the last one
BATCH, TOKENS, WIDTH, LAYERS = (2, 8, 16, 1) if REHEARSAL else (64, 128, 512, 4)


def build(device: torch.device | str) -> Callable[[], int]:
    """Return one training step on random tokens; it returns its number of sequences."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(1000, WIDTH), nn.TransformerEncoder(layer, LAYERS), nn.Linear(WIDTH, 1000))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, 1000, (BATCH, TOKENS), device=device)

    def train() -> int:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return BATCH

    return train


def main() -> None:
    """Train until stopped."""
    train = build(os.environ.get("FLEETLAB_DEVICE", "cuda" if torch.cuda.is_available() else "cpu"))
    k = 0
    while True:
        items = train()
        step(items)
        k += 1
        if k % 10 == 0:
            print(f"step {k} loss {losses[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
