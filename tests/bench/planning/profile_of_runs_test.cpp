#include "bench/planning/profile_of_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "bench/planning/measure_profile.h"
#include "lockstep/core/error.h"
#include "lockstep/plan/answer.h"
#include "lockstep/plan/machine.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

/// A profiled step of 100 ms in which two layers compute: 20 ms of forward, 40 of backward.
ProfiledRun made_run(double batch, double scale = 1) {
  LaneProfile lane{.thread = "main", .is_main = true};
  lane.of(StepPhase::kInput) = 4 * scale;
  lane.of(StepPhase::kCopy) = 1 * scale;
  lane.of(StepPhase::kForward) = 20 * scale;
  lane.of(StepPhase::kBackward) = 40 * scale;
  lane.of(StepPhase::kOptimizer) = 10 * scale;
  lane.of(StepPhase::kOther) = 25 * scale;
  RankProfile rank{.steps = 10,
      .step = 100 * scale,
      .lanes = {lane},
      .layers = {},
      .operators = {},
      .timeline = {},
      .batch = static_cast<std::int64_t>(batch)};
  // Alone they were twice as fast.
  rank.chain = {{.name = "first",
                    .forward = 2.5,
                    .backward_weight = 5,
                    .backward = 5,
                    .activation_bytes = static_cast<std::int64_t>(300 * batch),
                    .output_bytes = static_cast<std::int64_t>(100 * batch),
                    .parameter_bytes = {400, 40}},
      {.name = "second",
          .forward = 7.5,
          .backward_input = 8,
          .backward_weight = 8,
          .backward = 15,
          .activation_bytes = static_cast<std::int64_t>(100 * batch),
          .output_bytes = static_cast<std::int64_t>(10 * batch),
          .parameter_bytes = {4000}}};
  return {.batch = batch,
      .profile = {.precision = "float32", .ranks = {rank}},
      .step_seconds = {0.09 * scale, 0.09 * scale, 0.099 * scale},
      .peak_bytes = 1e8 + 3 * 4440 + 800 * batch};
}

const ProfileFacts kFacts{.model = "toy",
    .precision = "32",
    .device = "here",
    .source = "a test",
    .state_copies = 1,
    .cores = 2};

TEST(ProfileOfRuns, SharesTheStepsTimesAmongTheLayers) {
  const plan::ModelProfile profile =
      profile_of_runs({.alone = {made_run(8), made_run(16, 2)}}, kFacts);
  ASSERT_EQ(profile.layers.size(), 2u);
  // Unprofiled steps take 0.9 times as long as profiled ones.
  EXPECT_NEAR(profile.layers[0].forward(8), 0.9 * 0.005, 1e-12);
  EXPECT_NEAR(profile.layers[1].forward(16), 2 * 0.9 * 0.015, 1e-12);
  EXPECT_NEAR(profile.layers[1].backward(8), 0.9 * 0.030, 1e-12);
  EXPECT_NEAR(profile.layers[1].backward_input(8), 0.9 * 0.016, 1e-12);
  EXPECT_NEAR(profile.layers[0].backward_input(8), 0, 1e-12);
  EXPECT_NEAR(profile.input(8), 0.9 * 0.005, 1e-12);
  EXPECT_NEAR(profile.step_seconds(8), 0.09 + profile.optimizer - 0.9 * 0.010, 1e-9);
  EXPECT_EQ(profile.layers[0].parameters, (std::vector<double>{400, 40}));
}

// Whatever the model is called: a program of Python has its file's name.
TEST(ProfileOfRuns, TakesTheMatrixProductsThatWereMeasured) {
  ProfiledRun run = made_run(8);
  run.profile.ranks.front().flops = 800;
  run.profile.ranks.front().product_flops = 600;
  ProfileFacts facts = kFacts;
  facts.model = "nets/transformer.pt2";
  EXPECT_EQ(profile_of_runs({.alone = {run}}, facts).flops, 100);
  EXPECT_EQ(profile_of_runs({.alone = {run}}, facts).product_flops, 75);
}

