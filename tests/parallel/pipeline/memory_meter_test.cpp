#include "lockstep/parallel/place/memory_meter.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include <c10/core/Allocator.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::int64_t kBytes = 4096;

torch::Tensor some_bytes(std::int64_t times) {
  return torch::empty({times * kBytes}, torch::kUInt8);
}

// Runs in a thread of that name which takes over this thread's modes.
void in_worker(const std::string& name, const std::function<void()>& task) {
  PlaceWorker worker({}, name);
  const ThreadModes modes;
  worker.begin([&] {
    const ThreadModes::Scope scope(modes);
    task();
  });
  worker.wait();
}

TEST(MemoryMeter, CountsWhatIsAliveAndItsPeak) {
  const MemoryMeter meter;
  auto first = some_bytes(3);
  {
    const auto second = some_bytes(2);
    EXPECT_EQ(meter.total(), (MemoryUse{5 * kBytes, 5 * kBytes}));
  }
  EXPECT_EQ(meter.total(), (MemoryUse{3 * kBytes, 5 * kBytes}));
  first.reset();
  EXPECT_EQ(meter.total(), (MemoryUse{0, 5 * kBytes}));
}

TEST(MemoryMeter, WhatWasThereBeforeIsNotCounted) {
  auto before = some_bytes(7);
  const MemoryMeter meter;
  before.reset();
  EXPECT_EQ(meter.total(), MemoryUse{});
}

TEST(MemoryMeter, APeakBeginsAnewFromWhatIsAlive) {
  MemoryMeter meter;
  const auto kept = some_bytes(1);
  (void)some_bytes(4);
  meter.reset_peaks();
  EXPECT_EQ(meter.total(), (MemoryUse{kBytes, kBytes}));
}

TEST(MemoryMeter, EndsWithItsScope) {
  const MemoryMeter outer;
  {
    const MemoryMeter inner;
    const auto seen = some_bytes(1);
    EXPECT_EQ(inner.total().live, kBytes);
  }
  const auto seen = some_bytes(2);
  EXPECT_EQ(outer.total(), (MemoryUse{2 * kBytes, 2 * kBytes}));
}

TEST(MemoryMeter, ATensorCountsForTheThreadThatAllocatedIt) {
  const MemoryMeter meter;
  torch::Tensor kept;
  in_worker("maker", [&] { kept = some_bytes(3); });
  in_worker("user", [&] {
    const auto own = some_bytes(1);
    kept.reset();
  });
  EXPECT_THAT(meter.by_thread(),
      ElementsAre(Pair("maker", MemoryUse{0, 3 * kBytes}), Pair("user", MemoryUse{0, kBytes})));
  EXPECT_EQ(meter.total(), (MemoryUse{0, 4 * kBytes}));
}

// Says what an allocator would.
void report(void* address, std::int64_t bytes) {
  c10::reportMemoryUsageToProfiler(address, bytes, 0, 0, torch::kCPU);
}

// A thread without the meter's modes frees unseen; when the address comes again, it is set right.
TEST(MemoryMeter, AnAddressThatComesAgainCountsOnce) {
  const MemoryMeter meter;
  char memory[2];
  report(&memory[0], 100);
  report(&memory[1], 10);
  report(&memory[0], 50);
  EXPECT_EQ(meter.total(), (MemoryUse{60, 110}));
  report(&memory[0], -50);
  report(&memory[0], -50);
  EXPECT_EQ(meter.total(), (MemoryUse{10, 110}));
}

constexpr std::int64_t kWidth = 64, kRows = 32;
constexpr int kChunks = 8;
constexpr std::int64_t kActivation =
    kRows * kWidth * static_cast<std::int64_t>(sizeof(float));  // of one layer, one micro-batch

// The peak of a stage in the second step: from the first on, gradients are there.
std::int64_t peak_of_stage(int stage, std::size_t widths, const std::vector<int>& balance,
    const PipelineOptions& options) {
  auto net = testing::make_chain(std::vector<std::int64_t>(widths, kWidth));
  net->to(torch::kFloat);
  const int stages = static_cast<int>(balance.size());
  Pipeline pipeline(layers_of(net), balance, cpu_places(stages), options);
  const auto batch = torch::randn({kRows * kChunks, kWidth});
  pipeline.step(batch, batch, testing::mean_loss);
  const MemoryMeter meter;
  pipeline.step(batch, batch, testing::mean_loss);
  EXPECT_EQ(meter.by_thread().count(concat("stage ", stages - 1)), 1U);
  return meter.by_thread()[concat("stage ", stage)].peak;
}

// Two linear layers and two tanh: of each micro-batch under way it keeps two activations, what each
// tanh gave; its input is a view of the batch.
std::int64_t peak_of_first_stage(const PipelineOptions& options) {
  return peak_of_stage(0, 5, {4, 3}, options);
}

// The last of three such stages.
std::int64_t peak_of_third_stage(const PipelineOptions& options) {
  return peak_of_stage(2, 8, {4, 4, 5}, options);
}

PipelineOptions options_of(ScheduleKind schedule, Checkpoint checkpoint = Checkpoint::kNever) {
  return PipelineOptions().chunks(kChunks).schedule(schedule).checkpoint(checkpoint);
}

// The first stage of two keeps all 8 micro-batches by GPipe, 2 by 1F1B.
TEST(PipelineMemory, FirstStageKeepsLessBy1F1BThanByGPipe) {
  const auto gpipe = peak_of_first_stage(options_of(ScheduleKind::kGPipe));
  const auto one_by_one = peak_of_first_stage(options_of(ScheduleKind::k1F1B));
  EXPECT_GE(gpipe, kChunks * 2 * kActivation);
  EXPECT_LT(one_by_one, gpipe / 2);
}

TEST(PipelineMemory, CheckpointsKeepLess) {
  const auto kind = ScheduleKind::kGPipe;
  const auto never = peak_of_first_stage(options_of(kind, Checkpoint::kNever));
  const auto except_last = peak_of_first_stage(options_of(kind, Checkpoint::kExceptLast));
  const auto always = peak_of_first_stage(options_of(kind, Checkpoint::kAlways));
  EXPECT_LT(always, never);
  EXPECT_LT(except_last, never);
}

// Its weights' gradients follow two micro-batches later: what was computed again for the input's
// gradient waits for them.
TEST(PipelineMemory, CheckpointsOfZeroBubbleKeepWhatTheScheduleSays) {
  const auto split =
      peak_of_third_stage(options_of(ScheduleKind::kZeroBubble, Checkpoint::kAlways));
  const auto whole = peak_of_third_stage(options_of(ScheduleKind::k1F1B, Checkpoint::kAlways));
  const auto kept = [](ScheduleKind kind) {
    return most_live_activations(make_schedule(kind, 3, 3, kChunks), Checkpoint::kAlways)[2];
  };
  EXPECT_EQ(kept(ScheduleKind::k1F1B), 1);
  EXPECT_EQ(kept(ScheduleKind::kZeroBubble), 3);
  EXPECT_GE(split - whole, 2 * 2 * kActivation);
}

}  // namespace
}  // namespace lockstep
