"""Trains nets in Python PyTorch on one device, as gpu_day.py asks: a line of JSON in, a line of JSON out, until the input ends.

One process for all, so that the import and the device's start are paid once. Asked is {"net", "precision", "batch", "image_size", "classes",
"steps", "compile"}, or {"exported", "precision", "batch", "steps"} for a net of works.py; the answer has the samples a second of the second half
of the steps and the most memory of the device, or an error. Precisions are those of `lockstep train`, and tf32. Nets are channels-last, Adam is
fused, batches lie on the device, cuDNN's kernels are chosen by time. A net that was compiled stays for the next question, if that is the same.
Needs torch, torchvision, and for some nets timm and transformers.
"""

import json
import sys
import time

import torch
from catalogue import make_net
from mnist import channels_last
from torch.nn import functional as F
from works import WORKS

DEVICE = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
IS_CUDA = DEVICE.type == "cuda"
HALF = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def wait():
    if IS_CUDA:
        torch.cuda.synchronize()


class Images:
    def __init__(self, asked):
        channels = 1 if asked["net"].startswith("mnist") else 3
        self.net = channels_last(make_net(asked["net"], asked["classes"])).to(DEVICE)
        images = torch.randn(asked["batch"], channels, asked["image_size"], asked["image_size"], device=DEVICE)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(asked["classes"], (asked["batch"],), device=DEVICE)

    def loss(self, model):
        return F.cross_entropy(model(self.images), self.labels)


class Exported:
    def __init__(self, asked):
        self.work = WORKS[asked["exported"]]
        net, (x,), _ = self.work.make()
        self.net = channels_last(net.train()).to(DEVICE)
        many = (asked["batch"], *x.shape[1:])
        self.inputs = (torch.randn(many) if x.is_floating_point() else torch.randint(self.work.words, many)).to(DEVICE)
        if x.dim() == 4:
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        self.target = torch.randint(self.work.classes, many if self.work.target == "tokens" else many[:1], device=DEVICE)

    def loss(self, model):
        scores = model(self.inputs)
        return F.cross_entropy(scores.flatten(0, -2), self.target.flatten())


class Tokens:
    def __init__(self, asked):
        import transformers

        config = transformers.GPT2Config(vocab_size=asked["classes"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        self.net = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").to(DEVICE)
        tokens = torch.randint(asked["classes"], (asked["batch"], asked["image_size"] + 1), device=DEVICE)
        self.given, self.wanted = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(self, model):
        scores = model(input_ids=self.given, use_cache=False).logits
        return F.cross_entropy(scores.float().flatten(0, 1), self.wanted.flatten())


COMPILED = {}


def stepper(asked):
    """Returns a function that makes a step: that of the last question if it was the same, and compiled."""
    key = json.dumps(asked)
    if key in COMPILED:
        return COMPILED[key]
    COMPILED.clear()
    step = new_stepper(asked)
    if asked.get("compile"):
        COMPILED[key] = step
    return step


def new_stepper(asked):
    work = (Exported if "exported" in asked else Tokens if asked["net"] == "gpt2" else Images)(asked)
    half = HALF.get(asked["precision"])
    model = torch.compile(work.net, mode="reduce-overhead" if IS_CUDA else None) if asked.get("compile") else work.net
    optimizer = torch.optim.Adam(work.net.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=half is torch.float16 and IS_CUDA)

    def step():
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, half, enabled=half is not None):
            loss = work.loss(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def train(asked):
    torch.backends.cuda.matmul.allow_tf32 = asked["precision"] == "tf32"
    torch.backends.cudnn.allow_tf32 = asked["precision"] == "tf32"
    if IS_CUDA:
        torch.cuda.reset_peak_memory_stats()
    step = stepper(asked)
    half = max(1, asked["steps"] // 2)
    for _ in range(half):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(half):
        step()
    wait()
    rate = half * asked["batch"] / (time.perf_counter() - start)
    return {"rate": rate, "peak_bytes": torch.cuda.max_memory_allocated() if IS_CUDA else 0}


def answer(asked):
    try:
        return train(asked)
    except Exception as error:  # noqa: BLE001: the day goes on with the next net
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    finally:
        if IS_CUDA:
            torch.cuda.empty_cache()


def main():
    torch.backends.cudnn.benchmark = True
    name = torch.cuda.get_device_name() if IS_CUDA else DEVICE.type
    print(json.dumps({"torch": torch.__version__, "device": name}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