TEST(ProfileOfRuns, FindsMemoryByTheBatch) {
  const plan::ModelProfile profile =
      profile_of_runs({.alone = {made_run(8), made_run(16)}}, kFacts);
  EXPECT_NEAR(profile.activation_bytes(), 800, 1e-6) << "not only the 400 that the layers keep";
  EXPECT_NEAR(profile.layers[0].activation_bytes, 600, 1e-6);
  EXPECT_NEAR(profile.process_bytes, 1e8, 1) << "without parameter, gradient and momentum";
  EXPECT_NEAR(profile.layers[0].output_bytes, 100, 1e-9);
}

// A line through zero would make each sample need a share of the process.
TEST(ProfileOfRuns, OfOneBatchClaimsOfASampleOnlyWhatLayersKeep) {
  const plan::ModelProfile profile = profile_of_runs({.alone = {made_run(8)}}, kFacts);
  EXPECT_NEAR(profile.activation_bytes(), 400, 1e-6);
  EXPECT_NEAR(profile.process_bytes, 1e8 + 8 * 400, 1) << "the rest of the peak at that batch";
}

TEST(ProfileOfRuns, FindsWhatPlacesCostEachOther) {
  ProfiledRun pair = made_run(8, 1.25);
  LaneProfile& lane = pair.profile.ranks.front().lanes.front();
  lane.of(StepPhase::kCommunication) = lane.of(StepPhase::kOther);
  lane.of(StepPhase::kOther) = 0;
  const plan::ModelProfile profile =
      profile_of_runs({.alone = {made_run(8)}, .pairs = {pair}}, kFacts);
  ASSERT_EQ(profile.company.compute.size(), 2u);
  EXPECT_NEAR(profile.company.compute[1], 1.25, 1e-9);
  EXPECT_NEAR(profile.company.memory[1], 1.25, 1e-9);
  EXPECT_EQ(profile.company.cores, 2);
  EXPECT_NEAR(4440 / profile.within.bytes_per_second, 0.9 * 1.25 * 0.025, 1e-4);
  EXPECT_EQ(profile.within.core_share, 1);
}

TEST(ProfileOfRuns, TellsCopiedGradientsFromCompany) {
  // A fifth longer, and 6 ms for every batch.
  const auto pair_of = [](const ProfiledRun& alone) {
    ProfiledRun pair = alone;
    RankProfile& rank = pair.profile.ranks.front();
    LaneProfile& lane = rank.lanes.front();
    const double more =
        0.2 * (lane.of(StepPhase::kForward) + lane.of(StepPhase::kBackward)) + 6 / 0.9;
    lane.of(StepPhase::kBackward) += more;
    for (double& seconds : pair.step_seconds) seconds *= (rank.step + more) / rank.step;
    rank.step += more;
    return pair;
  };
  const std::vector<ProfiledRun> alone{made_run(8), made_run(16, 2), made_run(32, 4)};
  ProfiledRuns runs{.alone = alone};
  for (const ProfiledRun& run : alone) runs.pairs.push_back(pair_of(run));
  const plan::ModelProfile profile = profile_of_runs(runs, kFacts);
  EXPECT_NEAR(profile.company.compute[1], 1.2, 1e-6);
  EXPECT_NEAR(profile.overheads.gradient_core * 4440, 0.006, 1e-6);
}

TEST(CostLine, GainsNothing) {
  const CostLine none = cost_line({});
  EXPECT_EQ(none.slowdown, 1);
  EXPECT_EQ(none.fixed, 0);
  const CostLine one = cost_line({{1, 1.25}});
  EXPECT_DOUBLE_EQ(one.slowdown, 1.25) << "of one batch all is slowdown";
  EXPECT_EQ(one.fixed, 0);
  const CostLine faster = cost_line({{1, 1.5}, {4, 4}});
  EXPECT_EQ(faster.slowdown, 1);
  EXPECT_DOUBLE_EQ(faster.fixed, fixed_cost({{1, 1.5}, {4, 4}}));
  const CostLine steeper = cost_line({{1, 1.1}, {4, 5.2}});
  EXPECT_DOUBLE_EQ(steeper.slowdown, 1.2);
  EXPECT_EQ(steeper.fixed, 0);
}

