// Times convolutions of ours and of LibTorch, which are oneDNN's: forward, gradient of the images,
// gradient of the weights, channels-last, fp32 or bf16, the two in turn. See benchmarks/README.md.
//
//     lockstep run --no-pin -- build/release/bin/convolutions_benchmark --threads 1 --rounds 9
//
// Ours are those of --kernels own, so the table shows also where `auto` leaves a layer to oneDNN.
// LOCKSTEP_TEST_CPU_FEATURES=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 keeps both to
// AVX2. On one thread seconds are CPU time, so that other programs on a busy core are not counted.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/machine_load.h"
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/statistics/median.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/conv/winograd.h"

namespace lockstep::benchmark {
namespace {

using bench::median;

struct Layer {
  const char* net;
  std::int64_t images, inputs, outputs, side;
  std::int64_t kernel = 3, stride = 1, groups = 1;

  std::int64_t padding() const { return kernel / 2; }
  std::int64_t out_side() const { return (side + 2 * padding() - kernel) / stride + 1; }
};

constexpr Layer kLayers[] = {{"ResNet18, 3x3 stem", 64, 64, 64, 32},
    {"ResNet18, 3x3 stem", 64, 128, 128, 16}, {"ResNet18, 3x3 stem", 64, 256, 256, 8},
    {"ResNet18, 3x3 stem", 64, 512, 512, 4}, {"VGG19", 4, 64, 64, 224}, {"VGG19", 4, 128, 128, 112},
    {"VGG19", 4, 256, 256, 56}, {"VGG19", 4, 512, 512, 28}, {"VGG19", 4, 512, 512, 14},
    {"ResNet50", 16, 64, 64, 56}, {"ResNet50", 16, 128, 128, 28}, {"ResNet50", 16, 256, 256, 14},
    {"ResNet50", 16, 512, 512, 7}, {"ResNet50, 1x1", 16, 64, 256, 56, 1},
    {"ResNet50, 1x1", 16, 256, 64, 56, 1}, {"ResNet50, 1x1", 16, 512, 128, 28, 1},
    {"ResNet50, 1x1", 16, 256, 1024, 14, 1}, {"ResNet50, 1x1", 16, 2048, 512, 7, 1},
    {"ResNet50, shortcut", 16, 256, 512, 56, 1, 2}, {"ResNet50, shortcut", 16, 512, 1024, 28, 1, 2},
    {"ResNet50, shortcut", 16, 1024, 2048, 14, 1, 2}, {"ResNet50, strided", 16, 128, 128, 56, 3, 2},
    {"ResNet50, strided", 16, 256, 256, 28, 3, 2}, {"ResNet50, strided", 16, 512, 512, 14, 3, 2},
    {"ResNet50, stem", 16, 3, 64, 224, 7, 2}, {"ResNet18, strided", 64, 64, 128, 32, 3, 2},
    {"ResNet18, strided", 64, 256, 512, 8, 3, 2}, {"MobileNetV3, stem", 32, 3, 16, 224, 3, 2},
    {"ConvNeXt, strided", 64, 40, 80, 16, 2, 2}, {"EfficientNet, 1x1", 16, 96, 24, 56, 1},
    {"EfficientNet, 1x1", 16, 112, 672, 14, 1},
    {"EfficientNet, depthwise", 16, 32, 32, 112, 3, 1, 32},
    {"EfficientNet, depthwise", 16, 96, 96, 112, 3, 2, 96},
    {"EfficientNet, depthwise", 16, 144, 144, 56, 3, 1, 144},
    {"EfficientNet, depthwise", 16, 240, 240, 28, 3, 2, 240},
    {"EfficientNet, depthwise", 16, 480, 480, 14, 3, 1, 480},
    {"EfficientNet, depthwise", 16, 1152, 1152, 7, 3, 1, 1152},
    {"MobileNetV3, depthwise", 64, 72, 72, 24, 3, 2, 72},
    {"EfficientNet, depthwise", 16, 144, 144, 56, 5, 2, 144},
    {"EfficientNet, depthwise", 16, 144, 144, 56, 5, 1, 144},
    {"EfficientNet, depthwise", 16, 672, 672, 14, 5, 1, 672}};

struct Options {
  int threads = 1;
  int rounds = 9;
  bool in_bf16 = false;
  std::string only;
};

/// One pass of a layer, by both.
struct Pass {
  const char* name;
  std::function<at::Tensor()> own, onednn;
  std::vector<double> own_seconds = {}, onednn_seconds = {};
};

/// A layer as one side computes it.
struct Side {
  const Layer& layer;
  nn::Kernels who;
  at::Tensor images, weight;

  Side(const Layer& of, nn::Kernels computes, at::ScalarType type)
      : layer(of),
        who(computes),
        images(drawn({of.images, of.inputs, of.side, of.side}, type)),
        weight(drawn({of.outputs, of.inputs / of.groups, of.kernel, of.kernel}, type)) {}

