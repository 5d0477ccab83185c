"""Checkpoints by hand, and a small model for them."""

import json
import struct

import torch

NAMES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int64: "I64",
}


def raw(x):
    return x.contiguous().view(torch.uint8)


def by_hand(path, tensors):
    """A file without the project's own writer."""
    header, data = {}, b""
    for name, x in tensors.items():
        part = bytes(raw(x.reshape(-1)).tolist())
        places = [len(data), len(data) + len(part)]
        header[name] = {
            "dtype": NAMES[x.dtype],
            "shape": list(x.shape),
            "data_offsets": places,
        }
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def sparse_weight(rows, columns, kind=torch.bfloat16, seed=0):
    """A 2:4 weight and its mask; some stored values are zeros, too."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.rand(rows, columns // 4, 4, generator=generator).argsort(-1)
    mask = (ranks < 2).reshape(rows, columns)
    weight = 20 * torch.randn(rows, columns, generator=generator)
    weight[torch.rand(rows, columns, generator=generator) < 0.1] = 0
    return torch.where(mask, weight, torch.zeros(())).to(kind), mask


def bitmask(weight, mask):
    """compressed, bitmask and shape of a weight, element by element."""
    rows, columns = weight.shape
    bits = torch.zeros(rows, -(-columns // 8), dtype=torch.uint8)
    values = []
    for row, column in mask.nonzero().tolist():
        bits[row, column // 8] |= 1 << column % 8
        values.append(weight[row, column].reshape(1))
    return {
        "compressed": torch.cat(values).reshape(rows, columns // 2),
        "bitmask": bits,
        "shape": torch.tensor([[rows], [columns]]),
    }


class Small(torch.nn.Module):
    """Two linears, one of them not sparse, a norm, and a tied embedding."""

    def __init__(self, kind=torch.bfloat16):
        super().__init__()
        self.embed = torch.nn.Embedding(6, 16)
        self.up = torch.nn.Linear(16, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.down = torch.nn.Linear(32, 16, bias=False)
        self.head = torch.nn.Linear(16, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(3))
        self.to(kind)

    def forward(self, tokens):
        return self.head(self.down(self.norm(self.up(self.embed(tokens)))))


def small_checkpoint(kind=torch.bfloat16):
    """Tensors of a Small, and the dense weight of ``up``."""
    model = Small(kind)
    dense, mask = sparse_weight(32, 16, kind)
    tensors = {n: x.detach().clone() for n, x in model.state_dict().items()}
    del tensors["up.weight"], tensors["head.weight"]
    tensors |= {f"up.{name}": x for name, x in bitmask(dense, mask).items()}
    return tensors, dense