TEST(FixedCost, IsThatOfShortStepsWhereLongOnesAreNoisy) {
  EXPECT_EQ(fixed_cost({}), 0);
  EXPECT_EQ(fixed_cost({{1, 0.9}}), 0) << "never a gain";
  EXPECT_DOUBLE_EQ(fixed_cost({{1, 1.5}, {9.5, 10}}), 0.5);
  EXPECT_NEAR(fixed_cost({{0.01, 0.011}, {1, 1.1}}), 0.001, 2e-5) << "a tenth of both";
}

TEST(ProfileOfRuns, FindsWhatRanksTakeThatShareCores) {
  ProfiledRuns runs{.alone = {made_run(8), made_run(16, 2)}};
  runs.pairs = {made_run(8), made_run(16, 2)};
  ProfileFacts facts = kFacts;
  facts.cores = 16;
  const plan::ModelProfile plain = profile_of_runs(runs, facts);
  EXPECT_EQ(plain.company.crowded, 1);
  plan::ModelProfile two_cores = plain;
  two_cores.company.cores = 2;
  const plan::Machine machine{.places = 4, .within = plain.within};
  const double expected = predict(two_cores, machine, {.replicas = 4}, 4 * 8).seconds;
  runs.crowds = {{.batch = 8, .profile = {}, .step_seconds = {1.3 * expected}}};
  const plan::ModelProfile full = profile_of_runs(runs, facts);
  EXPECT_GT(full.company.crowded, 1.3) << "exchange and bookkeeping are not longer";
  two_cores.company.crowded = full.company.crowded;
  EXPECT_NEAR(predict(two_cores, machine, {.replicas = 4}, 4 * 8).seconds, 1.3 * expected, 1e-9);
}

TEST(ProfileOfRuns, FindsTheMemoryOfAnExchange) {
  ProfiledRuns runs{.alone = {made_run(8), made_run(16)}};
  runs.pairs = {made_run(8), made_run(16)};
  runs.sockets = {made_run(16)};
  for (ProfiledRun& pair : runs.pairs) pair.peak_bytes += 3e6;
  runs.sockets.front().peak_bytes += 5e6;
  const plan::ModelProfile profile = profile_of_runs(runs, kFacts);
  EXPECT_NEAR(profile.overheads.replica_bytes, 3e6, 1);
  EXPECT_NEAR(profile.overheads.socket_bytes, 5e6, 1);
  EXPECT_NEAR(profile.process_bytes, 1e8, 1) << "that of one place";
}

TEST(ProfileOfRuns, RefusesRunsWithoutLayers) {
  ProfiledRun bare = made_run(8);
  bare.profile.ranks.front().chain.clear();
  EXPECT_THROW(profile_of_runs({.alone = {bare}}, kFacts), DataError);
  EXPECT_THROW(profile_of_runs({}, kFacts), InvalidArgument);
}

TEST(ProfileOfRuns, FindsWhatStagesAndThreadsCostBesides) {
  ProfiledRuns runs{.alone = {made_run(8), made_run(16, 2)}};
  runs.pairs = runs.alone;
  const plan::ModelProfile plain = profile_of_runs(runs, kFacts);
  const plan::Machine machine{.places = 2, .within = plain.within};
  const auto run_of = [](double batch, double seconds) {
    return ProfiledRun{.batch = batch, .profile = {}, .step_seconds = {seconds}};
  };
  const plan::Way mp{.stages = 2, .schedule = ScheduleKind::kSequential};
  const plan::Way dp{.replicas = 2, .replication = plan::Replication::kThreads};
  const auto staged = [&](double batch) { return predict(plain, machine, mp, batch).seconds; };
  const auto threaded = [&](double batch) { return predict(plain, machine, dp, batch).seconds; };
  runs.stages = {run_of(8, staged(8) + 0.004), run_of(16, staged(16) + 0.004)};
  runs.threads = {
      run_of(8, 1.1 * threaded(2 * 8) + 0.006), run_of(16, 1.1 * threaded(2 * 16) + 0.006)};
  const plan::ModelProfile full = profile_of_runs(runs, kFacts);
  EXPECT_NEAR(full.overheads.hand_over(8), 0.002, 1e-9) << "in each direction";
  EXPECT_NEAR(full.overheads.hand_over(16), 0.002, 1e-9) << "whatever the batch";
  EXPECT_NEAR(predict(full, machine, mp, 16).seconds, staged(16) + 0.004, 1e-9);
  EXPECT_NEAR(predict(full, machine, dp, 2 * 8).seconds, 1.1 * threaded(2 * 8) + 0.006, 1e-9);
  EXPECT_NEAR(predict(full, machine, dp, 2 * 16).seconds, 1.1 * threaded(2 * 16) + 0.006, 1e-9);
}

