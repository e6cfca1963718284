// What the trainer does about devices, beside training on them.

#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "tests/accelerator/runtime.h"
#include "tests/support/temporary_folder.h"
#include <ATen/Context.h>
#include <ATen/ops/rand.h>

#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/train/trainer.h"

namespace lockstep::emulated {
namespace {

const torch::Device kOwn(c10::kPrivateUse1, 1);

TrainOptions short_run(const std::string& output) {
  TrainOptions options;
  options.model = "mnist-small";
  options.data.name = "mock";
  options.batch_size = 4;
  options.limit_train_batches = 2;
  options.limits = {.epochs = 1};
  options.progress = ProgressStyle::kNone;
  options.snapshots = {.unit = SnapshotUnit::kSteps, .count = 2};
  options.output = output;
  return options;
}

at::Tensor draw() { return at::rand({4}, kOwn).cpu(); }

class TrainerOnDevice : public ::testing::Test {
 protected:
  TrainerOnDevice() {
    install();
    Runtime::get().set_current_device(0);
  }
  ~TrainerOnDevice() override { Runtime::get().set_current_device(0); }

  Trainer trainer(const TrainOptions& options) const {
    return Trainer(options, ProcessGroup(), {"test"}, {{kOwn, {}}});
  }

  testing::TemporaryFolder folder_;
};

// An event that is made and destroyed beside another current device takes memory there.
TEST_F(TrainerOnDevice, ComputesInAThreadWhoseDeviceIsItsOwn) {
  const Trainer own = trainer(short_run(folder_.str() + "/run"));
  EXPECT_EQ(Runtime::get().current_device(), 1);
}

TEST_F(TrainerOnDevice, SavesAndRestoresTheGeneratorOfTheDevice) {
  TrainOptions options = short_run(folder_.str() + "/first");
  Trainer first = trainer(options);
  (void)draw();  // as an operator does that takes no generator
  first.run();
  const at::Tensor expected = draw();
  options = short_run(folder_.str() + "/second");
  options.limits.epochs = 2;
  options.resume = {.kind = Resume::kFrom, .from = folder_.str() + "/first"};
  const Trainer second = trainer(options);
  EXPECT_TRUE(draw().equal(expected));
}

// Evaluations and the end of an epoch wait; a step does not, whatever is around it in the loop.
TEST_F(TrainerOnDevice, WaitsAsOftenForAnEpochOfManySteps) {
  const auto waits_of = [&](std::int64_t batches) {
    TrainOptions options = short_run(folder_.str() + "/" + std::to_string(batches));
    options.limit_train_batches = batches;
    options.log_interval = 1000;
    options.snapshots.unit = SnapshotUnit::kNone;
    Runtime::get().take_counts();
    trainer(options).run();
    return Runtime::get().take_counts().host_waits;
  };
  EXPECT_EQ(waits_of(12), waits_of(4));
}

TEST_F(TrainerOnDevice, TheGeneratorOfADeviceIsPartOfTheRandomState) {
  const auto state = random_state({kOwn});
  const at::Tensor expected = draw();
  EXPECT_FALSE(draw().equal(expected));
  EXPECT_TRUE(restore_random_state(state, {kOwn}).empty());
  EXPECT_TRUE(draw().equal(expected));
}

}  // namespace
}  // namespace lockstep::emulated
