// What a step of training waits for, and what it copies: counted by the device.

#include <gmock/gmock.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/accelerator/ways/trained_way.h"
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>

#include "lockstep/train/profile/step_profiler.h"
#include "lockstep/train/record/meter.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep::emulated {
namespace {

constexpr int kSteps = 4;
constexpr std::int64_t kImages = 8;

struct CountedWay {
  TrainedWay way;
  Counts step = {};  ///< of all ranks
};

std::ostream& operator<<(std::ostream& out, const CountedWay& counted) {
  return out << counted.way;
}

at::Tensor pinned(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options().pinned_memory(true)).copy_(tensor);
}

Batch random_images() {
  return {pinned(at::rand({kImages, 1, 28, 28})),
      pinned(at::randint(10, {kImages}, at::TensorOptions(torch::kLong)))};
}

TrainOptions options_of(const TrainedWay& way) {
  TrainOptions options;
  options.model = "mnist-small";
  options.parallel = way.parallel;
  options.batch_size = kImages;
  options.precision = way.precision;
  if (way.precision == Precision::k16Mixed) options.optimizer.kind = OptimizerKind::kAdam;
  if (way.places > 1) options.places = way.places;
  if (way.parallel == Parallel::kPp || way.parallel == Parallel::kDdpPp) {
    options.pipeline.balance = Balance::kCount;
    options.pipeline.chunks = 2;
  }
  return options;
}

std::unique_ptr<Replica> replica_of(const TrainedWay& way, const ProcessGroup& world) {
  const auto places = run_places(way, c10::kPrivateUse1, world.rank());
  const ProcessGroup group = world.with_devices(devices_of(places));
  const TrainOptions options = options_of(way);
  const Layout layout = plan_layout(options, group.size());
  return make_replica(options, layout, {{1, 28, 28}, 10}, make_rank_groups(group, layout), places);
}

void make_steps(Replica& replica, Meter& meter, int count) {
  for (int step = 0; step < count; ++step) {
    meter.add(replica.backward(random_images(), {}, step), kImages);
    meter.add_step(replica.update(0.01));
  }
}

// Returns what the steps after the first two came to, in the mean of a step.
Counts counts_of(const TrainedWay& way) {
  install();
  const UseEmulatedNccl nccl;
  Counts counts;
  run_ranks(way.ranks, [&](const ProcessGroup& world) {
    const auto replica = replica_of(way, world);
    replica->set_training(true);
    Meter meter{ProcessGroup()};
    make_steps(*replica, meter, 2);
    world.barrier().wait();
    if (world.rank() == 0) Runtime::get().take_counts();
    world.barrier().wait();
    make_steps(*replica, meter, kSteps);
    world.barrier().wait();
    if (world.rank() == 0) counts = Runtime::get().take_counts();
    world.barrier().wait();
  });
  return counts;
}

class HostWaits : public ::testing::TestWithParam<CountedWay> {};

TEST_P(HostWaits, AStepWaitsForNothingAndCopiesTheBatchOnly) {
  const Counts counts = counts_of(GetParam().way), &step = GetParam().step;
  EXPECT_GT(counts.kernels + counts.copies_to_device, 0);
  EXPECT_EQ(counts.host_waits, 0);
  EXPECT_EQ(counts.copies_to_host, 0);
  EXPECT_EQ(counts.copies_to_device, kSteps * step.copies_to_device);
  EXPECT_EQ(counts.copies_between_devices, kSteps * step.copies_between_devices);
}

INSTANTIATE_TEST_SUITE_P(All, HostWaits,
    ::testing::Values(CountedWay{{"serial"}, {.copies_to_device = 2}},
        CountedWay{{"ddp", Parallel::kDdp, 2}, {.copies_to_device = 4}},
        CountedWay{
            {"dp", Parallel::kDp, 1, 2}, {.copies_to_device = 2, .copies_between_devices = 5}},
        // An activation and its gradient for each of two micro-batches, and the labels.
        CountedWay{
            {"pp", Parallel::kPp, 1, 2}, {.copies_to_device = 2, .copies_between_devices = 5}},
        CountedWay{{"pp_over_ranks", Parallel::kPp, 2}, {.copies_to_device = 4}},
        CountedWay{{"ddp_pp", Parallel::kDdpPp, 2, 2},
            {.copies_to_device = 4, .copies_between_devices = 10}},
        CountedWay{
            {.name = "serial_in_half", .precision = Precision::k16Mixed}, {.copies_to_device = 2}},
        CountedWay{{.name = "ddp_in_half",
                       .parallel = Parallel::kDdp,
                       .ranks = 2,
                       .precision = Precision::k16Mixed},
            {.copies_to_device = 4}},
        CountedWay{{.name = "dp_in_half",
                       .parallel = Parallel::kDp,
                       .places = 2,
                       .precision = Precision::k16Mixed},
            {.copies_to_device = 2, .copies_between_devices = 5}},
        // The scale goes to the last stage, its inverse and the decision to the second, what that
        // found to the first.
        CountedWay{{.name = "pp_in_half",
                       .parallel = Parallel::kPp,
                       .places = 2,
                       .precision = Precision::k16Mixed},
            {.copies_to_device = 2, .copies_between_devices = 10}}),
    [](const ::testing::TestParamInfo<CountedWay>& counted) {
      return std::string(counted.param.way.name);
    });

// Those that are recorded alone: what an operator calls in turn is its own time.
std::int64_t waits_for_two_operators(std::optional<c10::DeviceType> awaited) {
  const at::Tensor tensor = at::rand({4}).to(c10::Device(c10::kPrivateUse1, 0));
  const OperatorRecorder recorder(nn::NamedTensors("Tensor"), awaited);
  const std::int64_t before = Runtime::waits_of_this_thread();
  SpanRecorder::start();
  tensor.add(1).relu();
  SpanRecorder::stop();
  SpanRecorder::take();
  return Runtime::waits_of_this_thread() - before;
}

TEST(HostWaitsOfAProfile, AreOneForEachOperator) {
  install();
  EXPECT_EQ(waits_for_two_operators(c10::kPrivateUse1), 2);
  EXPECT_EQ(waits_for_two_operators(std::nullopt), 0);
}

}  // namespace
}  // namespace lockstep::emulated