  static at::Tensor drawn(at::IntArrayRef sizes, at::ScalarType type) {
    const auto values = at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
    return values.to(type).requires_grad_();
  }

  at::Tensor convolved() const {
    const std::int64_t one = 1, padding = layer.padding();
    return nn::conv::conv2d({.images = images,
                                .weight = weight,
                                .bias = {},
                                .stride = layer.stride,
                                .padding = padding,
                                .dilation = one,
                                .groups = layer.groups},
        who);
  }

  std::function<at::Tensor()> forward() const {
    return [side = *this] {
      const at::NoGradGuard no_grad;
      return side.convolved();
    };
  }

  std::function<at::Tensor()> backward(const at::Tensor& of) const {
    const auto output = convolved();
    const auto gradient = at::randn_like(output);
    return [=] { return torch::autograd::grad({output}, {of}, {gradient}, true)[0]; };
  }
};

std::vector<Pass> passes_of(const Layer& layer, at::ScalarType type) {
  const Side own(layer, nn::Kernels::kOwn, type), theirs(layer, nn::Kernels::kLibTorch, type);
  return {{"forward", own.forward(), theirs.forward()},
      {"of images", own.backward(own.images), theirs.backward(theirs.images)},
      {"of weights", own.backward(own.weight), theirs.backward(theirs.weight)}};
}

double timed(const std::function<at::Tensor()>& run, bool of_cpu) {
  const double cpu = cpu_seconds();
  const Stopwatch watch;
  const at::Tensor result = run();
  return of_cpu ? cpu_seconds() - cpu : watch.seconds();
}

void report(const Layer& layer, const Pass& pass) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < pass.own_seconds.size(); ++round)
    ratios.push_back(pass.onednn_seconds[round] / pass.own_seconds[round]);
  const double own = median(pass.own_seconds), onednn = median(pass.onednn_seconds);
  const double pixels = static_cast<double>(layer.images * layer.out_side() * layer.out_side());
  const std::int64_t inputs = layer.inputs / layer.groups;  // of an output
  const double flop =
      2 * pixels * static_cast<double>(inputs * layer.outputs * layer.kernel * layer.kernel);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf(
      "| %s | %2ldx%3ldx%3ldx%3ld to %ld | %-10s | %7.2f | %7.2f | %4.0f | **%.2f** (%.2f to %.2f) "
      "|\n",
      layer.net, layer.images, layer.inputs, layer.side, layer.side, layer.outputs, pass.name,
      own * 1e3, onednn * 1e3, flop / onednn * 1e-9, onednn / own, *least, *most);
  std::fflush(stdout);
}

// The first round is to warm up. Of bf16 only those of Winograd's form are ours.
void measure(const Layer& layer, const Options& options) {
  const bool is_winograds = layer.kernel == 3 && layer.stride == 1 && layer.groups == 1;
  if (options.in_bf16 && !is_winograds) return;
  auto passes = passes_of(layer, options.in_bf16 ? at::kBFloat16 : at::kFloat);
  const bool of_cpu = options.threads == 1;
  for (int round = 0; round <= options.rounds; ++round) {
    for (Pass& pass : passes) {
      const double own = timed(pass.own, of_cpu), onednn = timed(pass.onednn, of_cpu);
      if (round == 0) continue;
      pass.own_seconds.push_back(own);
      pass.onednn_seconds.push_back(onednn);
    }
  }
  for (const Pass& pass : passes) report(layer, pass);
}

int run(int count, char** values) {
  const FlagTable<Options> table({"convolutions_benchmark", "convolutions_benchmark [flags]",
                                     "Times convolutions of ours and of oneDNN.\n", ""},
      {{"Flags",
          {flag("--threads", "N", "threads of each", &Options::threads).from(1).to(1024),
              flag("--rounds", "N", "that are measured", &Options::rounds).from(1).to(10'000),
              flag("--bf16", "", "images and weights are bf16", &Options::in_bf16),
              flag("--only", "TEXT", "layers whose net has this in its name", &Options::only)}}});
  const auto request = table.request({values + 1, values + count}, std::cout);
  if (!request) return 0;
  const Options& options = *request;
  at::set_num_threads(options.threads);
  const MachineLoad load;
  std::printf("%s\nours: %s; threads %d, rounds %d, %s time\n\n", machine_description().c_str(),
      nn::conv::winograd_builds().back()->name, options.threads, options.rounds,
      options.threads == 1 ? "CPU" : "wall-clock");
  std::puts(
      "| net | layer | pass | ours, ms | oneDNN, ms | its GFLOP/s | **ratio of medians** (by "
      "round) |");
  std::puts("|---|---|---|---|---|---|---|");
  for (const Layer& layer : kLayers)
    if (std::string_view(layer.net).find(options.only) != std::string_view::npos)
      measure(layer, options);
  std::printf("\nother programs used %.1f %% of the machine\n", 100 * load.others(1));
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  return lockstep::run_program("convolutions_benchmark", lockstep::benchmark::run, argc, argv);
}