TEST(ProfileOfRuns, SeesNoGainInStagesAndThreads) {
  ProfiledRuns runs{.alone = {made_run(8), made_run(16, 2)}};
  runs.stages = {{.batch = 8, .profile = {}, .step_seconds = {0.001}}};
  runs.threads = runs.stages;
  const plan::ModelProfile profile = profile_of_runs(runs, kFacts);
  EXPECT_EQ(profile.overheads.hand_over(8), 0);
  EXPECT_EQ(profile.overheads.threads(8), 0);
}

TEST(ProfileOfRuns, FindsWhatSocketsKeepACoreFor) {
  ProfiledRun pair = made_run(8);
  ProfiledRun sockets = pair;
  for (double& seconds : sockets.step_seconds) seconds += 4440 * 1e-6;
  const ProfiledRuns runs{.alone = {made_run(8)}, .pairs = {pair}, .sockets = {sockets}};
  EXPECT_NEAR(profile_of_runs(runs, kFacts).overheads.socket_core, 1e-6, 1e-7);
}

TEST(ProfileCells, AreOnOnePlaceAndOnPairsWhereThereAreCores) {
  MeasureRequest request{.model = "toy", .batches = {8, 16}, .cores = 2};
  const auto cells = profile_cells(request);
  ASSERT_EQ(cells.size(), 10u);
  EXPECT_EQ(cells[1].cell.id, "profile-ddp-b8") << "soon after the same on one place";
  EXPECT_THAT(cells[1].cell.command, Contains("--profile"));
  EXPECT_THAT(cells[8].cell.command, Contains("gloo"));
  EXPECT_EQ(cells[9].cell.places, 4);
  EXPECT_EQ(cells[9].cell.cores, 2) << "of which two ranks each share one";
  const auto again = profile_cells(request, true);
  ASSERT_EQ(again.size(), cells.size());
  EXPECT_EQ(again[1].cell.id, cells[1].cell.id);
  EXPECT_THAT(again[1].cell.command, Not(Contains("--profile")));
  request.cores = 1;
  EXPECT_EQ(profile_cells(request).size(), 2u);
  request.cores = 2;
  request.batches = {64, 32, 16, 8, 4};
  EXPECT_EQ(profile_cells(request).size(), 5u + 5u + 3u + 3u + 1u + 1u);
  request.left_out = {MeasuredAs::kThreads, MeasuredAs::kSockets, MeasuredAs::kCrowd};
  EXPECT_EQ(profile_cells(request).size(), 5u + 5u + 3u) << "nobody asks about the others";
  request.refused = {4};
  EXPECT_EQ(profile_cells(request).size(), 4u + 4u + 2u) << "a net cannot be trained with four";
}

TEST(ProfileCells, BeginWithTheSmallestBatch) {
  const auto cells = profile_cells({.model = "toy", .batches = {16, 8}, .cores = 1});
  EXPECT_EQ(cells.at(0).batch, 8);
  EXPECT_EQ(cells.at(1).batch, 16);
}

