// What must hold of every prediction, on drawn models, machines and ways.

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/plan/profiles.h"

#include "lockstep/plan/prediction.h"

namespace lockstep::plan {
namespace {

constexpr int kDraws = 300;
constexpr double kSlack = 1 + 1e-9;

/// Draws cases by a seed.
class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : engine_(seed) {}

  double number(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(engine_);
  }
  int whole(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(engine_);
  }

  ModelProfile profile() {
    ModelProfile profile = testing::uniform(whole(8, 20));
    for (LayerCurves& layer : profile.layers) {
      layer.forward = testing::line(number(0, 1), number(0.1, 2));
      const double input = number(0, 1), input_a_sample = number(0.1, 2);
      const double weight = number(0, 1), weight_a_sample = number(0.1, 2);
      layer.backward_input = testing::line(input, input_a_sample);
      layer.backward_weight = testing::line(weight, weight_a_sample);
      layer.backward = testing::line(input + weight, input_a_sample + weight_a_sample);
      layer.output_bytes = number(0, 100);
      layer.parameters.assign(static_cast<std::size_t>(whole(0, 3)), number(1, 1e6));
    }
    profile.optimizer = number(0, 5);
    profile.rest = testing::line(number(0, 1), 0);
    return profile;
  }

  Machine machine() {
    Machine machine = testing::free_machine(1 << whole(0, 2), 4, number(10, 1e6));
    machine.between = {.latency = number(0, 0.1), .bytes_per_second = number(10, 1e6)};
    machine.within.latency = number(0, 0.01);
    machine.within.core_share = number(0, 1);
    return machine;
  }

  Way way(const Machine& machine) {
    const auto ways = ways_on(machine,
        {.schedules = {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}});
    return ways[static_cast<std::size_t>(whole(0, static_cast<int>(ways.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr double kBatch = 64;

TEST(Predictions, AreNoShorterThanTheirWorkOnOnePlaceOverThePlaces) {
  Drawn drawn(1);
  for (int i = 0; i < kDraws; ++i) {
    const ModelProfile profile = drawn.profile();
    const Machine machine = drawn.machine();
    const Way way = drawn.way(machine);
    double layers = 0;
    for (const LayerCurves& layer : profile.layers)
      layers += layer.forward.line().per_sample + layer.backward.line().per_sample;
    EXPECT_GE(
        predict(profile, machine, way, kBatch).seconds * kSlack, layers * kBatch / way.places())
        << describe(way);
  }
}

TEST(Predictions, OfMoreBandwidthAndLessLatencyAreNeverSlower) {
  Drawn drawn(2);
  for (int i = 0; i < kDraws; ++i) {
    const ModelProfile profile = drawn.profile();
    const Machine machine = drawn.machine();
    const Way way = drawn.way(machine);
    Machine better = machine;
    better.between.bytes_per_second *= drawn.number(1, 10);
    better.within.bytes_per_second *= drawn.number(1, 10);
    better.between.latency *= drawn.number(0, 1);
    EXPECT_LE(predict(profile, better, way, kBatch).seconds,
        predict(profile, machine, way, kBatch).seconds * kSlack)
        << describe(way);
  }
}

TEST(Predictions, OfMoreMicroBatchesNeverHaveALargerBubble) {
  Drawn drawn(3);
  for (int i = 0; i < kDraws; ++i) {
    const int stages = 1 << drawn.whole(1, 2);
    const ModelProfile profile = testing::uniform(8);
    const Machine machine = testing::free_machine(1, stages);
    double before = 1;
    for (int count = stages; count <= 64; count *= 2) {
      const Way way{.stages = stages, .micro_batches = count};
      const double bubble = predict(profile, machine, way, kBatch).bubble;
      EXPECT_LE(bubble, before * kSlack);
      before = bubble;
    }
  }
}

TEST(Predictions, OfOnePlaceMoreNeverSlowTheBestPlan) {
  Drawn drawn(4);
  const auto best = [](const ModelProfile& profile, const Machine& machine) {
    double seconds = predict(profile, machine, {}, kBatch).seconds;
    for (const Way& way : ways_on(machine, {})) {
      if (why_not(way, profile, kBatch, machine).empty())
        seconds = std::min(seconds, predict(profile, machine, way, kBatch).seconds);
    }
    return seconds;
  };
  for (int i = 0; i < kDraws / 10; ++i) {
    const ModelProfile profile = drawn.profile();
    Machine machine = drawn.machine();
    machine.nodes = 1;
    double before = best(profile, machine);
    for (int nodes = 2; nodes <= 4; nodes *= 2) {
      machine.nodes = nodes;
      const double now = best(profile, machine);
      EXPECT_LE(now, before * kSlack) << nodes << " nodes";
      before = now;
    }
  }
}

TEST(Predictions, OfOtherBucketsOrSchedulesDiffer) {
  ModelProfile profile = testing::uniform(8, 1e6);
  const Machine machine = testing::free_machine(2, 4, 1e6);
  const Way one{.replicas = 2};
  Way other = one;
  other.first_bucket_bytes = std::size_t{64} << 20;
  EXPECT_NE(predict(profile, machine, one, kBatch).seconds,
      predict(profile, machine, other, kBatch).seconds);
  const Way pipeline{.stages = 4, .schedule = ScheduleKind::k1F1B, .micro_batches = 8};
  Way zero = pipeline;
  zero.schedule = ScheduleKind::kZeroBubble;
  EXPECT_GT(predict(profile, machine, pipeline, kBatch).seconds,
      predict(profile, machine, zero, kBatch).seconds);
}

}  // namespace
}  // namespace lockstep::plan
