#include "lockstep/train/state/epoch_position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include "lockstep/data/distributed_sampler.h"

namespace lockstep {
namespace {

TEST(EpochPosition, AWholeEpochIsCutAsBefore) {
  const EpochRule rule{.samples = 103, .replicas = 4, .batch_size = 8, .batches_a_step = 3};
  const EpochBatches all = batches_left(rule, {});
  EXPECT_EQ(all.samples, 26);  // one rank's share, the last sample twice
  EXPECT_EQ(all.batches, 4);
  EXPECT_EQ(steps_of(all), 2);
  EXPECT_EQ(epoch_samples(rule), 103);
  EXPECT_EQ(schedule_step(rule, {.epoch = 3}), 4);
}

TEST(EpochPosition, ALimitCountsTheBatchesOfEveryRank) {
  const EpochRule rule{.samples = 103, .replicas = 2, .batch_size = 8, .limit_batches = 3};
  EXPECT_EQ(epoch_samples(rule), 48);
  const EpochPosition position{.epoch = 1, .samples = 32, .epoch_samples = 48};
  EXPECT_EQ(batches_left(rule, position).batches, 1);
  EXPECT_EQ(batches_left(rule, advanced(position, rule, 8)).batches, 0);
}

TEST(EpochPosition, AnEpochThatIsOverHasNothingLeft) {
  const EpochRule rule{.samples = 100, .replicas = 3, .batch_size = 8};
  EpochPosition position{.epoch_samples = 100};
  position = advanced(position, rule, 34);
  EXPECT_EQ(position.samples, 100) << "what fills up the last batches does not count";
  EXPECT_EQ(batches_left(rule, position).batches, 0);
  EXPECT_EQ(schedule_step(rule, position), 5);
}

// The new rule's epochs take a quarter of the samples, or four times as many.
TEST(EpochPosition, AnEpochThatOtherRanksBeganCountsByItsShare) {
  const EpochRule one{.samples = 1000, .replicas = 1, .batch_size = 16, .limit_batches = 4};
  const EpochPosition of_four{.epoch = 2, .samples = 64, .epoch_samples = 256};
  EXPECT_EQ(batches_left(one, of_four).batches, 12) << "what the epoch began with stays";
  EXPECT_EQ(schedule_step(one, {.epoch = 2, .epoch_samples = 256}), 4);
  EXPECT_EQ(schedule_step(one, of_four), 5);
  EXPECT_EQ(schedule_step(one, {.epoch = 2, .samples = 255, .epoch_samples = 256}), 7);
  EXPECT_EQ(schedule_step(one, {.epoch = 2, .samples = 256, .epoch_samples = 256}), 8);
  const EpochRule four{.samples = 1000, .replicas = 4, .batch_size = 16, .limit_batches = 4};
  EXPECT_EQ(schedule_step(four, {.epoch = 2, .samples = 16, .epoch_samples = 64}), 5);
  EXPECT_EQ(schedule_step(four, {.epoch = 2, .samples = 64, .epoch_samples = 64}), 8);
}

// Trains up to a number of steps or to the epoch's end, counting each sample.
class EpochWalk {
 public:
  EpochWalk(std::int64_t samples, std::int64_t batch, std::int64_t batches_a_step)
      : rule_{.samples = samples, .batch_size = batch, .batches_a_step = batches_a_step} {
    position_.epoch_samples = samples;
  }

  // Gives the steps that were made.
  std::int64_t go(std::int64_t ranks, std::int64_t most_steps) {
    rule_.replicas = ranks;
    const EpochBatches left = batches_left(rule_, position_);
    const std::int64_t before = schedule_step(rule_, position_);
    std::vector<std::vector<std::int64_t>> shares;
    for (int rank = 0; rank < ranks; ++rank)
      shares.push_back(DistributedSampler(rule_.samples, rank, static_cast<int>(ranks), {.seed = 7})
                           .epoch(4, position_.samples));
    std::int64_t steps = 0, samples = 0;
    for (std::int64_t number = 0; number < left.batches && steps < most_steps; ++number) {
      const std::int64_t first = number * rule_.batch_size;
      const std::int64_t end = std::min(first + rule_.batch_size, left.samples);
      for (const auto& share : shares)
        for (std::int64_t i = first; i < end; ++i) ++seen_[share.at(static_cast<std::size_t>(i))];
      samples += end - first;
      if (!step_part(left, number).is_last) continue;
      position_ = advanced(position_, rule_, samples);
      samples = 0;
      ++steps;
      EXPECT_EQ(schedule_step(rule_, position_), before + steps);
    }
    return steps;
  }

  bool is_over() const { return position_.samples == rule_.samples; }