TEST(Measuring, SaysHowFarItIsAndWhatTheRestTakes) {
  EXPECT_EQ(count_text(1, 11, 200), "2 of 11; about 3:20 left");
  EXPECT_EQ(count_text(9, 10, 5), "10 of 10; about 5.0 s left");
}

// A step of so many seconds a sample, and a second to start.
Pace pace_of(double seconds) { return {.step = plan::CostCurve({{1, seconds}}), .start = 1}; }

TEST(Measuring, TimesAsManyStepsTogetherAsFillHalfASecond) {
  const MeasureRequest request{.model = "toy", .batches = {8}};
  EXPECT_EQ(paced(request, pace_of(1e-6), 8).steps_a_line, 50);
  EXPECT_EQ(paced(request, pace_of(0.01), 8).steps_a_line, 6);
  EXPECT_EQ(paced(request, pace_of(1), 8).steps_a_line, 1) << "a long step alone";
}

TEST(Measuring, KnowsAboutHowLongATrainingTakes) {
  MeasureRequest request{.model = "toy", .batches = {8}, .cores = 2, .has_accelerator = false};
  const auto cells = profile_cells(request);
  // 15 steps of the profile, 3 that are timed, and the layers; a pair takes longer.
  EXPECT_DOUBLE_EQ(seconds_of(cells.at(0), request, pace_of(1)), 1 + 8 * (15 + 3 + 6));
  EXPECT_DOUBLE_EQ(seconds_of(cells.at(1), request, pace_of(1)), 1 + 1.3 * 8 * (15 + 3 + 6));
  request.has_accelerator = true;
  EXPECT_DOUBLE_EQ(seconds_of(cells.at(0), request, pace_of(1)), 1 + 8 * (25 + 3 + 6));
}

TEST(Measuring, TakesSmallerBatchesWhereThereIsLittleTime) {
  MeasureRequest request{
      .model = "toy", .batches = {128, 64, 32, 16, 8}, .cores = 2, .seconds = 240};
  request.has_accelerator = false;
  EXPECT_THAT(affordable(request, pace_of(1e-4)), ElementsAre(8, 16, 32, 64, 128));
  EXPECT_THAT(affordable(request, pace_of(0.27)), ElementsAre(1, 2, 4)) << "ResNet50 on a core";
  EXPECT_THAT(affordable(request, pace_of(100)), ElementsAre(1, 2, 4)) << "no fewer, however long";
  request.seconds = 1e6;
  EXPECT_THAT(affordable(request, pace_of(0.27)), ElementsAre(8, 16, 32, 64, 128));
}

TEST(ProfileOfRuns, OfOnePlaceSaysNothingOfNeighbours) {
  EXPECT_FALSE(profile_of_runs({.alone = {made_run(8)}}, kFacts).knows_within);
  EXPECT_TRUE(
      profile_of_runs({.alone = {made_run(8)}, .pairs = {made_run(8)}}, kFacts).knows_within);
}

TEST(NotAskedAbout, IsWhatNeedsNoTraining) {
  using M = MeasuredAs;
  plan::Question question{.places = {1, 2}};
  question.ways.kinds = {"serial", "ddp"};
  const auto left_out = [&](int places) { return not_asked_about({question}, places); };
  EXPECT_THAT(left_out(2), ElementsAre(M::kThreads, M::kStages, M::kSockets, M::kCrowd));
  EXPECT_THAT(left_out(1), ElementsAre(M::kThreads, M::kStages, M::kSockets)) << "2 share 1 core";
  question.ways.kinds = {"dp"};
  EXPECT_THAT(left_out(2), ElementsAre(M::kStages, M::kSockets, M::kCrowd));
  for (const char* staged : {"mp", "pp", "ddp+mp", "ddp+pp"}) {
    question.ways.kinds = {"serial", staged};
    EXPECT_THAT(left_out(2), ElementsAre(M::kThreads, M::kSockets, M::kCrowd)) << staged;
  }
  question.ways.kinds = {};
  EXPECT_THAT(left_out(2), ElementsAre(M::kSockets, M::kCrowd)) << "all ways are asked about";
  question.nodes = {1, 2};
  EXPECT_THAT(left_out(2), ElementsAre(M::kCrowd));
  question.machine.is_one_machine = true;
  EXPECT_THAT(left_out(2), IsEmpty()) << "4 places on 2 cores";
  EXPECT_THAT(left_out(4), ElementsAre(M::kCrowd));
}

