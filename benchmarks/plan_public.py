#!/usr/bin/env python3
"""Asks `lockstep plan` for trainings that others have published, none of which took part in setting a device's rate.

    benchmarks/plan_public.py

Prints what is predicted by the profiles that come with the program, the interval that nine of ten trainings should be in, and what was
published, in samples a second of all devices; a star marks what is outside. What sets the rates stands in
lockstep/plan/model_profile.cpp: one device of each kind, with ResNet50, with BERT-Large, and on eight A100 and H100 a GPT of 1.3 billion
parameters. Here are other nets, other numbers of devices, and other programs. Sources are addresses of GitHub where nothing else stands.
"""

import json
from dataclasses import dataclass

from commands import ROOT, aligned, last_json, output_of, parser_of

PROFILES = ROOT / "bench/cli/plan/profiles"

EXAMPLES = "NVIDIA/DeepLearningExamples, {}/README.md, Training performance results"
PYTORCH = EXAMPLES.format("PyTorch/Classification/ConvNets/resnet50v1.5")
TENSORFLOW = EXAMPLES.format("TensorFlow/Classification/ConvNets/resnet50v1.5")
MXNET = EXAMPLES.format("MxNet/Classification/RN50v1.5")
PADDLE = EXAMPLES.format("PaddlePaddle/Classification/RN50v1.5")
BERT = EXAMPLES.format("TensorFlow/LanguageModeling/BERT")
TF_2017 = "tensorflow/docs, site/en/r1/guide/performance/benchmarks.md, Details for Google Compute Engine, synthetic data"
LAMBDA = "lambdal/deeplearning-benchmark, pytorch/csv_v1_v2/pytorch-train-throughput-fp{}.csv"
TITAN = "lambdal/deeplearning-benchmark, pytorch/results/TitanRTX/{}"
MLPERF_1 = "mlcommons/training_results_v1.0, NVIDIA/results/dgxa100_ngc21.05_mxnet/resnet/result_0.txt, last throughput"
MLPERF_3 = "mlcommons/training_results_v3.0, Dell/results/XE9680x8H100-SXM-80GB/resnet/result_0.txt, last throughput"
LLM_C = "karpathy/llm.c, scripts/run_gpt2_{}.sh, its head"
NANO = "karpathy/nanoGPT, README.md, efficiency notes"
NANO_110 = "karpathy/nanoGPT, issue 110"
TITAN_8B = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, Table {}"
FMS = "foundation-model-stack/fms-fsdp, README.md, its table; the link is not said there, and taken for 1600 Gbit/s"


@dataclass
class Published:
    """A training: samples a second of all devices, `batch` of each in one pass."""

    model: str
    device: str
    precision: str
    batch: int
    rate: float
    source: str
    places: int = 1
    nodes: int = 1
    way: str = "ddp"
    flags: tuple = ()
    passes: int = 1
    flops: float = 0  # of a sample, where it is not that of the profile
    remark: str = ""

    def name(self):
        devices = f"{self.nodes * self.places} {self.device}" if self.nodes * self.places > 1 else self.device
        return f"{self.model}, {devices}, {self.precision}{', ' if self.remark else ''}{self.remark}"

    def scale(self):
        """The published samples in one of the profile's, by their arithmetic."""
        if not self.flops:
            return 1
        return json.loads((PROFILES / f"{self.model}.json").read_text())["flops"] / self.flops

    def choice(self, lockstep):
        command = [lockstep, "plan", "--model", self.model, "--device", self.device, "--precision", self.precision, "--places", self.places,
                   "--nodes", self.nodes, "--batch", self.batch * self.passes * self.places * self.nodes,
                   "--ways", self.way if self.places > 1 else "serial", "--grad-accum-steps", self.passes, *self.flags, "--json"]
        return last_json(output_of([str(word) for word in command]))["choices"][0]


def of_seconds(tokens, seconds, length=1024):
    """Sequences a second of a step of so many tokens."""
    return tokens / length / seconds


def question_answering(layers, width):
    """FLOP of 384 tokens of BERT with two scores for each: products with the layers' weights, and attention."""
    return 384 * (6 * 12 * layers * width**2 + 12 * layers * width * 384)


BASE, LARGE = question_answering(12, 768), question_answering(24, 1024)
MIXED, HALF = "bf16-mixed", "16-mixed"

