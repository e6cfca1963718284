#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_reader.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep::testing {

/// Seeds the generators that draw where tensors are made: LibTorch seeds no device of other makers.
inline void seed_all(std::uint64_t seed) {
  torch::manual_seed(seed);
  const torch::Device here = torch::empty({0}).device();
  if (!here.is_cpu())
    at::Generator(at::globalContext().defaultGenerator(here)).set_current_seed(seed);
}

/// A small net with a parameter that channels last reorders, with buffers and with dropout.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    seed_all(7);
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 2)));
    norm = register_module("norm", torch::nn::BatchNorm2d(3));
    fc = register_module("fc", torch::nn::Linear(27, 2));
    conv->to(torch::kFloat);
    conv->weight.set_data(conv->weight.data().clone(torch::MemoryFormat::ChannelsLast));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor features = norm(conv(input)).flatten(1);
    return fc(is_training() ? features * kept_of(features) : features);
  }

  // Dropout's own operator has no generator that could be saved on the emulated accelerator.
  static torch::Tensor kept_of(const torch::Tensor& features) {
    return torch::empty_like(features).bernoulli_(0.75).div_(0.75);
  }

  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(SmallNet);

/// The net with an optimizer.
struct SmallTraining {
  SmallNet net;
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(0.01)};
};

/// Makes steps `first` to `last`, the last one excluded; their inputs depend on their numbers only.
inline void train_steps(SmallNet& net, torch::optim::Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    const auto numbers = torch::arange(4 * 2 * 4 * 4, torch::kFloat) * (step + 1) * 0.37;
    optimizer.zero_grad();
    net(numbers.sin().view({4, 2, 4, 4})).square().mean().backward();
    optimizer.step();
  }
}

inline void expect_same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  ASSERT_EQ(a.scalar_type(), b.scalar_type());
  ASSERT_EQ(a.sizes(), b.sizes());
  const auto left = a.detach().cpu().contiguous(), right = b.detach().cpu().contiguous();
  EXPECT_EQ(std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()), 0);
}

inline void expect_same_bits(const nn::NamedTensors& a, const nn::NamedTensors& b) {
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& item : a) {
    SCOPED_TRACE(item.key());
    expect_same_bits(item.value(), b[item.key()]);
  }
}

/// Gives what a file would hold: tensors of their own memory, in rows.
inline nn::NamedTensors copy_of(const nn::NamedTensors& state) {
  nn::NamedTensors copy("Tensor");
  for (const auto& item : state)
    copy.insert(item.key(), item.value().detach().clone().contiguous());
  return copy;
}

/// Makes a list of one tensor.
inline nn::NamedTensors named(const std::string& name, const torch::Tensor& tensor) {
  nn::NamedTensors list("Tensor");
  list.insert(name, tensor);
  return list;
}

/// Makes the part of a rank that is a stage with one tensor, which holds the step and the
/// rank.
inline SnapshotPart part_of(const ProcessGroup& world, std::int64_t step, std::int64_t size = 100) {
  const auto value = torch::full({size}, static_cast<double>(10 * step + world.rank()));
  const auto names = snapshot_file_names(
      {.rank = world.rank(), .stage = world.rank(), .stages = world.size(), .ranks = world.size()});
  SnapshotPart part;
  part.files[names.model] = {.tensors = named(concat("weight", world.rank()), value)};
  part.files[names.rank] = {.tensors = named("own", value)};
  if (world.rank() == 0) part.state = concat("{\"step\":", step, "}");
  return part;
}

/// Lists what is in a folder, in order; nothing if it is not there.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.insert(entry.path().filename());
  }
  return {names.begin(), names.end()};
}

/// Expects the parts that part_of() makes of a step as the newest snapshot of a run.
inline void expect_snapshot(
    const std::filesystem::path& run, std::int64_t step, int ranks, std::int64_t size = 100) {
  const SnapshotChoice choice = SnapshotFolder(run).newest();
  ASSERT_FALSE(choice.path.empty());
  EXPECT_THAT(choice.refused, ::testing::IsEmpty());
  const SnapshotReader reader(choice);
  EXPECT_EQ(reader.step(), step);
  EXPECT_EQ(reader.state(), concat("{\"step\":", step, "}"));
  EXPECT_EQ(reader.ranks(), ranks);
  const auto model = reader.model();
  ASSERT_EQ(model.size(), static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = torch::full({size}, static_cast<double>(10 * step + rank));
    expect_same_bits(model[concat("weight", rank)], value);
    expect_same_bits(reader.rank(rank)["own"], value);
  }
  EXPECT_TRUE(reader.rank(ranks).is_empty());
}

}  // namespace lockstep::testing
