// Predictions that have closed forms, and what sockets and shared cores make of a machine's links.

#include "lockstep/plan/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep::plan {
namespace {

using testing::free_machine;
using testing::uniform;
using enum ScheduleKind;

double seconds_of(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  return predict(profile, machine, way, batch).seconds;
}

TEST(Prediction, OfOnePlaceIsTheSumOfTheProfile) {
  ModelProfile profile = uniform(4);
  profile.input = CostCurve({{1, 0.5}});
  profile.rest = CostCurve({{1, 0.25}});
  profile.optimizer = 7;
  const Prediction prediction = predict(profile, free_machine(1, 1), {}, 8);
  EXPECT_DOUBLE_EQ(prediction.seconds, 8 * (0.5 + 4 * 3 + 0.25) + 7);
  EXPECT_DOUBLE_EQ(prediction.of(Use::kForward), 32);
  EXPECT_DOUBLE_EQ(prediction.of(Use::kOptimizer), 7);
  EXPECT_DOUBLE_EQ(prediction.idle, 0);
  EXPECT_DOUBLE_EQ(prediction.samples_per_second(), 8 / prediction.seconds);
}

TEST(Prediction, OfReplicasWithoutCommunicationDividesTheSamples) {
  for (const Replication each : {Replication::kThreads, Replication::kProcesses}) {
    const Way way{.replicas = 4, .replication = each};
    EXPECT_DOUBLE_EQ(seconds_of(uniform(4), free_machine(1, 4), way, 8), 2 * 12);
  }
}

// All layers' gradients in one bucket: it travels after backward.
TEST(Prediction, OfOneBucketExposesAllOfIt) {
  const Machine machine = free_machine(2, 1, 100);
  const Way way{.replicas = 2, .first_bucket_bytes = 100000, .bucket_bytes = 100000};
  const Prediction prediction = predict(uniform(4), machine, way, 2);
  EXPECT_DOUBLE_EQ(prediction.seconds, 12 + 1600 / 100.0);
  EXPECT_DOUBLE_EQ(prediction.communication, 16);
  EXPECT_DOUBLE_EQ(prediction.idle, 16);
}

// A bucket a layer: all but the first layer's travels behind backward.
TEST(Prediction, OfManyBucketsHidesThemBehindBackward) {
  const Machine machine = free_machine(2, 1, 400);
  const Way way{.replicas = 2, .first_bucket_bytes = 1, .bucket_bytes = 1};
  EXPECT_DOUBLE_EQ(seconds_of(uniform(4), machine, way, 2), 12 + 1);
}

TEST(Prediction, OfALinkThatTheCoreDrivesHidesNothing) {
  Machine machine = free_machine(1, 2, 400);
  machine.within.core_share = 1;
  const Way way{.replicas = 2, .first_bucket_bytes = 1, .bucket_bytes = 1};
  EXPECT_DOUBLE_EQ(seconds_of(uniform(4), machine, way, 2), 12 + 4);
}

TEST(Prediction, OfAHookSendsHalf) {
  const Way way{.replicas = 2, .sent_as = SentAs::kFp16, .first_bucket_bytes = 100000};
  EXPECT_DOUBLE_EQ(seconds_of(uniform(4), free_machine(2, 1, 100), way, 2), 12 + 8);
}

TEST(Prediction, OfAccumulationSendsOnce) {
  const Way way{.replicas = 2, .accumulated = 4, .first_bucket_bytes = 100000};
  EXPECT_DOUBLE_EQ(seconds_of(uniform(4), free_machine(2, 1, 100), way, 8), 4 * 12 + 16);
}

TEST(Prediction, OfAShardedOptimizerDividesItAndGathers) {
  ModelProfile profile = uniform(4);
  profile.optimizer = 10;
  const Way way{.replicas = 2, .is_sharded = true, .first_bucket_bytes = 100000};
  EXPECT_DOUBLE_EQ(seconds_of(profile, free_machine(2, 1, 100), way, 2), 12 + 16 + 5 + 8);
}

// A unit a layer, whose gather takes two seconds, and whose gradients as long.
TEST(Prediction, OfShardsHidesExchangesBehindTheUnitBefore) {
  const Way way{.replicas = 2, .replication = Replication::kShards, .unit_bytes = 1};
  const auto on_link = [&](double rate, const Way& own) {
    return seconds_of(uniform(4), free_machine(2, 1, rate), own, 2);
  };
  EXPECT_DOUBLE_EQ(on_link(400, way), 12 + 0.5 + 0.5) << "the first gather, the last gradients";
  EXPECT_DOUBLE_EQ(on_link(100, way), (4 * 2 + 1) + (2 + 4 + 4 + 2 + 2));
  Way kept = way;
  kept.reshard = Reshard::kNever;
  EXPECT_DOUBLE_EQ(on_link(100, kept), (4 * 2 + 1) + (4 * 2 + 2));
  Way whole = way;
  whole.unit_bytes = 100000;
  EXPECT_DOUBLE_EQ(on_link(100, whole), 12 + 8 + 8) << "nothing is before the only unit";
}

TEST(Prediction, OfShardsDividesTheOptimizerAndGathersNothingAfterIt) {
  ModelProfile profile = uniform(4);
  profile.optimizer = 10;
  const Way way{.replicas = 2, .replication = Replication::kShards};
  EXPECT_DOUBLE_EQ(seconds_of(profile, free_machine(2, 1), way, 2), 12 + 5);
}

// One unit of 1600 bytes, which is gathered once: nothing hides its exchanges.
TEST(Prediction, OfCopiesGathersWithinThemAndAveragesPartsOverThem) {
  const auto exchanges = [](const Machine& machine, int replicas, int copies) {
    const Way way{.replicas = replicas,
        .replication = Replication::kShards,
        .unit_bytes = 100000,
        .copies = copies};
    return seconds_of(uniform(4), machine, way, replicas) - 12;
  };
  Machine nodes = free_machine(2, 2, 100);
  EXPECT_DOUBLE_EQ(exchanges(nodes, 4, 1), 2 * 1600 * 0.75 / 100) << "a ring through all";
  nodes.within.bytes_per_second = 0;  // at once
  EXPECT_DOUBLE_EQ(exchanges(nodes, 4, 2), 2 * (2 * 800 * 0.5) / 100)
      << "a copy a node; both places average their half over one link";
  EXPECT_DOUBLE_EQ(exchanges(nodes, 4, 4), 2 * 1600 * 0.75 / 100) << "a copy a place, as ddp";
  const Machine node = free_machine(1, 4, 100);
  EXPECT_DOUBLE_EQ(exchanges(node, 4, 2), (2 * 800 + 2 * 400) / 100.0);
  const Machine pairs = free_machine(4, 1, 100);
  EXPECT_DOUBLE_EQ(exchanges(pairs, 4, 2), (2 * 800 + 2 * 400) / 100.0) << "a copy on two nodes";
}

TEST(Prediction, OfCopiesDividesOptimizerAndPartsWithinThem) {
  ModelProfile profile = uniform(4);
  profile.optimizer = 12;
  profile.state_copies = 2;
  const auto of = [&](int copies) {
    return Way{
        .replicas = 4, .replication = Replication::kShards, .unit_bytes = 1, .copies = copies};
  };
  EXPECT_DOUBLE_EQ(seconds_of(profile, free_machine(1, 4), of(2), 4), 12 + 6);
  EXPECT_DOUBLE_EQ(memory_of(profile, free_machine(1, 4), of(1), 4), 1600 + 800 + 800 + 40);
  EXPECT_DOUBLE_EQ(memory_of(profile, free_machine(1, 4), of(2), 4), 3200 + 800 + 800 + 40);
}

TEST(Prediction, OfShardsInAMixedPrecisionGathersHalf) {
  ModelProfile profile = uniform(4);
  const auto change = [&](const Way& way, const char* precision = "bf16-mixed") {
    const Machine machine = free_machine(2, 1, 100);
    profile.precision = "32";
    const double seconds = seconds_of(profile, machine, way, 2);
    const double bytes = memory_of(profile, machine, way, 2);
    profile.precision = precision;
    return std::pair(seconds - seconds_of(profile, machine, way, 2),
        bytes - memory_of(profile, machine, way, 2));
  };
  Way way{.replicas = 2, .replication = Replication::kShards, .unit_bytes = 100000};
  EXPECT_EQ(change(way), std::pair(4.0, 800.0)) << "the gradients stay as they are";
  way.unit_bytes = 1;
  EXPECT_EQ(change(way).second, 400) << "of two units";
  way.reshard = Reshard::kNever;
  EXPECT_EQ(change(way).second, 800) << "of all";
  EXPECT_EQ(change(way, "bfloat16"), std::pair(0.0, 0.0)) << "its parameters are short already";
  EXPECT_EQ(change({.replicas = 2}), std::pair(0.0, 0.0));
}

TEST(Prediction, OfUniformStagesIsTheScheduleItself) {
  for (const ScheduleKind kind : {kSequential, kGPipe, k1F1B, kInterleaved, kZeroBubble}) {
    for (const int stages : {2, 4}) {
      for (const int count : {stages, 4 * stages}) {
        const Way way{.stages = stages, .schedule = kind, .micro_batches = count};
        const Prediction found = predict(uniform(8), free_machine(1, stages), way, count);
        const double bubble = bubble_share(kind, stages, way.scheduled_stages(), count);
        EXPECT_NEAR(found.bubble, bubble, 1e-12) << describe(way);
        EXPECT_NEAR(found.seconds, 24.0 * count / stages / (1 - bubble), 1e-9) << describe(way);
      }
    }
  }
}

TEST(Prediction, OfStagesWaitsForTheLargest) {
  const Way way{.stages = 2, .schedule = kGPipe, .micro_batches = 4, .balance = {1, 3}};
  // The second stage has four times three forwards and backwards, after one forward of the first
  // and before one backward of it.
  EXPECT_DOUBLE_EQ(seconds_of(uniform(4), free_machine(1, 2), way, 4), 1 + 4 * 9 + 2);
}

TEST(Prediction, OfStagesSendsActivationsThereAndBack) {
  const Way way{.stages = 2, .schedule = kSequential};
  EXPECT_DOUBLE_EQ(seconds_of(uniform(2), free_machine(1, 2, 2), way, 3), 3 * (6 + 2 * 2));
}

TEST(Prediction, OfReplicatedStagesReducesEachStage) {
  const Way way{.replicas = 2, .stages = 2, .schedule = kSequential};
  EXPECT_DOUBLE_EQ(
      seconds_of(uniform(2), free_machine(1, 4, 100), way, 2), 6 + 2 * 4 / 100.0 + 400 / 100.0);
}

TEST(Prediction, OfReplicatedStagesOnSeveralNodesSharesTheirLink) {
  // What a node sends is as much, whether its replicas are cut or not.
  const Machine machine = free_machine(2, 4, 100);
  const auto exchange = [&](const std::vector<int>& balance) {
    const Way way{.replicas = 2, .stages = 4, .schedule = kSequential, .balance = balance};
    return predict(uniform(8), machine, way, 2).communication;
  };
  EXPECT_DOUBLE_EQ(exchange({2, 2, 2, 2}), 8 * 400 / 100.0);
  EXPECT_DOUBLE_EQ(exchange({5, 1, 1, 1}), 8 * 400 / 100.0) << "the last to end has all before it";
}

TEST(Prediction, OfReplicatedStagesOverAMeasuredLinkSharesIt) {
  Machine machine = free_machine(2, 2);
  machine.between.measured = CostCurve({{400, 5}, {800, 6}});
  const Way way{.replicas = 2, .stages = 2, .schedule = kSequential, .balance = {1, 1}};
  // Two messages there and back: each with the bytes of both places.
  EXPECT_DOUBLE_EQ(predict(uniform(2), machine, way, 2).communication, 2 * 5);
}

TEST(Prediction, OfReplicatedStagesOnSharedCoresMovesBytesInTurns) {
  ModelProfile profile = uniform(2);
  Machine machine = free_machine(1, 4, 100);
  machine.within.core_share = 1;
  const Way way{.replicas = 2, .stages = 2, .schedule = kSequential};
  const double own = predict(profile, machine, way, 2).communication;
  profile.company.cores = 2;
  EXPECT_DOUBLE_EQ(predict(profile, machine, way, 2).communication, 2 * own);
}

TEST(Prediction, OfReplicatedStagesGathersWhatAShardedOptimizerStepped) {
  ModelProfile profile = uniform(2);
  profile.optimizer = 10;
  const auto step = [&](bool is_sharded) {
    return seconds_of(profile, free_machine(1, 4, 100),
        {.replicas = 2, .stages = 2, .schedule = kSequential, .is_sharded = is_sharded}, 2);
  };
  EXPECT_DOUBLE_EQ(step(true), step(false) - 2.5 + 400.0 / 2 / 100);
}

TEST(Prediction, OfStagesWaitsForTheSlowestPlace) {
  Machine machine = free_machine(1, 4);
  const auto ratio = [&](const Way& way) {
    machine.jitter = 0;
    const double even = seconds_of(uniform(4), machine, way, 8);
    machine.jitter = 0.1;
    return seconds_of(uniform(4), machine, way, 8) / even;
  };
  EXPECT_DOUBLE_EQ(ratio({.stages = 4, .micro_batches = 8}), slowest_of(4, 0.1));
  EXPECT_DOUBLE_EQ(ratio({.stages = 4, .schedule = kSequential}), 1) << "one after the other";
  EXPECT_DOUBLE_EQ(ratio({.replicas = 2, .stages = 2, .micro_batches = 2}), slowest_of(4, 0.1));
}

TEST(Prediction, OfStagesLoadsInCompanyOfTheOtherReplicas) {
  ModelProfile profile = uniform(2);
  profile.input = CostCurve({{1, 0.5}});
  profile.company = {.compute = {1, 1.5}, .memory = {1, 1}};
  const Way way{.replicas = 2, .stages = 2, .schedule = kSequential};
  EXPECT_DOUBLE_EQ(predict(profile, free_machine(1, 4), way, 4).of(Use::kInput), 2 * 0.5 * 1.5);
}

TEST(Prediction, OfCheckpointingComputesForwardAgain) {
  const Way way{.stages = 2, .schedule = kSequential, .checkpoint = Checkpoint::kAlways};
  EXPECT_DOUBLE_EQ(seconds_of(uniform(2), free_machine(1, 2), way, 1), 6 + 2);
}

TEST(Prediction, OfCheckpointsInOnePlaceToo) {
  ModelProfile profile = uniform(4);
  const Way way{.checkpoint = Checkpoint::kAlways};
  EXPECT_DOUBLE_EQ(seconds_of(profile, free_machine(1, 1), way, 2), 2 * 4 * (3 + 1));
  profile.layers.back().activation_bytes = 30;
  EXPECT_DOUBLE_EQ(memory_of(profile, {}, way, 2), 1600 * 2 + 2 * (3 * 4 + 30.0))
      << "three layers' inputs, and all of the last";
}

TEST(Prediction, OfMorePlacesThanCoresTakesTurns) {
  ModelProfile profile = uniform(2);
  profile.company.cores = 2;
  EXPECT_DOUBLE_EQ(seconds_of(profile, free_machine(1, 4), {.replicas = 4}, 4), 2 * 6);
}

TEST(Prediction, CountsTheMemoryOfTheFullestPlace) {
  ModelProfile profile = uniform(4);
  profile.state_copies = 2;
  profile.process_bytes = 1000;
  const Machine pair = free_machine(1, 2);
  EXPECT_DOUBLE_EQ(memory_of(profile, {}, {}, 8), 1000 + 1600 * 4 + 8 * 40);
  EXPECT_DOUBLE_EQ(memory_of(profile, pair, {.replicas = 2}, 8), 1000 + 1600 * 4 + 4 * 40);
  EXPECT_DOUBLE_EQ(
      memory_of(profile, pair, {.replicas = 2, .is_sharded = true}, 8), 1000 + 1600 * 3 + 4 * 40);
  Way shards{.replicas = 2, .replication = Replication::kShards, .unit_bytes = 1};
  EXPECT_DOUBLE_EQ(memory_of(profile, pair, shards, 8), 1000 + 1600 * 2 + 800 + 800 + 4 * 40.0)
      << "two units whole, and the gradients of two";
  shards.reshard = Reshard::kNever;
  EXPECT_DOUBLE_EQ(memory_of(profile, pair, shards, 8), 1000 + 1600 * 2 + 1600 + 800 + 4 * 40.0);
  // The first of two stages keeps two micro-batches of 1F1B, and all four of GPipe.
  EXPECT_DOUBLE_EQ(memory_of(profile, pair, {.stages = 2, .micro_batches = 4}, 8),
      1000 + 800 * 4 + 2 * (20 * 2));
  EXPECT_DOUBLE_EQ(
      memory_of(profile, pair, {.stages = 2, .schedule = kGPipe, .micro_batches = 4}, 8),
      1000 + 800 * 4 + 2 * (20 * 4));
}

// A place keeps the inputs of the micro-batches under way, and the activations of those whose
// backward is not over: of a zero-bubble schedule as many as its weights' gradients lag behind.
TEST(Prediction, CountsWhatCheckpointsKeep) {
  const ModelProfile profile = uniform(4);
  const Machine four = free_machine(1, 4);
  const auto activations = [&](ScheduleKind kind, Checkpoint checkpoint) {
    return memory_of(profile, four,
               {.stages = 4, .schedule = kind, .micro_batches = 8, .checkpoint = checkpoint}, 8) -
           400 * 2;
  };
  EXPECT_DOUBLE_EQ(activations(kSequential, Checkpoint::kAlways), 10 + 4);
  EXPECT_DOUBLE_EQ(activations(k1F1B, Checkpoint::kAlways), 10 + 4 * 3) << "of stage 1";
  EXPECT_DOUBLE_EQ(activations(kZeroBubble, Checkpoint::kAlways), 10 * 4 + 4 * 4) << "of stage 3";
  EXPECT_DOUBLE_EQ(activations(kGPipe, Checkpoint::kAlways), 10 + 4 * 8);
}

TEST(Prediction, CountsTheMemoryOfAnExchangeOnlyInProcesses) {
  ModelProfile profile = uniform(4);  // parameters of 400 bytes
  profile.overheads.replica_bytes = 1000;
  profile.overheads.socket_bytes = 700;
  const auto more = [&](const Machine& machine, const Way& way) {
    return memory_of(profile, machine, way, 8) - memory_of(uniform(4), machine, way, 8);
  };
  EXPECT_DOUBLE_EQ(more({}, {}), 0);
  EXPECT_DOUBLE_EQ(more(free_machine(1, 2), {.replicas = 2}), 1000);
  EXPECT_DOUBLE_EQ(more(free_machine(2, 1), {.replicas = 2}), 700);
  EXPECT_DOUBLE_EQ(more(free_machine(2, 2), {.replicas = 4}), 1000 + 700);
  const Way threads{.replicas = 2, .replication = Replication::kThreads};
  EXPECT_DOUBLE_EQ(more(free_machine(1, 2), threads), 0);
  EXPECT_DOUBLE_EQ(more(free_machine(1, 2), {.stages = 2}), 0);
}

TEST(Prediction, CountsGradientsThatAreCopiedOrAdded) {
  ModelProfile profile = uniform(2);
  const auto more = [&](const Machine& machine, const Way& way) {
    profile.overheads.gradient_core = 0;
    const double without = seconds_of(profile, machine, way, 8);
    profile.overheads.gradient_core = 1.0 / 800;  // a second for all
    return seconds_of(profile, machine, way, 8) - without;
  };
  const Machine pair = free_machine(1, 2);
  EXPECT_NEAR(more(pair, {}), 0, 1e-9);
  EXPECT_NEAR(more(pair, {.replicas = 2}), 1, 1e-9) << "into the buckets";
  EXPECT_NEAR(more(pair, {.accumulated = 4}), 3, 1e-9) << "to those of the first of four passes";
  EXPECT_NEAR(more(pair, {.replicas = 2, .replication = Replication::kThreads}), 0, 1e-9);
  EXPECT_NEAR(more(pair, {.stages = 2, .schedule = kSequential}), 0, 1e-9);
  // Each of two places adds half of the gradients, three times; at the end both do.
  EXPECT_NEAR(more(pair, {.stages = 2, .schedule = kGPipe, .micro_batches = 4}),
      (4 + 1) * 0.75 * 0.5, 1e-9);
  profile.company = {.cores = 1, .crowded = 1.5};
  EXPECT_NEAR(more(pair, {.replicas = 2}), 3, 1e-9) << "on one core";
}

TEST(Prediction, DrawsItsTasksWithoutOverlap) {
  const Way way{.stages = 2, .micro_batches = 4};
  const Prediction prediction = predict(uniform(4), free_machine(1, 2, 10), way, 4);
  std::vector<double> free_at(prediction.lanes.size());
  for (const TimedTask& task : prediction.tasks) {
    EXPECT_GE(task.start, free_at[task.lane] - 1e-9) << task.name;
    free_at[task.lane] = task.end;
  }
  const double used = std::accumulate(prediction.uses.begin(), prediction.uses.end(), 0.0);
  EXPECT_NEAR(used + prediction.idle, prediction.seconds, 1e-9);
}

TEST(Prediction, OfAnImpossibleWaySaysWhy) {
  EXPECT_THAT(::lockstep::testing::message_of<InvalidArgument>(
                  [] { predict(uniform(2), free_machine(1, 2), {.replicas = 4}, 8); }),
      ::testing::HasSubstr("ddp x 4: needs 4 places; there are 2"));
}

TEST(Prediction, OfStagesThatTakeTurnsWaitsForNobodyElse) {
  ModelProfile profile = uniform(4);
  profile.company = {.compute = {1, 1.2}, .memory = {1, 1}, .cores = 2};
  // Of four stages one computes at a time; of gpipe's at most four do, on two cores.
  const Way mp{.stages = 4, .schedule = kSequential};
  EXPECT_DOUBLE_EQ(seconds_of(profile, free_machine(1, 4), mp, 1), 12);
  const Way pp{.stages = 4, .schedule = kGPipe, .micro_batches = 4};
  const double alone = seconds_of(uniform(4), free_machine(1, 4), pp, 4);
  const double crowded = seconds_of(profile, free_machine(1, 4), pp, 4);
  EXPECT_GT(crowded, alone * 1.2);
  EXPECT_LT(crowded, alone * 2.4) << "all of it as if four always computed";
}

TEST(Prediction, OfThreadsLoadsTheirBatchesOneAfterTheOther) {
  ModelProfile profile = uniform(2);
  profile.input = CostCurve({{1, 0.5}});
  const Machine machine = free_machine(1, 4);
  const Way threads{.replicas = 4, .replication = Replication::kThreads};
  EXPECT_NEAR(predict(profile, machine, threads, 8).of(Use::kInput), 4, 1e-9);
  EXPECT_NEAR(predict(profile, machine, {.replicas = 4}, 8).of(Use::kInput), 1, 1e-9);
}

TEST(Prediction, HoldsOverheadsOnceForEachHandOver) {
  ModelProfile profile = uniform(4);
  const Machine machine = free_machine(1, 2);
  const Way mp{.stages = 2, .schedule = ScheduleKind::kSequential};
  const double before = predict(profile, machine, mp, 8).seconds;
  profile.overheads.hand_over = CostCurve({{8, 0.25}});
  EXPECT_NEAR(predict(profile, machine, mp, 8).seconds, before + 0.5, 1e-9);
}

TEST(Prediction, IsLessSureOfWhatWasNotMeasured) {
  ModelProfile profile = uniform(4);
  for (LayerCurves& layer : profile.layers) layer.forward = CostCurve({{1, 1}, {64, 64}});
  profile.is_measured = true;
  const Machine one = free_machine(1, 2);
  const double inside = predict(profile, one, {.replicas = 2}, 16).spread;
  EXPECT_GT(predict(profile, one, {.replicas = 2}, 1024).spread, inside) << "beyond all batches";
  EXPECT_GT(predict(profile, free_machine(2, 1), {.replicas = 2}, 16).spread, inside) << "links";
  profile.is_measured = false;
  const Prediction guessed = predict(profile, one, {.replicas = 2}, 16);
  EXPECT_GT(guessed.spread, inside);
  EXPECT_LT(guessed.least_seconds(), guessed.seconds);
  EXPECT_GT(guessed.most_seconds(), guessed.seconds);
}

TEST(Prediction, IsLessSureOfNeighboursThatNobodyMeasured) {
  ModelProfile profile = uniform(4);
  const auto spread = [&](int nodes, int places) {
    return predict(profile, free_machine(nodes, places, 1e9), {.replicas = 2}, 16).own_spread;
  };
  const double known = spread(1, 2), apart = spread(2, 1);
  profile.knows_within = false;
  EXPECT_GT(spread(1, 2), known);
  EXPECT_EQ(spread(2, 1), apart) << "a node has one place";
}

TEST(DataParallelOfPyTorch, CopiesAndGathersAndSharesALock) {
  ModelProfile profile = uniform(4);
  profile.rest = CostCurve({{1, 0.25}});
  const Machine machine = free_machine(1, 4, 100);
  Way way{.replicas = 4, .replication = Replication::kThreads, .is_pytorch = true};
  // Parameters and gradients of 1600 bytes; outputs and their gradients of 4 bytes from 3 places.
  const double copies = 2 * 16 + 2 * 3 * 2 * 4 / 100.0;
  way.lock_seconds = 0.5;
  const Prediction free = predict(profile, machine, way, 8);
  EXPECT_DOUBLE_EQ(free.seconds, 2 * 12 + 8 * 0.25 + copies) << "the lock is free half the time";
  EXPECT_DOUBLE_EQ(free.of(Use::kCommunication), copies);
  way.lock_seconds = 5;
  EXPECT_DOUBLE_EQ(predict(profile, machine, way, 8).seconds, 4 * 5 + 2 * 8 + 8 * 0.25 + copies)
      << "four forwards, one after the other";
  way.lock_seconds = 0;
  EXPECT_DOUBLE_EQ(predict(profile, machine, way, 8).seconds, 4 * 4 + 2 * 8 + 8 * 0.25 + copies)
      << "the forward of a sample takes 4 s";
  way.is_pytorch = false;
  EXPECT_LT(predict(profile, machine, way, 8).seconds, free.seconds);
}

TEST(MachineInUse, OfNodesWithinOneMachineIsThatOfItsPlaces) {
  ModelProfile profile = uniform(2);
  profile.company.compute = {1, 1.5};
  Machine machine = free_machine(2, 1);
  const double apart = predict(profile, machine, {.replicas = 2}, 8).seconds;
  machine.is_one_machine = true;
  EXPECT_NEAR(predict(profile, machine, {.replicas = 2}, 8).seconds, 1.5 * apart, 1e-9);
}

TEST(MachineInUse, OfSocketsIsBoundByTheCoreThatMovesTheBytes) {
  ModelProfile profile = uniform(2, 1e6);
  const Machine machine = free_machine(2, 1, 1e9);
  const double free = predict(profile, machine, {.replicas = 2}, 8).seconds;
  profile.overheads.socket_core = 1e-6;
  const Prediction bound = predict(profile, machine, {.replicas = 2}, 8);
  // Two ranks send 2e6 bytes of gradients, a second each megabyte, and compute nothing meanwhile.
  EXPECT_NEAR(bound.seconds, free - 2e6 / 1e9 + 2, 0.01);
  EXPECT_NEAR(bound.of(Use::kCommunication), 2, 0.01);
}

TEST(MachineInUse, OfAMeasuredLinkHasTheSocketsInIt) {
  ModelProfile profile = uniform(2, 1e6);
  profile.overheads.socket_core = 4e-6;  // more than the link has
  Machine machine = free_machine(2, 1);
  machine.between.measured = CostCurve({{1, 1e-6}, {1e6, 1}, {2e6, 2}});
  machine.between.core_share = 1;
  const double alone = predict(uniform(2, 1e6), free_machine(2, 1), {.replicas = 2}, 8).seconds;
  // Each of two buckets of a megabyte is two messages of a half, and hides nothing.
  EXPECT_NEAR(predict(profile, machine, {.replicas = 2}, 8).seconds, alone + 2 * 2 * 0.5, 1e-3);
}

TEST(MachineInUse, OfALinkMeasuredAloneIsBoundByACoreThatAlsoComputes) {
  ModelProfile profile = uniform(2, 1e6);
  profile.overheads.socket_core = 1e-6;
  Machine machine = free_machine(2, 1);
  machine.between.measured = CostCurve({{1, 1e-7}, {1e6, 0.1}, {2e6, 0.2}});
  const double alone = predict(uniform(2, 1e6), free_machine(2, 1), {.replicas = 2}, 8).seconds;
  const Prediction bound = predict(profile, machine, {.replicas = 2}, 8);
  EXPECT_NEAR(bound.seconds, alone + 2, 1e-3);
  EXPECT_NEAR(bound.of(Use::kCommunication), 2, 1e-3) << "the core's own";
}

TEST(MachineInUse, OfNodesOnOneCoreAddsUpTheirBytesInTurns) {
  ModelProfile profile = uniform(2, 1e6);
  Machine machine = free_machine(2, 2);
  machine.within = {.bytes_per_second = 1e6, .core_share = 1};
  machine.is_one_machine = true;
  const Way way{.replicas = 4};
  const auto communication = [&] {
    return predict(profile, machine, way, 8).of(Use::kCommunication);
  };
  const double apart = communication();
  EXPECT_NEAR(apart, 2, 0.1) << "2e6 bytes are added up and spread";
  profile.company.cores = 2;
  EXPECT_NEAR(communication(), 2 * apart, 1e-6);
}

TEST(MachineInUse, OfNodesOnOneCoreMovesTheirBytesInTurns) {
  ModelProfile profile = uniform(2, 1e6);
  Machine machine = free_machine(4, 1);
  machine.between = {.bytes_per_second = 1e6, .core_share = 0.75};
  machine.is_one_machine = true;
  const auto communication = [&] {
    return predict(profile, machine, {.replicas = 4}, 8).of(Use::kCommunication);
  };
  const double apart = communication();
  EXPECT_NEAR(apart, 0.75 * 3, 0.01) << "2e6 bytes are passed on one and a half times";
  profile.company.cores = 2;
  EXPECT_NEAR(communication(), 2 * apart, 1e-6);
}

TEST(MachineInUse, OfNodesOnOneCoreIsLessSurelyKnown) {
  ModelProfile profile = uniform(2);
  profile.company.cores = 2;
  Machine machine = free_machine(2, 2);
  const double apart = predict(profile, machine, {.replicas = 4}, 8).spread;
  machine.is_one_machine = true;
  EXPECT_GT(predict(profile, machine, {.replicas = 4}, 8).spread, apart) << "four on two cores";
}

}  // namespace
}  // namespace lockstep::plan
