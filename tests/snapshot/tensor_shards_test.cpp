#include "lockstep/snapshot/tensor_shards.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/comm/group_factory.h"
#include "tests/snapshot/snapshot_fixtures.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot.h"
#include "lockstep/snapshot/snapshot_reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_bits;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using torch::optim::AdamParamState;

/// A drawn model: parameters of drawn shapes, which ranks may share, and a buffer.
struct DrawnModel {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> parameters;

  explicit DrawnModel(std::mt19937& dice) {
    for (int i = 0; i < 5; ++i) {
      std::vector<std::int64_t> shape;
      for (unsigned d = dice() % 4; d > 0; --d) shape.push_back(dice() % 6);
      parameters.emplace_back(concat("p", i, ".weight"), shape);
    }
  }

  /// The values of a tensor after a step: those of no other name, step or element.
  static torch::Tensor values(
      const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t step) {
    const double first = static_cast<double>(std::hash<std::string>()(name) % 1000);
    const std::int64_t elements = TensorRange{.whole = shape}.elements();
    return (torch::arange(elements, torch::kDouble) + first + 1e4 * static_cast<double>(step))
        .to(torch::kFloat)
        .view(shape);
  }
};

/// Deals out the elements of each parameter, in an order of the dimensions: rank r gets those from
/// cuts[r] to cuts[r + 1].
struct Cut {
  std::vector<std::int64_t> order = {};
  std::vector<std::int64_t> cuts = {};
};
using Cuts = std::vector<Cut>;

// None where it would be row-major.
std::vector<std::int64_t> drawn_order(std::size_t dimensions, std::mt19937& dice) {
  std::vector<std::int64_t> row_major(dimensions);
  std::iota(row_major.begin(), row_major.end(), 0);
  std::vector<std::int64_t> order = row_major;
  if (dice() % 2 == 0) std::ranges::shuffle(order, dice);
  return order == row_major ? std::vector<std::int64_t>() : order;
}

Cuts drawn_cuts(const DrawnModel& model, int ranks, std::mt19937& dice) {
  Cuts cuts;
  for (const auto& [name, shape] : model.parameters) {
    const std::int64_t elements = TensorRange{.whole = shape}.elements();
    std::vector<std::int64_t> own{0, elements};
    for (int rank = 1; rank < ranks; ++rank)
      own.push_back(static_cast<std::int64_t>(dice() % static_cast<unsigned>(elements + 1)));
    std::ranges::sort(own);
    cuts.push_back({drawn_order(shape.size(), dice), own});
  }
  return cuts;
}

/// One rank's part of it, with an optimizer. Without cuts it is all, in its shapes.
class Share {
 public:
  Share(const DrawnModel& model, const Cuts& cuts, int rank) : model_(model) {
    std::vector<torch::Tensor> trained;
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      const auto& [name, shape] = model.parameters[i];
      if (!cuts.empty())
        ranges_[name] = {.whole = shape,
            .order = cuts[i].order,
            .begin = cuts[i].cuts[static_cast<std::size_t>(rank)],
            .end = cuts[i].cuts[static_cast<std::size_t>(rank) + 1]};
      if (!has(name)) continue;
      state_.insert(name, torch::zeros_like(part_of(name, DrawnModel::values(name, shape, 0))));
      if (state_[name].numel() > 0) trained.push_back(state_[name].requires_grad_());
    }
    state_.insert("norm.mean", torch::zeros({3}));
    optimizer_ = std::make_unique<torch::optim::Adam>(trained, torch::optim::AdamOptions(0.5));
  }

  const nn::NamedTensors& state() const { return state_; }
  const TensorRanges& ranges() const { return ranges_; }
  torch::optim::Adam& optimizer() { return *optimizer_; }

  /// Gives everything the values of a step.
  void set(std::int64_t step) {
    const torch::NoGradGuard no_gradients;
    for_each_value(step, [&](const std::string& name, const torch::Tensor& expected) {
      torch::Tensor(state_[name]).copy_(expected);
    });
    for (const auto& [name, shape] : model_.parameters) {
      if (!has(name) || state_[name].numel() == 0) continue;
      auto own = std::make_unique<AdamParamState>();
      own->step(step);
      own->exp_avg(part_of(name, DrawnModel::values(name + "1", shape, step)).clone());
      own->exp_avg_sq(part_of(name, DrawnModel::values(name + "2", shape, step)).clone());
      optimizer_->state()[state_[name].unsafeGetTensorImpl()] = std::move(own);
    }
  }

  void expect(std::int64_t step) const {
    for_each_value(step, [&](const std::string& name, const torch::Tensor& expected) {
      SCOPED_TRACE(name);
      expect_same_bits(state_[name], expected);
    });
    for (const auto& [name, shape] : model_.parameters) {
      if (!has(name) || state_[name].numel() == 0) continue;
      SCOPED_TRACE(name);
      const auto found = optimizer_->state().find(state_[name].unsafeGetTensorImpl());
      ASSERT_NE(found, optimizer_->state().end());
      const auto& own = static_cast<const AdamParamState&>(*found->second);
      EXPECT_EQ(own.step(), step);
      expect_same_bits(own.exp_avg(), part_of(name, DrawnModel::values(name + "1", shape, step)));
      expect_same_bits(
          own.exp_avg_sq(), part_of(name, DrawnModel::values(name + "2", shape, step)));
    }
  }

 private:
  // Ranks share no tensor without elements; of the others a rank may have nothing.
  bool has(const std::string& name) const {
    const auto range = ranges_.find(name);
    return range == ranges_.end() || range->second.elements() == 0 || range->second.size() > 0;
  }

  torch::Tensor part_of(const std::string& name, const torch::Tensor& whole) const {
    const auto found = ranges_.find(name);
    if (found == ranges_.end() || found->second.elements() == 0) return whole;
    const TensorRange& range = found->second;
    return (range.order.empty() ? whole : whole.permute(range.order))
        .flatten()
        .slice(0, range.begin, range.end)
        .view(range.sizes());
  }

  void for_each_value(std::int64_t step, const auto& body) const {
    for (const auto& [name, shape] : model_.parameters)
      if (has(name)) body(name, part_of(name, DrawnModel::values(name, shape, step)));
    body("norm.mean", DrawnModel::values("norm.mean", {3}, step));
  }

  const DrawnModel& model_;
  nn::NamedTensors state_{"Tensor"};
  TensorRanges ranges_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
};

