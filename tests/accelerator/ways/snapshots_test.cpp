// Snapshots of devices that train on while they are copied and written.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <gmock/gmock.h>
#include <map>
#include <string>
#include <vector>

#include "tests/accelerator/ways/trained_way.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_reader.h"

namespace lockstep::emulated {
namespace {

// Of a run that is saved after each step, and reads its loss after each second one.
TrainOptions saved_often(
    const TrainedWay& way, const std::string& model, const std::string& output) {
  TrainOptions options = run_options(way, model, output);
  options.limits = {.steps = 4};
  options.val_interval = -1;
  options.ema = EmaSettings{.decay = 0.5};
  options.snapshots = {.unit = SnapshotUnit::kSteps, .count = 1, .keep = 10};
  return options;
}

// What there is after a step: of the meters, what no clock says.
std::map<std::string, std::string> saved_at(std::int64_t step, const TrainOptions& options) {
  const std::filesystem::path path =
      std::filesystem::path(options.output) / kSnapshots / snapshot_name(step);
  const SnapshotManifest manifest = verify_snapshot(path);
  std::map<std::string, std::string> saved;
  for (const SnapshotFile& file : manifest.files)
    if (file.name.starts_with("model") || file.name.starts_with("optim"))
      saved[file.name] = file.sha256;
  const SnapshotReader reader({.path = path, .manifest = manifest, .refused = {}});
  for (int rank = 0; rank < reader.ranks(); ++rank)
    for (const int number : {0, 1, 2})
      saved[concat("meter ", rank, ' ', number)] =
          concat(std::bit_cast<std::int64_t>(reader.rank(rank)["meter"][number].item<double>()));
  return saved;
}

class SavedWays : public ::testing::TestWithParam<TrainedWay> {
 protected:
  void SetUp() override { Runtime::get().set_late_events(true); }
  void TearDown() override { Runtime::get().set_late_events(false); }

  TrainOptions options_in(const std::string& run, const std::string& model = "mnist-small") const {
    return saved_often(GetParam(), model, folder_.file(run));
  }

  // With the snapshots of a run that ends at the step: no later one can be in them.
  void expect_states_of_steps(
      const TrainOptions& whole, TrainOptions part, const std::vector<std::int64_t>& steps) {
    train_on(torch::kPrivateUse1, GetParam(), whole);
    for (const std::int64_t step : steps) {
      part.limits.steps = step;
      part.output = folder_.file(concat("until-", step));
      train_on(torch::kPrivateUse1, GetParam(), part);
      EXPECT_EQ(saved_at(step, whole), saved_at(step, part)) << "step " << step;
    }
  }

  testing::TemporaryFolder folder_;
};

TEST_P(SavedWays, HoldTheStateOfTheirStep) {
  const TrainOptions whole = options_in("whole");
  expect_states_of_steps(whole, whole, {1, 2, 3});
}

TEST_P(SavedWays, LetNoThreadThatTrainsWait) {
  const auto waits_of = [&](SnapshotUnit unit) {
    TrainOptions options = options_in(concat("unit-", static_cast<int>(unit)));
    options.snapshots = {.unit = unit, .count = 1};
    std::atomic<std::int64_t> waits = 0;
    train_on(torch::kPrivateUse1, GetParam(), options, &waits);
    return waits.load();
  };
  const std::int64_t without = waits_of(SnapshotUnit::kNever);
  EXPECT_GT(without, 0) << "the loss is read";
  EXPECT_EQ(waits_of(SnapshotUnit::kSteps), without);
}

TEST_P(SavedWays, NothingIsSavedThatHasDiverged) {
  TrainOptions options = options_in("diverged");
  options.optimizer.lr = 1e60;
  options.log_interval = 1000;
  EXPECT_THROW(train_on(torch::kPrivateUse1, GetParam(), options), DivergedError);
  EXPECT_TRUE(SnapshotFolder(options.output).newest().path.empty());
}

INSTANTIATE_TEST_SUITE_P(All, SavedWays,
    ::testing::Values(TrainedWay{"serial"}, TrainedWay{"ddp", Parallel::kDdp, 2},
        TrainedWay{"ddp_nccl", Parallel::kDdp, 2, 1, true}, TrainedWay{"pp", Parallel::kPp, 1, 2},
        TrainedWay{"pp_over_ranks_nccl", Parallel::kPp, 2, 1, true}),
    name_of_way);

using SavedBuffers = SavedWays;

// Forward itself changes the statistics of batch norm.
TEST_P(SavedBuffers, HoldTheStateOfTheirStep) {
  TrainOptions whole = options_in("whole", "resnet18-cifar");
  whole.batch_size = 2;
  whole.limits.steps = 2;
  whole.optimizer.kind = OptimizerKind::kSgd;
  whole.ema.reset();
  expect_states_of_steps(whole, whole, {1});
}

INSTANTIATE_TEST_SUITE_P(All, SavedBuffers, ::testing::Values(TrainedWay{"serial"}), name_of_way);

bool has_overflow(const std::vector<at::Tensor>& tensors) {
  const std::int64_t waits = Runtime::waits_of_this_thread();
  const auto overflows = nn::overflows_of(tensors);
  EXPECT_EQ(Runtime::waits_of_this_thread(), waits);
  return std::ranges::any_of(
      overflows, [](const at::Tensor& overflow) { return overflow.item<bool>(); });
}

TEST(Overflows, AreFoundOnEachDeviceWithoutAWait) {
  install();
  const torch::Device first(c10::kPrivateUse1, 0), second(c10::kPrivateUse1, 1);
  const at::Tensor fine = at::ones({3}, first), empty = at::empty({0}, first),
                   count = at::ones({2}, at::TensorOptions(at::kLong).device(first));
  EXPECT_FALSE(has_overflow({fine, empty, count}));
  for (const torch::Device& device : {first, second}) {
    EXPECT_TRUE(has_overflow({fine, torch::tensor({1.0F, -INFINITY}).to(device)}));
    EXPECT_TRUE(has_overflow({fine, torch::tensor({NAN, 1.0F}).to(device)}));
  }
}

}  // namespace
}  // namespace lockstep::emulated
