// Times 3x3 convolutions of ours and of oneDNN: forward, gradient of the images, gradient of the
// weights, channels-last, fp32 or bf16, the two in turn. See benchmarks/README.md.
//
//     lockstep run --no-pin -- build/release/bin/convolutions_benchmark --threads 1 --rounds 9
//
// LOCKSTEP_TEST_CPU_FEATURES=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 keeps both to
// AVX2. On one thread seconds are CPU time, so that other programs on a busy core are not counted.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "pipeline/machine_load.h"
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>

#include "bench/statistics/median.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/nn/conv/winograd.h"

namespace lockstep::benchmark {
namespace {

using bench::median;

struct Layer {
  const char* net;
  std::int64_t images, channels, side;
};

constexpr Layer kLayers[] = {{"ResNet18, 3x3 stem", 64, 64, 32},
    {"ResNet18, 3x3 stem", 64, 128, 16}, {"ResNet18, 3x3 stem", 64, 256, 8},
    {"ResNet18, 3x3 stem", 64, 512, 4}, {"VGG19", 4, 64, 224}, {"VGG19", 4, 128, 112},
    {"VGG19", 4, 256, 56}, {"VGG19", 4, 512, 28}, {"VGG19", 4, 512, 14}, {"ResNet50", 16, 64, 56},
    {"ResNet50", 16, 128, 28}, {"ResNet50", 16, 256, 14}, {"ResNet50", 16, 512, 7}};

struct Options {
  int threads = 1;
  int rounds = 9;
  bool in_bf16 = false;
};

/// One pass of a layer, by both.
struct Pass {
  const char* name;
  std::function<at::Tensor()> own, onednn;
  std::vector<double> own_seconds = {}, onednn_seconds = {};
};

std::vector<Pass> passes_of(const Layer& layer, at::ScalarType type) {
  const auto channels_last = [=](at::IntArrayRef sizes) {
    return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast).to(type);
  };
  const auto images = channels_last({layer.images, layer.channels, layer.side, layer.side});
  const auto gradient = channels_last({layer.images, layer.channels, layer.side, layer.side});
  const auto weight = channels_last({layer.channels, layer.channels, 3, 3});
  const auto& kernel = nn::conv::winograd_builds().back()->large;
  const auto backward = [=](bool of_images) {
    const auto all = at::convolution_backward(gradient, images, weight, c10::nullopt, {1, 1},
        {1, 1}, {1, 1}, false, {0, 0}, 1, {of_images, !of_images, false});
    return of_images ? std::get<0>(all) : std::get<1>(all);
  };
  return {{"forward", [=, &kernel] { return winograd_forward(kernel, images, weight, {}, 1); },
              [=] { return at::conv2d(images, weight, {}, 1, 1); }},
      {"of images", [=, &kernel] { return winograd_input_gradient(kernel, gradient, weight, 1); },
          [=] { return backward(true); }},
      {"of weights",
          [=, &kernel] { return winograd_weight_gradient(kernel, images, gradient, weight, 1); },
          [=] { return backward(false); }}};
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
  const double pixels = static_cast<double>(layer.images * layer.side * layer.side);
  const double flop = 18 * pixels * static_cast<double>(layer.channels * layer.channels);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf(
      "| %s | %2ldx%3ldx%3ldx%3ld | %-10s | %7.2f | %7.2f | %4.0f | **%.2f** (%.2f to %.2f) |\n",
      layer.net, layer.images, layer.channels, layer.side, layer.side, pass.name, own * 1e3,
      onednn * 1e3, flop / onednn * 1e-9, onednn / own, *least, *most);
  std::fflush(stdout);
}

// The first round is to warm up.
void measure(const Layer& layer, const Options& options) {
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
              flag("--bf16", "", "images and weights are bf16", &Options::in_bf16)}}});
  const auto request = table.request({values + 1, values + count}, std::cout);
  if (!request) return 0;
  const Options& options = *request;
  const at::NoGradGuard no_grad;
  at::set_num_threads(options.threads);
  const MachineLoad load;
  std::printf("%s\nours: %s; threads %d, rounds %d, %s time\n\n", machine_description().c_str(),
      nn::conv::winograd_builds().back()->name, options.threads, options.rounds,
      options.threads == 1 ? "CPU" : "wall-clock");
  std::puts(
      "| net | layer | pass | ours, ms | oneDNN, ms | its GFLOP/s | **ratio of medians** (by "
      "round) |");
  std::puts("|---|---|---|---|---|---|---|");
  for (const Layer& layer : kLayers) measure(layer, options);
  std::printf("\nother programs used %.1f %% of the machine\n", 100 * load.others(1));
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  return lockstep::run_program("convolutions_benchmark", lockstep::benchmark::run, argc, argv);
}
