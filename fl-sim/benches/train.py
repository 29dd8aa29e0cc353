"""PyTorch's side of `fl-sim bench-train --beside PYTHON`: steps of the same model on data of the same shape.

Reads one JSON object a line: {"name", "settings", "shape", "classes", "text", "batch", "steps", "device", "precision"}; answers each with
the seconds of wall and of CPU time that the steps took. The same model and batch are kept between lines that are equal.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, work, settings):
        super().__init__()
        widths = [work["inputs"], *settings.get("hidden", [200]), work["classes"]]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


def lenet(work, settings):
    channels, height = work["shape"][:2]
    pad = 2 if height < 32 else 0
    side = ((height + 2 * pad - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=pad), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * side * side, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, work["classes"]))


def cnn(work, settings):
    channels, height = work["shape"][:2]
    side = ((height - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * side * side, 512), nn.ReLU(), nn.Linear(512, work["classes"]))


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck, norm):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        conv = lambda a, b, kernel, stride: nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False)
        if bottleneck:
            parts = [conv(inputs, width, 1, 1), norm(width), nn.ReLU(), conv(width, width, 3, stride), norm(width), nn.ReLU(),
                     conv(width, outputs, 1, 1), norm(outputs)]
        else:
            parts = [conv(inputs, width, 3, stride), norm(width), nn.ReLU(), conv(width, width, 3, 1), norm(width)]
        self.body = nn.Sequential(*parts)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), norm(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + (self.shortcut(x) if self.shortcut else x))


def resnet(work, settings):
    first, stages, bottleneck = {
        "resnet8": (16, [(16, 1), (32, 1), (64, 1)], False),
        "resnet18": (64, [(64, 2), (128, 2), (256, 2), (512, 2)], False),
        "resnet50": (64, [(64, 3), (128, 4), (256, 6), (512, 3)], True),
    }[work["name"]]
    channels, height = work["shape"][:2]
    groups = settings.get("groups", first // 2)
    norm = nn.BatchNorm2d if settings.get("norm") == "batch" else lambda n: nn.GroupNorm(groups, n)
    large = settings.get("stem", "large" if height >= 64 else "small") == "large"
    kernel, stride = (7, 2) if large else (3, 1)
    parts = [nn.Conv2d(channels, first, kernel, stride, kernel // 2, bias=False), norm(first), nn.ReLU()]
    if large:
        parts.append(nn.MaxPool2d(3, 2, 1))
    inputs = first
    for stage, (width, count) in enumerate(stages):
        for at in range(count):
            parts.append(Block(inputs, width, 2 if stage and not at else 1, bottleneck, norm))
            inputs = 4 * width if bottleneck else width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, work["classes"]))


class Lstm(nn.Module):
    def __init__(self, work, settings):
        super().__init__()
        hidden = settings.get("hidden", 200)
        width = settings.get("embedding", hidden)
        self.encoder = nn.Embedding(work["classes"], width)
        self.rnn = nn.LSTM(width, hidden, settings.get("layers", 2), batch_first=True)
        self.decoder = nn.Linear(hidden, work["classes"])

    def forward(self, x):
        return self.decoder(self.rnn(self.encoder(x))[0]).flatten(0, 1)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


class DecoderBlock(nn.Module):
    def __init__(self, settings, llama):
        super().__init__()
        width = settings.get("width", 128)
        self.heads, self.llama = settings.get("heads", 4), llama
        self.groups = settings.get("key_heads", self.heads)
        self.head = width // self.heads
        units = settings.get("feed_forward", 8 * width // 3 if llama else 4 * width)
        norm = RmsNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.groups) * self.head, bias=not llama)
        self.out = nn.Linear(width, width, bias=not llama)
        self.up = nn.Linear(width, 2 * units if llama else units, bias=not llama)
        self.down = nn.Linear(units, width, bias=not llama)

    def forward(self, x, turn):
        batch, length, width = x.shape
        sizes = [self.heads * self.head, self.groups * self.head, self.groups * self.head]
        q, k, v = (part.view(batch, length, -1, self.head).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(sizes, 2))
        if turn is not None:
            cos, sin = turn
            rotate = lambda y: y * cos + torch.cat([-y[..., self.head // 2:], y[..., :self.head // 2]], -1) * sin
            q, k = rotate(q), rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = self.up(self.norm2(x))
        if self.llama:
            gate, up = h.chunk(2, -1)
            h = F.silu(gate) * up
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


class Transformer(nn.Module):
    def __init__(self, work, settings):
        super().__init__()
        width, length = settings.get("width", 128), work["shape"][2]
        self.llama = settings.get("style", "gpt2") == "llama"
        self.embedding = nn.Embedding(work["classes"], width)
        self.positions = None if self.llama else nn.Embedding(length, width)
        self.blocks = nn.ModuleList(DecoderBlock(settings, self.llama) for _ in range(settings.get("layers", 4)))
        self.norm = RmsNorm(width) if self.llama else nn.LayerNorm(width)
        self.output = nn.Linear(width, work["classes"], bias=False)
        if settings.get("tied", not self.llama):
            self.output.weight = self.embedding.weight
        half = width // settings.get("heads", 4) // 2
        angles = torch.arange(length)[:, None] * 10_000.0 ** (-torch.arange(half) / half)[None]
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        h = self.embedding(x)
        if self.positions is not None:
            h = h + self.positions.weight[: x.shape[1]]
        turn = (self.cos, self.sin) if self.llama else None
        for block in self.blocks:
            h = block(h, turn)
        return self.output(self.norm(h)).flatten(0, 1)


class Lora(nn.Module):
    def __init__(self, work, settings):
        super().__init__()
        import peft
        import transformers
        base = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
        gpt2 = base.config.model_type == "gpt2"
        rank = settings.get("rank", 8)
        self.model = peft.get_peft_model(base, peft.LoraConfig(
            task_type="CAUSAL_LM", r=rank, lora_alpha=settings.get("alpha", 2 * rank), fan_in_fan_out=gpt2,
            target_modules=settings.get("targets", ["c_attn"] if gpt2 else ["q_proj", "v_proj"])))

    def forward(self, x):
        return self.model(x, use_cache=False).logits.flatten(0, 1)


MODELS = {"mlp": Mlp, "lenet": lenet, "cnn": cnn, "resnet8": resnet, "resnet18": resnet, "resnet50": resnet, "lstm": Lstm,
          "transformer": Transformer, "lora": Lora}


class Training:
    def __init__(self, work):
        torch.manual_seed(1)
        self.device, self.bf16 = torch.device(work["device"]), work["precision"] == "bf16"
        # By default PyTorch multiplies in TF32 in convolutions, and not in other products.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = work["precision"] == "tf32"
        work["inputs"] = work["shape"][0] * work["shape"][1] * work["shape"][2]
        self.model = MODELS[work["name"]](work, work["settings"]).to(self.device)
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizers = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
        self.optimizer = optimizers[work["optimizer"]](parameters, lr=0.01, weight_decay=0.0)
        if work["compile"]:
            self.model = torch.compile(self.model)
        batch = work["batch"]
        if work["text"]:
            self.x = torch.randint(0, work["classes"], (batch, work["shape"][2]), device=self.device)
            self.y = torch.randint(0, work["classes"], (self.x.numel(),), device=self.device)
        else:
            self.x = torch.rand(batch, *work["shape"], device=self.device)
            self.y = torch.randint(0, work["classes"], (batch,), device=self.device)

    def fit(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                loss = F.cross_entropy(self.model(self.x), self.y)
            loss.backward()
            self.optimizer.step()
            loss.item()


def main():
    torch.set_num_threads(1)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    last, training = None, None
    for line in sys.stdin:
        work = json.loads(line)
        if line != last:
            last, training = line, Training(work)
            training.fit(max(1, work["steps"] // 4))
        wall, cpu = time.perf_counter(), time.process_time()
        training.fit(work["steps"])
        print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}), flush=True)


main()