TEST(NotAskedAbout, CountsWhatAChangeAsksAbout) {
  const plan::Question question{.places = {1, 2}, .batch = 8, .ways = {.kinds = {"serial", "ddp"}}};
  const auto with = [&](const char* change) {
    return not_asked_about({question, plan::changed(question, change).question}, 2);
  };
  EXPECT_THAT(with("places=4"), Not(Contains(MeasuredAs::kCrowd)));
  EXPECT_THAT(with("places=4"), Contains(MeasuredAs::kSockets));
  EXPECT_THAT(with("nodes=2"), Not(Contains(MeasuredAs::kSockets)));
  EXPECT_THAT(with("nodes=2"), Contains(MeasuredAs::kCrowd));
}

using ::testing::HasSubstr;

SweepLine all_reduce(std::int64_t bytes, double seconds, const char* backend = "gloo") {
  return {.backend = backend,
      .ranks = 4,
      .bytes = bytes,
      .seconds = {seconds, 2 * seconds, seconds / 2},
      .copy_seconds = {1e-6},
      .core_seconds = seconds / 4};
}

std::string refusal(const std::vector<SweepLine>& lines) {
  return lockstep::testing::message_of<DataError>([&] { link_of_sweep(lines, "sweep.jsonl"); });
}

TEST(MeasuredLink, GivesBackTheSecondsOfTheSweep) {
  const std::vector<SweepLine> lines{
      all_reduce(4096, 6e-3), all_reduce(1 << 20, 60e-3), all_reduce(64 << 20, 6)};
  const plan::Link link = link_of_sweep(lines, "sweep.jsonl");
  const plan::Machine machine{.nodes = 4, .places = 1, .between = link};
  for (const SweepLine& line : lines) {
    EXPECT_NEAR(plan::all_reduce_seconds(
                    static_cast<double>(line.bytes), {4, 1}, machine, plan::AllReduce::kRing),
        line.median_seconds(), 1e-9);
  }
  EXPECT_DOUBLE_EQ(link.latency, 1e-3);
  EXPECT_DOUBLE_EQ(link.bytes_per_second, (16 << 20) / 1.0);
  EXPECT_DOUBLE_EQ(link.core_share, 0.25);
  EXPECT_THAT(plan::text_of(link), HasSubstr(",1000us, measured"));
}

TEST(MeasuredLink, IsThatOfGloo) {
  const std::vector<SweepLine> lines{all_reduce(4096, 1, "shm"), all_reduce(8192, 2, "shm"),
      all_reduce(4096, 3), all_reduce(8192, 4)};
  EXPECT_DOUBLE_EQ(link_of_sweep(lines, "sweep.jsonl").latency, 0.5);
  EXPECT_EQ(link_of_sweep({lines[0], lines[1]}, "sweep.jsonl").latency, 1.0 / 6);
}

TEST(MeasuredLink, RefusesASweepThatHasNone) {
  EXPECT_THAT(refusal({}), HasSubstr("sweep.jsonl: has 0 backends"));
  EXPECT_THAT(refusal({all_reduce(4096, 1)}), HasSubstr("two sizes"));
  EXPECT_THAT(refusal({all_reduce(4096, 1), all_reduce(4096, 2)}), HasSubstr("twice"));
  EXPECT_THAT(refusal({all_reduce(4096, 1, "shm"), all_reduce(4096, 1, "nccl")}),
      HasSubstr("has 2 backends and no gloo"));
  SweepLine other = all_reduce(4096, 1);
  other.collective = Collective::kBroadcast;
  EXPECT_THAT(refusal({other, other}), HasSubstr("two sizes"));
}

}  // namespace
}  // namespace lockstep::bench
