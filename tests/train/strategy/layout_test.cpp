#include "lockstep/train/strategy/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TrainOptions way(Parallel parallel) {
  TrainOptions options;
  options.parallel = parallel;
  return options;
}

TrainOptions staged(Parallel parallel, int stages, ScheduleKind schedule, int chunks) {
  TrainOptions options = way(parallel);
  options.pipeline.stages = stages;
  options.pipeline.schedule = schedule;
  options.pipeline.chunks = chunks;
  return options;
}

std::string text(const TrainOptions& options, int world_size) {
  return describe(options, plan_layout(options, world_size));
}

std::string layout_refusal(const TrainOptions& options, int world_size) {
  return testing::message_of<InvalidArgument>([&] { plan_layout(options, world_size); });
}

TEST(Layout, IsSaidInOneLine) {
  EXPECT_EQ(text(way(Parallel::kSerial), 1), "1 replica");
  EXPECT_EQ(text(way(Parallel::kDdp), 4), "4 replicas");
  EXPECT_EQ(text(way(Parallel::kFsdp), 4), "shared out over 4 ranks");
  EXPECT_EQ(text(way(Parallel::kMp), 2), "2 stages, one after the other, 1 chunk, bubble 50 %");
  EXPECT_EQ(text(staged(Parallel::kDdpPp, 2, ScheduleKind::k1F1B, 8), 4),
      "2 replicas x 2 stages, 1F1B, 8 chunks, bubble 11 %");
  EXPECT_EQ(text(staged(Parallel::kPp, 4, ScheduleKind::kInterleaved, 8), 2),
      "4 stages on 2 ranks, interleaved 1F1B, 8 chunks, bubble 6 %");
  EXPECT_EQ(text(staged(Parallel::kPp, 2, ScheduleKind::kZeroBubble, 8), 2),
      "2 stages, zero-bubble, 8 chunks, bubble 4 %");
}

TEST(Layout, DdpTakesRanksOrPlaces) {
  TrainOptions options = way(Parallel::kDdp);
  EXPECT_EQ(plan_layout(options, 3).replicas, 3);
  EXPECT_EQ(plan_layout(options, 3).thread_ranks, 1);
  options.places = 2;
  EXPECT_EQ(plan_layout(options, 1).replicas, 2);
  EXPECT_EQ(plan_layout(options, 1).thread_ranks, 2);
  EXPECT_THAT(
      layout_refusal(options, 2), HasSubstr("do not combine --nproc-per-node and --places"));
}

TEST(Layout, FsdpTakesItsOwnFlags) {
  TrainOptions options = way(Parallel::kFsdp);
  options.places = 2;
  EXPECT_EQ(plan_layout(options, 1).thread_ranks, 2);
  options.places.reset();
  options.gradients.reshard = Reshard::kNever;
  EXPECT_EQ(plan_layout(options, 2).replicas, 2);
  options.optimizer.sharded = true;
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("--shard-optimizer"));
  options = way(Parallel::kFsdp);
  options.gradients.replicas = 2;
  EXPECT_EQ(plan_layout(options, 4).replicas, 4);
  EXPECT_EQ(describe(options, plan_layout(options, 4)), "2 replicas, each shared out over 2 ranks");
  EXPECT_THAT(layout_refusal(options, 3), HasSubstr("3 ranks cannot share 2 replicas equally"));
  options.parallel = Parallel::kDdp;
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("--replicas is for --parallel fsdp"));
  options = way(Parallel::kFsdp);
  options.gradients.bucket_mb = 2;
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("--bucket-mb"));
  options = way(Parallel::kDdp);
  options.gradients.reshard = Reshard::kNever;
  EXPECT_THAT(
      layout_refusal(options, 2), HasSubstr("--reshard is for --parallel fsdp, not for ddp"));
}