/// A start of a run: expects the state of `before`, 0 if there is none, and saves that of `step`.
void go_on(const fs::path& run, const DrawnModel& model, const Cuts& cuts, int ranks,
    std::int64_t before, std::int64_t step) {
  testing::run_ranks(ranks, [&](const ProcessGroup& world) {
    Share share(model, cuts, world.rank());
    Snapshot snapshot(run, world);
    EXPECT_EQ(snapshot.load(share.state(), share.ranges(), share.optimizer()).step, before);
    if (before > 0) share.expect(before);
    share.set(step);
    snapshot.save(share.state(), share.ranges(), share.optimizer(), {.step = step});
    snapshot.wait();
  });
}

// Also by a program that has the model whole, on one rank.
TEST(SnapshotShards, DrawnPartsOfNRanksAreReadByMRanks) {
  std::mt19937 dice(46);
  for (int round = 0; round < 6; ++round) {
    const DrawnModel model(dice);
    const TemporaryFolder run;
    for (std::int64_t step = 1; step <= 5; ++step) {
      SCOPED_TRACE(concat("round ", round, ", step ", step));
      const int ranks = 1 + static_cast<int>(dice() % 4);
      const Cuts cuts = step == 3 ? Cuts() : drawn_cuts(model, ranks, dice);
      go_on(run.path(), model, cuts, cuts.empty() ? 1 : ranks, step - 1, step);
    }
  }
}

// Two ranks with halves of one tensor.
Cuts halves(std::int64_t elements) { return {{.cuts = {0, elements / 2, elements}}}; }

struct OneTensor : DrawnModel {
  explicit OneTensor(std::vector<std::int64_t> shape) : DrawnModel(dice_) {
    parameters = {{"w", std::move(shape)}};
  }

 private:
  std::mt19937 dice_{1};
};

TEST(SnapshotShards, AWholeOfAnotherShapeIsADataError) {
  const TemporaryFolder run;
  go_on(run.path(), OneTensor({4, 6}), halves(24), 2, 0, 1);
  const OneTensor other({6, 4});
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    Share share(other, halves(24), world.rank());
    Snapshot snapshot(run.path(), world);
    EXPECT_THAT(testing::message_of<DataError>(
                    [&] { (void)snapshot.load(share.state(), share.ranges(), share.optimizer()); }),
        HasSubstr(
            "w: a tensor of shape (4, 6) was saved, a part of one of shape (6, 4) is needed"));
    EXPECT_EQ(share.state()["w"].sum().item<float>(), 0);
  });
}

// As ranks of two copies of a model do.
TEST(SnapshotShards, OfRanksThatHoldTheSameOneWrites) {
  const TemporaryFolder run;
  const OneTensor model({4, 6});
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    Share share(model, halves(24), world.rank() % 2);
    Snapshot snapshot(run.path(), world);
    EXPECT_EQ(snapshot.load(share.state(), share.ranges(), share.optimizer()).step, 0);
    share.set(1);
    snapshot.save(share.state(), share.ranges(), share.optimizer(), {.step = 1});
    snapshot.wait();
  });
  go_on(run.path(), model, halves(24), 2, 1, 2);
}

