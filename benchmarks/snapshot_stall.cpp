// Times how long a snapshot stops training, against one memcpy of the same bytes, and how much the
// thread that writes it slows the steps meanwhile: in turn, so that whatever else the machine does
// meets all alike. See benchmarks/README.md.
//
//     snapshot_stall_benchmark --model resnet18-cifar --saves 20

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdlib.h>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>

#include "bench/statistics/median.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep::benchmark {
namespace {

using bench::median;

struct Flags {
  std::string model = "resnet18-cifar";
  std::string folder = std::filesystem::temp_directory_path();
  std::int64_t batch_size = 16;
  std::int64_t image_size = 32;
  int saves = 20;
  int threads = 1;
  double interval = 30;
};

/// A folder for the snapshots, removed at the end.
class Folder {
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/snapshot-stall-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw_errno("mkdtemp", path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Trains a model on one batch of noise.
class Training {
 public:
  explicit Training(const Flags& flags)
      : model_(nn::make_model(flags.model, 10)),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(1e-4)) {
    const std::int64_t channels = flags.model.starts_with("mnist") ? 1 : 3;
    images_ = at::rand({flags.batch_size, channels, flags.image_size, flags.image_size});
    targets_ = at::randint(10, {flags.batch_size}, torch::kLong);
  }

  void step() {
    optimizer_.zero_grad();
    at::cross_entropy_loss(model_(images_), targets_).backward();
    optimizer_.step();
  }

  SnapshotPart part() const {
    const auto named = nn::named_state(*model_);
    SnapshotPart part;
    part.files["model.safetensors"] = {.tensors = named};
    part.files["optimizer.safetensors"] = content_of(optimizer_state(optimizer_, named));
    part.files["rank-00000.safetensors"] = {.tensors = random_state()};
    part.state = "{}";
    return part;
  }

 private:
  nn::Model model_;
  nn::Adam optimizer_;
  torch::Tensor images_, targets_;
};

std::size_t bytes_of(const SnapshotPart& part) {
  std::size_t bytes = 0;
  for (const auto& [name, content] : part.files) {
    for (const auto& item : content.tensors) bytes += item.value().nbytes();
  }
  return bytes;
}

/// Copies so many bytes from one place in memory to another, both used before.
class PlainCopy {
 public:
  explicit PlainCopy(std::size_t bytes)
      : from_(at::empty({static_cast<std::int64_t>(bytes)}, torch::kByte).fill_(1)),
        to_(at::empty_like(from_).fill_(2)) {}

  double seconds() {
    const Stopwatch watch;
    std::memcpy(to_.mutable_data_ptr(), from_.const_data_ptr(), from_.nbytes());
    return watch.seconds();
  }

 private:
  torch::Tensor from_, to_;
};

void print_ratio(
    const char* what, const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < over.size(); ++i) ratios.push_back(over[i] / under[i]);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%-44s ratio of medians %6.3f  (by pair %.3f to %.3f), of the best %6.3f\n", what,
      median(over) / median(under), *least, *most,
      *std::min_element(over.begin(), over.end()) / *std::min_element(under.begin(), under.end()));
}

struct Times {
  std::vector<double> copy, stall, quiet_step, busy_step, background, durable;
};

double seconds_of_step(Training& training) {
  const Stopwatch watch;
  training.step();
  return watch.seconds();
}

// A step before each copy: both find the caches as training leaves them.
void measure_once(
    Training& training, PlainCopy& plain, SnapshotSaver& saver, int save, Times& times) {
  times.quiet_step.push_back(seconds_of_step(training));
  times.copy.push_back(plain.seconds());
  training.step();
  const Stopwatch watch;
  saver.save(save, training.part());
  times.stall.push_back(watch.seconds());
  std::vector<double> steps;
  while (saver.in_flight()) {
    steps.push_back(seconds_of_step(training));
    saver.poll();
  }
  times.durable.push_back(watch.seconds());
  times.busy_step.push_back(median(steps));
  times.background.push_back(saver.cost()->background_seconds);
}

void print_results(const Flags& flags, std::size_t bytes, const Times& first, const Times& times) {
  std::printf("%s, %.1f MB, %d thread(s), %d saves\n", flags.model.c_str(),
      static_cast<double>(bytes) / 1e6, flags.threads, flags.saves);
  std::printf(
      "memcpy %.2f ms, stall %.2f ms (the first, which makes the buffer: %.2f), in the background "
      "%.3f s of a core, durable after %.1f s; medians\n",
      median(times.copy) * 1e3, median(times.stall) * 1e3, first.stall[0] * 1e3,
      median(times.background), median(times.durable));
  print_ratio("stall / memcpy of the same bytes", times.stall, times.copy);
  print_ratio("step while a snapshot is written / otherwise", times.busy_step, times.quiet_step);
  std::printf(
      "with one every %g s: %.4f %% of the time standing still, %.4f %% of a core with the "
      "background\n",
      flags.interval, median(times.stall) / flags.interval * 100,
      (median(times.stall) + median(times.background)) / flags.interval * 100);
}

int run(int argc, char** argv) {
  const FlagTable<Flags> table({"snapshot_stall_benchmark", "snapshot_stall_benchmark [flags]",
                                   "Times how long a snapshot stops training.\n", ""},
      {{"Options", {flag("--model", "NAME", "one of lockstep's models", &Flags::model),
                       flag("--folder", "DIR", "where to write", &Flags::folder),
                       flag("--batch-size", "N", "images of a step", &Flags::batch_size),
                       flag("--image-size", "N", "their side", &Flags::image_size),
                       flag("--saves", "N", "to measure", &Flags::saves),
                       flag("--threads", "N", "that compute", &Flags::threads),
                       flag("--interval", "X", "seconds from one to the next, for the share",
                           &Flags::interval)}}});
  const auto request = table.request({argv + 1, argv + argc}, std::cout);
  if (!request) return 0;
  const Flags& flags = *request;
  at::set_num_threads(flags.threads);
  const Folder folder(flags.folder);
  Training training(flags);
  training.step();
  const std::size_t bytes = bytes_of(training.part());
  PlainCopy plain(bytes);
  SnapshotSaver saver({.run = folder.path(), .required = true}, ProcessGroup());
  Times first, times;
  measure_once(training, plain, saver, 0, first);  // makes the buffer
  for (int save = 1; save <= flags.saves; ++save) measure_once(training, plain, saver, save, times);
  print_results(flags, bytes, first, times);
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  return lockstep::run_program("snapshot_stall_benchmark", lockstep::benchmark::run, argc, argv);
}