  // Padding may repeat some at the end of a life's share; fewer than there were ranks.
  void expect_each_once(std::int64_t most_ranks) const {
    std::int64_t repeated = 0;
    for (std::int64_t sample = 0; sample < rule_.samples; ++sample) {
      const auto found = seen_.find(sample);
      ASSERT_NE(found, seen_.end()) << "sample " << sample << " was left out";
      repeated += found->second - 1;
    }
    EXPECT_LT(repeated, most_ranks);
  }

 private:
  EpochRule rule_;
  EpochPosition position_;
  std::map<std::int64_t, int> seen_;
};

TEST(EpochPosition, OtherNumbersOfRanksTrainEachSampleOnce) {
  std::mt19937 random(5);
  const auto below = [&random](
                         unsigned limit) { return static_cast<std::int64_t>(random() % limit); };
  for (int round = 0; round < 300; ++round) {
    EpochWalk walk(1 + below(400), 1 + below(9), 1 + below(3));
    std::int64_t ranks = 2, most = ranks;
    // Two ranks first; then lives of 1, 2 or 4 until the epoch is over.
    for (int life = 0; !walk.is_over(); ++life) {
      walk.go(ranks, life > 5 ? 1000000 : below(12));
      ranks = std::int64_t{1} << below(3);
      most = std::max(most, ranks);
    }
    walk.expect_each_once(most);
  }
}

// Without a change of ranks a life goes on with the very batches that the one before would have
// had.
TEST(EpochPosition, TheSameRanksGetTheSameBatches) {
  const EpochRule rule{.samples = 203, .replicas = 2, .batch_size = 8, .batches_a_step = 2};
  for (int rank = 0; rank < 2; ++rank) {
    const DistributedSampler sampler(rule.samples, rank, 2, {.seed = 7});
    const auto whole = sampler.epoch(1);
    EpochPosition position{.epoch = 2, .epoch_samples = 203};
    for (std::int64_t batches = 2; batches <= 12; batches += 2) {
      position = advanced(position, rule, 16);
      const auto rest = sampler.epoch(1, position.samples);
      EXPECT_EQ(rest, std::vector<std::int64_t>(whole.begin() + batches * 8, whole.end()));
      EXPECT_EQ(batches_left(rule, position).batches, 13 - batches);
    }
  }
}

TEST(Accumulation, OneBatchAStepIsAllOfIt) {
  const EpochBatches epoch{.samples = 70, .batch_size = 32, .batches = 3};
  EXPECT_EQ(steps_of(epoch), 3);
  for (std::int64_t number = 0; number < 3; ++number)
    EXPECT_EQ(step_part(epoch, number), StepPart{}) << number;
}

TEST(Accumulation, TheLastStepTakesWhatIsLeft) {
  // 32 32 32 | 32 22
  const EpochBatches epoch{.samples = 150, .batch_size = 32, .batches = 5, .batches_a_step = 3};
  EXPECT_EQ(steps_of(epoch), 2);
  EXPECT_EQ(step_part(epoch, 0), (StepPart{32.0 / 96, 0, false}));
  EXPECT_EQ(step_part(epoch, 1), (StepPart{32.0 / 96, 1, false}));
  EXPECT_EQ(step_part(epoch, 2), (StepPart{32.0 / 96, 2, true}));
  EXPECT_EQ(step_part(epoch, 3), (StepPart{32.0 / 54, 0, false}));
  EXPECT_EQ(step_part(epoch, 4), (StepPart{22.0 / 54, 1, true}));
}

TEST(Accumulation, BatchesThatAreNotTrainedOnDoNotCount) {
  const EpochBatches epoch{.samples = 150, .batch_size = 32, .batches = 4, .batches_a_step = 3};
  EXPECT_EQ(steps_of(epoch), 2);
  EXPECT_EQ(step_part(epoch, 3), StepPart{}) << "alone in its step, though there is a fifth batch";
}

TEST(Accumulation, SharesOfAStepAddUpToOne) {
  for (std::int64_t samples = 1; samples < 40; ++samples) {
    const std::int64_t batches = (samples + 3) / 4;
    const EpochBatches epoch{
        .samples = samples, .batch_size = 4, .batches = batches, .batches_a_step = 3};
    double sum = 0;
    std::int64_t steps = 0;
    for (std::int64_t number = 0; number < batches; ++number) {
      const StepPart part = step_part(epoch, number);
      sum = part.number == 0 ? part.share : sum + part.share;
      if (!part.is_last) continue;
      EXPECT_DOUBLE_EQ(sum, 1) << samples << " samples, batch " << number;
      ++steps;
    }
    EXPECT_EQ(steps, steps_of(epoch)) << samples;
  }
}

TEST(Accumulation, MoreBatchesAStepThanThereAreMakeOneStep) {
  const EpochBatches epoch{
      .samples = 8, .batch_size = 4, .batches = 2, .batches_a_step = INT64_MAX};
  EXPECT_EQ(steps_of(epoch), 1);
  EXPECT_EQ(step_part(epoch, 1), (StepPart{0.5, 1, true}));
}

}  // namespace
}  // namespace lockstep