TEST(SnapshotShards, AReaderGivesTheNamesAndElementsThatAreWanted) {
  const TemporaryFolder run;
  const OneTensor model({4, 6});
  go_on(run.path(), model, halves(24), 2, 0, 7);
  const SnapshotReader reader(SnapshotFolder(run.path()).newest());
  const torch::Tensor whole = DrawnModel::values("w", {4, 6}, 7).cpu();
  expect_same_bits(reader.model()["w"], whole);
  for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 5}, {12, 24}, {7, 19}}) {
    const WantedTensors wanted{.ranges = {{"w", {.whole = {4, 6}, .begin = begin, .end = end}}}};
    expect_same_bits(
        reader.model(wanted)["w"], whole.flatten().slice(0, begin, end).view({1, end - begin}));
    EXPECT_EQ(reader.optimizer(wanted).tensors["w/exp_avg"].numel(), end - begin);
  }
  const WantedTensors none{.ranges = {{"w", {.whole = {4, 6}, .begin = 3, .end = 3}}}};
  EXPECT_FALSE(reader.model(none).contains("w"));
  EXPECT_TRUE(reader.optimizer(none).tensors.is_empty());
  EXPECT_THAT(reader.model({.names = {{"norm.mean"}}}).keys(), ::testing::ElementsAre("norm.mean"));
  EXPECT_TRUE(reader.optimizer({.names = {{"norm.mean"}}}).tensors.is_empty());
  EXPECT_FALSE(fs::exists(reader.path() / "model.safetensors.index.json"));
}

TEST(SnapshotShards, ATensorOfAnotherSizeThanItsRangeIsRefused) {
  const TensorRanges ranges{{"w", {.whole = {8}, .begin = 0, .end = 4}}};
  EXPECT_THROW((void)shard_of({.tensors = testing::named("w", torch::ones({8}))}, ranges, true),
      InvalidArgument);
}

// What is not covered is given up by name, and the snapshot before stays.
TEST(SnapshotShards, AGapBetweenTheRanksIsNeverCommitted) {
  const TemporaryFolder run;
  const OneTensor model({4, 6});
  go_on(run.path(), model, halves(24), 2, 0, 1);
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    const TensorRange range{
        .whole = {4, 6}, .begin = 13 * world.rank(), .end = 12 + 12 * world.rank()};
    SnapshotPart part;
    part.files[snapshot_file_name("model", world.rank(), 2)] = shard_of(
        {.tensors = testing::named("w", torch::ones({range.size()}))}, {{"w", range}}, false);
    if (world.rank() == 0) part.state = "{}";
    saver.save(2, part);
    saver.finish();
    const auto warnings = saver.take_warnings();
    ASSERT_EQ(warnings.size(), 1U);
    testing::expect_parts(warnings[0],
        {"elements [12, 13) of the tensor \"w\" of shape (4, 6) are in no part",
            "model-00001-of-00002.safetensors and ", "model-00002-of-00002.safetensors"});
  });
  EXPECT_EQ(SnapshotFolder(run.path()).newest().manifest.step, 1);
  EXPECT_THAT(testing::names_in(run.path() / "snapshots"),
      ::testing::ElementsAre("LATEST", "step-00000001"));
}

// Hashes are right, and yet it is not whole.
TEST(SnapshotShards, ASnapshotWithAGapIsRefusedForTheOneBefore) {
  const TemporaryFolder run;
  const OneTensor model({4, 6});
  for (const std::int64_t step : {1, 2}) go_on(run.path(), model, halves(24), 2, step - 1, step);
  SnapshotChoice newest = SnapshotFolder(run.path()).newest();
  ASSERT_EQ(newest.manifest.step, 2);
  EXPECT_TRUE(newest.manifest.has_parts);
  const std::string name = "model-00001-of-00002.safetensors",
                    other = "optimizer-00001-of-00002.safetensors";
  fs::copy_file(newest.path / other, newest.path / name, fs::copy_options::overwrite_existing);
  auto& files = newest.manifest.files;
  const auto place = std::ranges::find(files, name, &SnapshotFile::name);
  *place = *std::ranges::find(files, other, &SnapshotFile::name);
  place->name = name;
  std::ofstream(newest.path / "manifest.json") << to_json(newest.manifest);
  const SnapshotChoice choice = SnapshotFolder(run.path()).newest();
  EXPECT_EQ(choice.manifest.step, 1);
  ASSERT_EQ(choice.refused.size(), 1U);
  EXPECT_THAT(choice.refused[0].reason, HasSubstr("elements [12, 24) of the tensor \"w/exp_avg"));
}

}  // namespace
}  // namespace lockstep
