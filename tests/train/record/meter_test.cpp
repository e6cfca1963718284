#include "lockstep/train/record/meter.h"

#include <cmath>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace {

torch::Tensor loss_of(double value) { return at::full({}, value, torch::kFloat); }

torch::Tensor skipped() { return at::full({}, 1, torch::kFloat); }

TEST(Meter, WeighsEachBatchByItsSamples) {
  Meter meter{ProcessGroup()};
  meter.add(loss_of(1), 100);
  meter.add(loss_of(4), 50);
  meter.add_step();
  meter.add_data_seconds(0.5);
  const auto reading = meter.read(2.0);
  EXPECT_EQ(reading.steps, 1) << "of two batches";
  EXPECT_EQ(reading.samples, 150);
  EXPECT_DOUBLE_EQ(reading.loss(), 2);
  EXPECT_DOUBLE_EQ(reading.data_seconds, 0.5);
  EXPECT_DOUBLE_EQ(reading.comm_seconds, 2);
}

TEST(Meter, CountsAnewAfterARead) {
  Meter meter{ProcessGroup()};
  meter.add(loss_of(1), 10);
  meter.add_step();
  meter.read(2.0);
  meter.add(loss_of(3), 10);
  meter.add_step();
  const auto reading = meter.read(2.5);
  EXPECT_EQ(reading.steps, 1);
  EXPECT_DOUBLE_EQ(reading.loss(), 3);
  EXPECT_DOUBLE_EQ(reading.comm_seconds, 0.5);
}

TEST(Meter, SumsOverAllRanks) {
  run_ranks(3, [](ProcessGroup world) {
    Meter meter(world);
    meter.add(loss_of(world.rank()), 10 * (world.rank() + 1));
    const auto reading = meter.read(0);
    EXPECT_EQ(reading.samples, 60);
    EXPECT_DOUBLE_EQ(reading.loss_sum, 0 * 10 + 1 * 20 + 2 * 30);
  });
}

TEST(Meter, OneRanksNanReachesAll) {
  run_ranks(2, [](ProcessGroup world) {
    Meter meter(world);
    meter.add(loss_of(world.rank() == 1 ? std::nan("") : 1), 1);
    EXPECT_TRUE(std::isnan(meter.read(0).loss()));
  });
}

// The scaler leaves out the step on all ranks, though the loss of one alone overflowed.
TEST(Meter, AnOverflowThatWasLeftOutCountsAsTheMeanOfTheOthers) {
  run_ranks(2, [](ProcessGroup world) {
    Meter meter(world);
    meter.add(loss_of(2), 10);
    meter.add_step();
    meter.add(loss_of(5), 10);
    meter.add(loss_of(world.rank() == 1 ? INFINITY : 8), 10);
    meter.add_step(skipped());
    Meter resumed(world);
    resumed.restore(meter.part());
    EXPECT_DOUBLE_EQ(meter.part().loss_sum, world.rank() == 1 ? 2 * 30 : (2 + 5 + 8) * 10);
    EXPECT_EQ(resumed.part().samples, 30);
    const auto reading = meter.read(0);
    EXPECT_EQ(reading.samples, 60);
    EXPECT_DOUBLE_EQ(reading.loss(), (2 + 5 + 8 + 2) / 4.0);
  });
}

TEST(Meter, PacksItsPartWhereTheLossesAre) {
  Meter meter{ProcessGroup()};
  for (const double loss : {2.0, 5.0, static_cast<double>(INFINITY)}) {
    const torch::Tensor here = meter.packed_part(), read = packed(meter.part());
    for (const int number : {0, 1, 2, 4}) EXPECT_TRUE(here[number].equal(read[number])) << number;
    EXPECT_NO_THROW(unpacked(here));
    meter.add(loss_of(loss), 10);
    meter.add_step(skipped());
    meter.add_data_seconds(0.5);
  }
  EXPECT_DOUBLE_EQ(meter.packed_part()[2].item<double>(), (2 + 5) * 1.5 * 10);
}

TEST(Meter, OfOverflowsAloneHasNoLossAndGoesOnFromIt) {
  Meter meter{ProcessGroup()}, resumed{ProcessGroup()};
  meter.add(loss_of(std::nan("")), 10);
  meter.add_step(skipped());
  EXPECT_FALSE(std::isfinite(meter.part().loss_sum));
  resumed.restore(meter.part());
  resumed.add(loss_of(3), 10);
  resumed.add_step();
  const auto reading = resumed.read(0);
  EXPECT_EQ(reading.samples, 20);
  EXPECT_DOUBLE_EQ(reading.loss(), 3);
  EXPECT_FALSE(std::isfinite(meter.read(0).loss()));
}

TEST(Meter, LateSmallLossesAreNotRoundedAway) {
  Meter meter{ProcessGroup()};
  meter.add(loss_of(1), std::int64_t{1} << 40);
  meter.add(loss_of(1), 1);
  EXPECT_EQ(meter.read(0).loss_sum, static_cast<double>(std::int64_t{1} << 40) + 1);
}

TEST(MeterReading, AddsUp) {
  MeterReading total{.steps = 1,
      .samples = 10,
      .loss_sum = 5,
      .seconds = 1,
      .data_seconds = 0.1,
      .comm_seconds = 0.2};
  total += {.steps = 3,
      .samples = 30,
      .loss_sum = 7,
      .seconds = 3,
      .data_seconds = 0.3,
      .comm_seconds = 0.6};
  EXPECT_EQ(total.samples, 40);
  EXPECT_DOUBLE_EQ(total.loss(), 0.3);
  EXPECT_DOUBLE_EQ(total.samples_per_second(), 10);
  EXPECT_DOUBLE_EQ(total.milliseconds_a_step(total.comm_seconds), 200);
}

TEST(MeterReading, IsSharedOutSoThatEachRankSpeaksForAll) {
  const MeterReading all{.steps = 3, .samples = 50, .loss_sum = 100, .seconds = 6};
  MeterReading sum;
  for (int rank = 0; rank < 4; ++rank) {
    const MeterReading share = share_of(all, rank, 4);
    EXPECT_NEAR(static_cast<double>(share.samples * 4), 50, 3);
    EXPECT_DOUBLE_EQ(share.loss(), all.loss());
    EXPECT_EQ(share.steps, 3);
    EXPECT_EQ(share.seconds, 6);
    sum += share;
  }
  EXPECT_EQ(sum.samples, 50);
  EXPECT_DOUBLE_EQ(sum.loss_sum, 100);
  EXPECT_EQ(share_of({.steps = 1}, 0, 2), MeterReading{.steps = 1}) << "of nothing, no NaN";
}

}  // namespace
}  // namespace lockstep