TEST(Layout, DpIsOneProcess) {
  TrainOptions options = way(Parallel::kDp);
  options.places = 3;
  EXPECT_EQ(plan_layout(options, 1).replicas, 3);
  EXPECT_EQ(plan_layout(options, 1).places, 3);
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("works in one process"));
  options.parallel = Parallel::kSerial;
  EXPECT_THAT(layout_refusal(options, 1), HasSubstr("--places is 3"));
}

TEST(Layout, APipelineTakesRanksOrPlaces) {
  TrainOptions options = way(Parallel::kPp);
  EXPECT_TRUE(plan_layout(options, 3).stages_over_ranks);
  EXPECT_EQ(plan_layout(options, 3).stages, 3);
  EXPECT_EQ(plan_layout(options, 1).places, 2);
  options.places = 3;
  EXPECT_EQ(plan_layout(options, 1).stages, 3);
  EXPECT_FALSE(plan_layout(options, 1).stages_over_ranks);
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("not both"));
  options.places = 1;
  EXPECT_THAT(layout_refusal(options, 1), HasSubstr("at least 2"));
}

TEST(Layout, ReplicatedPipelinesTakeARowOfRanksOrOfPlacesEach) {
  const TrainOptions over_ranks = way(Parallel::kDdpPp);
  EXPECT_EQ(plan_layout(over_ranks, 6).replicas, 3);
  EXPECT_EQ(plan_layout(over_ranks, 6).ranks_a_replica(), 2);
  TrainOptions in_places = over_ranks;
  in_places.places = 2;
  EXPECT_EQ(plan_layout(in_places, 3).replicas, 3);
  EXPECT_EQ(plan_layout(in_places, 3).places, 2);
  in_places.places = 6;
  EXPECT_EQ(plan_layout(in_places, 1).thread_ranks, 3);
  EXPECT_EQ(plan_layout(in_places, 1).places, 2);
}

TEST(Layout, OneReplicatedPipelineMayBeLeft) {
  const TrainOptions options = way(Parallel::kDdpPp);
  EXPECT_EQ(plan_layout(options, 2).replicas, 1);
  EXPECT_EQ(plan_layout(options, 2).ranks_a_replica(), 2);
}

TEST(Layout, ThreadsOfOneProcessFindTheirLayout) {
  TrainOptions options = way(Parallel::kDdpPp);
  options.places = 4;
  EXPECT_EQ(plan_layout_in(options, 2, true).thread_ranks, 2);
  const TrainOptions ddp = way(Parallel::kDdp);
  EXPECT_EQ(plan_layout_in(ddp, 2, true).replicas, 2);
}

TEST(Layout, WhatDoesNotComeOutEvenIsRefusedWithAdvice) {
  EXPECT_THAT(layout_refusal(way(Parallel::kDdpPp), 3),
      HasSubstr("3 ranks cannot be divided into pipelines of 2"));
  TrainOptions options = way(Parallel::kDdpMp);
  options.places = 5;
  EXPECT_THAT(layout_refusal(options, 1), HasSubstr("5 places cannot be divided"));
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("--places is 5"));
}

TEST(Layout, FewerPlacesThanStagesIsRefused) {
  EXPECT_THAT(layout_refusal(staged(Parallel::kPp, 4, ScheduleKind::k1F1B, 8), 2),
      HasSubstr("fewer places than stages"));
  TrainOptions options = staged(Parallel::kPp, 5, ScheduleKind::kInterleaved, 8);
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("multiple of the places"));
}

TEST(Layout, HasNoMoreChunksThanSamples) {
  TrainOptions options = staged(Parallel::kPp, 2, ScheduleKind::k1F1B, 8);
  options.batch_size = 3;
  EXPECT_THAT(layout_refusal(options, 2), HasSubstr("--chunks 8 is more than the 3 samples"));
  options.pipeline.chunks.reset();
  EXPECT_EQ(plan_layout(options, 2).micro_batches, 3);
}

}  // namespace
}  // namespace lockstep