ROWS = [
    Published("resnet50", "A100", "32", 256, 7248, PYTORCH, 8, remark="PyTorch"),
    Published("resnet50", "A100", HALF, 256, 16621, PYTORCH, 8, remark="PyTorch"),
    Published("resnet50", "A100", HALF, 512, 26673.72, MXNET, 8, remark="MXNet"),
    Published("resnet50", "A100", HALF, 256, 23874, PADDLE, 8, remark="PaddlePaddle"),
    Published("resnet50", "A100", HALF, 408, 26698.85, MLPERF_1, 8, remark="MLPerf 1.0"),
    Published("resnet50", "H100", HALF, 408, 56088.91, MLPERF_3, 8, remark="MLPerf 3.0"),
    Published("resnet50", "V100", "32", 128, 3170, TENSORFLOW, 8, remark="TensorFlow"),
    Published("resnet50", "V100", HALF, 256, 9510, TENSORFLOW, 8, remark="TensorFlow"),
    Published("resnet50", "V100", HALF, 192, 10723, MXNET, 8, remark="MXNet"),
    Published("resnet50", "V100", HALF, 256, 6174, LAMBDA.format(16), 8, remark="Lambda"),
    Published("resnet50", "TITAN-RTX", HALF, 448, 645.76, TITAN.format("PyTorch_resnet50_AMP"), remark="Lambda"),
    Published("resnet50", "K80", "32", 64, 387, TF_2017, 8, remark="TensorFlow"),
    Published("resnet152", "K80", "32", 32, 20.0, TF_2017, remark="TensorFlow"),
    Published("resnet152", "K80", "32", 32, 148, TF_2017, 8, remark="TensorFlow"),
    Published("vgg16", "K80", "32", 32, 35.4, TF_2017, remark="TensorFlow"),
    Published("vgg16", "K80", "32", 32, 234, TF_2017, 8, remark="TensorFlow"),
    Published("bert-large", "A100", HALF, 32, 767.071, BERT, 8, flops=LARGE, remark="384 tokens, TensorFlow"),
    Published("bert-base", "A100", HALF, 320, 443, LAMBDA.format(16), flops=BASE, remark="384 tokens, Lambda"),
    Published("bert-base", "V100", HALF, 48, 189, LAMBDA.format(16), flops=BASE, remark="384 tokens, Lambda"),
    Published("bert-base", "V100", "32", 24, 42, LAMBDA.format(32), flops=BASE, remark="384 tokens, Lambda"),
    Published("bert-base", "TITAN-RTX", HALF, 52, 123.369, TITAN.format("PyTorch_bert_base_squad_FP16"), flops=BASE,
              remark="384 tokens, Lambda"),
    Published("gpt2", "A100", MIXED, 64, of_seconds(524288, 0.3), LLM_C.format("124M"), 8, flags=("--shard-optimizer",), remark="llm.c"),
    Published("gpt2-medium", "A100", MIXED, 64, of_seconds(524288, 0.82), LLM_C.format("350M"), 8, flags=("--shard-optimizer",),
              remark="llm.c"),
    Published("gpt2-xl", "H100", MIXED, 16, of_seconds(1048576, 2.8), LLM_C.format("1558M"), 8, flags=("--shard-optimizer",), passes=8,
              remark="llm.c"),
    Published("gpt2", "A100", MIXED, 12, of_seconds(12 * 5 * 8 * 1024, 0.562), NANO_110, 8, passes=5, remark="nanoGPT"),
    Published("gpt2", "A100", MIXED, 12, of_seconds(12 * 1024, 0.135), NANO, remark="nanoGPT compiled"),
    Published("gpt2", "A100", MIXED, 12, of_seconds(12 * 1024, 0.25), NANO, remark="nanoGPT eager"),
    Published("llama-3-8b", "H100", MIXED, 2, 8 * 5762 / 8192, TITAN_8B.format(1), 8, way="fsdp", remark="torchtitan"),
    Published("llama-3-8b", "H100", MIXED, 2, 8 * 6667 / 8192, TITAN_8B.format(1), 8, way="fsdp", remark="torchtitan compiled"),
    Published("llama-3-8b", "H100", MIXED, 2, 128 * 5605 / 8192, TITAN_8B.format(3), 8, 16, "fsdp", ("--link", "3200Gbit,10us"),
              remark="torchtitan"),
    Published("llama-2-7b", "A100", MIXED, 2, 128 * 3760 / 4096, FMS, 8, 16, "fsdp", ("--link", "1600Gbit,10us", "--replicas", 16),
              remark="fms-fsdp"),
]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--sources", action="store_true", help="print where each figure stands, too")
    arguments = parser.parse_args()
    rows, inside = [["training", "predicted", "interval", "published", "error"]], 0
    for row in ROWS:
        choice = row.choice(arguments.lockstep)
        predicted, least, most = (row.scale() * choice["batch"] / choice[f"{which}_seconds"] for which in ("step", "most", "least"))
        is_inside = least <= row.rate <= most
        inside += is_inside
        rows.append([row.name(), f"{predicted:.4g}", f"{least:.4g} to {most:.4g}", f"{row.rate:.4g}",
                     f"{predicted / row.rate - 1:+.0%}{'' if is_inside else ' *'}"])
    print(aligned(rows))
    print(f"{inside} of {len(ROWS)} are inside")
    if arguments.sources:
        print("\n".join(f"{row.name()}: {row.source}" for row in ROWS))


if __name__ == "__main__":
    main()
