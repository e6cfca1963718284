#include "bench/studies/scale_out.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/cli/bench_flags.h"
#include "bench/studies/bench_request.h"
#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image_folder.h"

namespace lockstep::bench::scale_out {
namespace {

using lockstep::testing::expect_parts;
using testing::after;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::expect_rows_at;
using testing::expect_values;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::report_of;
using testing::row_text;
using testing::table_of;
using testing::text_of;
using testing::train_flags_of;

using Words = std::vector<std::string>;

TEST(NodeGrid, IsTheStudysInFull) {
  const Study study = made_scale_out(true);
  check_study(study);
  ASSERT_EQ(study.cells.size(), 5U);
  EXPECT_EQ(study.rounds, 1);
  for (const int nodes : {1, 2, 4, 8}) {
    const Words& command = cell_of_nodes(study, nodes, false).command;
    EXPECT_EQ(after(command, "--model"), "vgg19");
    EXPECT_EQ(after(command, "--batch-size"), "32");
    EXPECT_EQ(after(command, "--max-time"), "2h");
    EXPECT_EQ(after(command, "--lr"), "1e-4");
    EXPECT_EQ(after(command, "--lr-scale"), "sqrt");
    EXPECT_EQ(after(command, "--image-size"), "224");
    EXPECT_EQ(after(command, "--count"), nodes == 1 ? "" : std::to_string(nodes));
    EXPECT_THAT(command, Not(Contains("--limit-train-batches")));
  }
  EXPECT_EQ(kDrawnClasses, 20);
}

TEST(NodeGrid, KillsAWorkerInTheMiddleOfOneRun) {
  for (const bool full : {false, true}) {
    const Study study = made_scale_out(full);
    const TrainerPlan plan = trainer_plan({.full = full});
    int killed = 0;
    for (const StudyCell& cell : study.cells) {
      const std::string kill = after(cell.command, "--kill");
      if (kill.empty()) continue;
      ++killed;
      EXPECT_EQ(kill, concat("1@", plan.kill_seconds));
      EXPECT_EQ(after(cell.command, "--max-restarts"), "3");
      EXPECT_EQ(after(cell.command, "--resume"), "auto");
      EXPECT_NE(after(cell.command, "--snapshot-interval"), "never");
    }
    EXPECT_EQ(killed, 1);
    EXPECT_GE(plan.kill_seconds, plan.budget_seconds / 2);
    EXPECT_LT(plan.kill_seconds, plan.budget_seconds);
  }
}

TEST(NodeGrid, LeavesOutOfTheQuickOneWhatMinutesDoNotAllow) {
  const Study quick = make_study({.full = false, .cores = 2});
  check_study(quick);
  const StudyCell& eight = cell_of_nodes(quick, 8, false);
  expect_parts(eight.not_measurable, {"not in --quick", "--full measures it"});
  EXPECT_EQ(cell_of_nodes(quick, 1, false).not_measurable, "");
  EXPECT_EQ(cell_of_nodes(quick, 1, false).rounds, 0);
  EXPECT_EQ(cell_of_nodes(quick, 4, false).rounds, 1) << "oversubscribed on two cores";
  EXPECT_EQ(cell_of_nodes(quick, 2, true).rounds, 1);
  for (const StudyCell& cell : quick.cells) {
    for (const StudyCell& other : made_scale_out(true).cells) EXPECT_NE(cell.id, other.id);
  }
}

TEST(NodeGrid, GivesEachHostTheSameCores) {
  EXPECT_EQ(cores_a_host({.full = true, .cores = 2}), 1);
  EXPECT_EQ(cores_a_host({.full = true, .cores = 16}), 2);
  const Study study = make_study({.full = true, .cores = 16});
  EXPECT_EQ(cell_of_nodes(study, 1, false).cores, 2);
  EXPECT_EQ(cell_of_nodes(study, 8, false).cores, 16);
  EXPECT_EQ(after(cell_of_nodes(study, 8, false).command, "--cores-a-host"), "2");
  EXPECT_THAT(cell_of_nodes(study, 8, false).environment, ElementsAre("OMP_NUM_THREADS=2"));
}

TEST(NodeGrid, TakesTheHostsThatAreNamed) {
  const Study study = make_study({.full = true, .cores = 2, .nodes = {"a", "b", "c"}});
  check_study(study);
  const StudyCell& two = cell_of_nodes(study, 2, false);
  EXPECT_EQ(after(two.command, "--names"), "a,b");
  EXPECT_THAT(two.command, Not(Contains("--rate")));
  EXPECT_EQ(two.not_measurable, "");
  EXPECT_EQ(two.places, 1) << "their cores are not this machine's";
  EXPECT_EQ(after(cell_of_nodes(study, 1, false).command, "--names"), "a");
  EXPECT_EQ(cell_of_nodes(study, 4, false).not_measurable, "needs 4 hosts, and --nodes names 3");
  EXPECT_THAT(cell_of_nodes(study, 2, true).not_measurable, HasSubstr("leave out --nodes"));
}

TEST(NodeGrid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& cell : made_scale_out(full).cells) {
      const int nodes = std::stoi(cell.settings[0].value);
      const auto train = cli::parse_train_flags(
          train_flags_of(cell), {.world_size = nodes, .local_world_size = 1});
      ASSERT_TRUE(train.has_value()) << cell.id;
      EXPECT_EQ(train->options.limits.seconds, trainer_plan({.full = full}).budget_seconds);
      EXPECT_FALSE(train->options.limits.epochs.has_value());
      EXPECT_EQ(train->options.resume.kind == Resume::kAuto, cell.settings[1].value == "yes");
    }
  }
}

TEST(NodeGrid, HandsOnWeightsToBeginWith) {
  const Study study =
      make_study({.full = true, .cores = 2, .pretrained = "/weights/vgg19.safetensors"});
  for (const StudyCell& cell : study.cells) {
    EXPECT_EQ(after(cell.command, "--pretrained"), "/weights/vgg19.safetensors");
  }
}

TEST(NodeGrid, BeginsWithWeightsThatTheBenchTrains) {
  for (const bool full : {false, true}) {
    const std::string weights =
        concat("{bench}/pretrained/", trainer_plan({.full = full}).model, ".safetensors");
    for (const StudyCell& cell : made_scale_out(full).cells)
      EXPECT_EQ(after(cell.command, "--pretrained"), weights);
    const StudyCell first = pretraining_cell({.full = full, .cores = 2, .device = "cpu,cuda"});
    const auto train =
        cli::parse_train_flags(train_flags_of(first), {.world_size = 1, .local_world_size = 1});
    ASSERT_TRUE(train.has_value());
    EXPECT_TRUE(train->options.limits.seconds && train->options.limits.steps) << "bounded";
    EXPECT_TRUE(train->options.pretrained.empty());
    EXPECT_EQ(after(first.command, "--device"), "cpu");
    const Words cell = cell_of_nodes(made_scale_out(full), 1, false).command;
    EXPECT_EQ(after(first.command, "--val-split"), after(cell, "--val-split"))
        << "what cells validate on is nothing to train on";
  }
}

TEST(NodeGrid, OfAnOlderBenchBeginsAsItDid) {
  const lockstep::testing::TemporaryFolder folder;
  std::ofstream(folder.path() / kRequestFile)
      << R"({"v":1,"studies":["scale-out"],"full":false,"data":[],"nodes":[],"cores":2,"rounds":0})";
  const auto before = read_request(folder.path()).value();
  for (const StudyCell& cell : make_study(before.options).cells) {
    EXPECT_THAT(cell.command, Not(Contains("--pretrained")));
    EXPECT_THAT(cell.settings, Contains(Setting{"weights", "fresh"}));
  }
  pretrain(before.options, {.program = "/no/such/lockstep", .bench = folder.path()});
}

TEST(Pretrain, IsLeftOutWhereThereAreWeights) {
  const lockstep::testing::TemporaryFolder folder;
  const CellPaths paths{.program = "/no/such/lockstep", .bench = folder.path()};
  pretrain({.full = true, .cores = 2, .nodes = {"a"}, .pretrained = "/weights"}, paths);
  std::filesystem::create_directories(folder.path() / "pretrained");
  std::ofstream(folder.path() / "pretrained" / "mnist-small.safetensors") << "weights";
  pretrain({.cores = 2}, paths);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs")) << "nothing was run";
}

/// Makes a program that is called as `lockstep` is, and does this with the folder of the run.
std::string program_that(
    const lockstep::testing::TemporaryFolder& folder, const std::string& does) {
  const std::string file = folder.file("program");
  std::ofstream(file) << "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\n" << does << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return file;
}

TEST(Pretrain, KeepsTheWeightsAndNothingElse) {
  const lockstep::testing::TemporaryFolder folder;
  const auto bench = folder.path() / "bench";
  const std::string program =
      program_that(folder, "mkdir -p $1 && echo trained > $1/model.safetensors");
  pretrain({.cores = 2}, {.program = program, .bench = bench});
  std::ifstream file(bench / "pretrained" / "mnist-small.safetensors");
  std::string text;
  EXPECT_TRUE(file >> text);
  EXPECT_EQ(text, "trained");
  EXPECT_FALSE(
      std::filesystem::exists(bench / "runs" / "scale-out" / "pretraining-mnist-small-trial"));
}

TEST(Pretrain, SaysWhyItFailed) {
  const lockstep::testing::TemporaryFolder folder;
  const CellPaths paths{.program = program_that(folder, "echo lockstep: no room >&2; exit 4"),
      .bench = folder.path()};
  const std::string message =
      lockstep::testing::message_of<Error>([&] { pretrain({.cores = 2}, paths); });
  expect_parts(message, {"no room", "pretraining-mnist-small-trial.log"});
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "pretrained"));
}

TEST(NodeGrid, HoldsImagesOutUnlessTheSetHasSomeToValidateOn) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string data = "images:" + folder.path().string();
  const auto split = [&] {
    const Study study = make_study({.full = true, .cores = 2, .data = {data}});
    const Words& command = cell_of_nodes(study, 1, false).command;
    EXPECT_EQ(after(command, "--data"), data);
    return after(command, "--val-split");
  };
  EXPECT_EQ(split(), "0.1");
  std::filesystem::create_directory(folder.path() / "val");
  EXPECT_EQ(split(), "");
}

TEST(PrepareScaleOut, DrawsASetOnce) {
  const lockstep::testing::TemporaryFolder folder;
  prepare({.full = false, .cores = 2}, folder.path());
  const auto drawn = folder.path() / "data" / "mnist";
  EXPECT_EQ(data::mnist(drawn, true).size(), trainer_plan({}).train_images);
  const auto when = std::filesystem::last_write_time(drawn);
  prepare({.full = false, .cores = 2}, folder.path());
  EXPECT_EQ(std::filesystem::last_write_time(drawn), when);
}

TEST(PrepareScaleOut, LeavesImagesNoPartToValidateOn) {
  const lockstep::testing::TemporaryFolder folder;
  // As one that was stopped in between has left it.
  const auto drawn = folder.path() / "data" / "images";
  for (const char* folder_of_class : {"train/a", "train/b", "val/a", "val/b"}) {
    std::filesystem::create_directories(drawn / folder_of_class);
    std::ofstream(drawn / folder_of_class / "1.jpg") << "image";
  }
  prepare({.full = true, .cores = 2}, folder.path());
  const auto parts = data::open_image_folders(drawn);
  EXPECT_TRUE(parts.test.has_value());
  EXPECT_FALSE(parts.validation.has_value()) << "--val-split is refused where there is one";
}

TEST(PrepareScaleOut, SaysWhatIsMissing) {
  const lockstep::testing::TemporaryFolder folder;
  const auto prepare_set = [&](bool full, const std::string& data) {
    prepare({.full = full, .data = {data}}, folder.path());
  };
  EXPECT_THROW(prepare_set(true, "images"), InvalidArgument);
  EXPECT_THROW(prepare_set(true, "images:/nowhere"), DataError);
  EXPECT_THROW(prepare_set(false, "mnist:/nowhere"), DataError);
  EXPECT_THROW(prepare_set(false, "images:/nowhere"), InvalidArgument) << "its net takes digits";
  EXPECT_THROW(prepare({.pretrained = "/nowhere"}, folder.path()), DataError);
}

TEST(BenchFlags, PretrainedIsForTheStudyThatTakesIt) {
  const auto parsed =
      cli::parse_bench({"scale-out", "--full", "--pretrained", "weights.safetensors"});
  ASSERT_TRUE(parsed.has_value());
  const std::filesystem::path file = parsed->request.options.pretrained;
  EXPECT_TRUE(file.is_absolute());
  EXPECT_EQ(file.filename(), "weights.safetensors");
  EXPECT_THROW(cli::parse_bench({"data-parallel", "--full", "--pretrained", "w"}), InvalidArgument);
  EXPECT_THROW(cli::parse_bench({"scale-out", "--pretrained", "w"}), InvalidArgument);
}

TEST(BenchRequest, RemembersTheWeights) {
  const lockstep::testing::TemporaryFolder folder;
  BenchRequest request{
      .studies = {"scale-out"}, .options = {.full = true, .pretrained = "/weights"}};
  write_request(folder.path(), request);
  const auto before = read_request(folder.path()).value();
  EXPECT_EQ(before.options.pretrained, "/weights");
  check_continues(before, request);
  EXPECT_TRUE(before.options.pretrains);
  request.options.pretrained.clear();
  EXPECT_THROW(check_continues(before, request), InvalidArgument);
}

/// Writes the folder of a run that trained for ten seconds.
class NodeValues : public testing::RunFolder {
 protected:
  NodeValues() {
    summary_.world_size = 2;
    summary_.batch_size = 32;
    summary_.steps = 5;
    summary_.stopped_by = "time";
    summary_.best = BestEpoch{2, 2.25};
    summary_.test = {.loss = 2.75, .top1 = 0.0625};
    summary_.best_test = {.loss = 2.5, .top1 = 0.125};
    summary_.epochs = {{.epoch = 1, .train_seconds = 3}, {.epoch = 2, .train_seconds = 3},
        {.epoch = 3, .train_seconds = 1.5}};
    std::ofstream(run() / "model.safetensors") << "weights";
  }

  // The clock on the wall stood at `wall` seconds, or as the run's own.
  void add_line(const char* split, double elapsed, std::int64_t step, double loss, int restart,
      int wall) const {
    char time[32];
    std::snprintf(time, sizeof time, "2026-01-31T00:00:%02d.000Z",
        wall == 0 ? static_cast<int>(elapsed) : wall);
    add({.elapsed = elapsed,
            .restart = restart,
            .epoch = (step + 1) / 2,
            .step = step,
            .split = split,
            .scores = {.loss = loss},
            .lr = 1e-4,
            .step_ms = 1500},
        time);
  }

  void add_train(double elapsed, std::int64_t step, double loss, int restart = 0, int wall = 0) {
    add_line("train", elapsed, step, loss, restart, wall);
  }

  void add_val(double elapsed, std::int64_t step, double loss, int restart = 0, int wall = 0) {
    add_line("val", elapsed, step, loss, restart, wall);
  }

  // Two whole epochs of two steps, and one step of the third.
  void add_whole_run() {
    add_train(2, 1, 3.0);
    add_train(4, 2, 2.8);
    add_val(4.4, 2, 2.7);
    add_train(6, 3, 2.6);
    add_train(8, 4, 2.4);
    add_val(8.4, 4, 2.25);
    add_train(10.1, 5, 2.3);
    add_val(10.6, 5, 2.3);
  }

  SampleValues values(bool killed = false) const {
    write(summary_);
    return values_of({.nodes = 2, .killed = killed, .budget_seconds = 10}, run());
  }

  std::string refusal(bool killed = false) const {
    return refusal_of([&] { values(killed); });
  }

  RunSummary summary_;
};

TEST_F(NodeValues, AreTheStudysRows) {
  add_whole_run();
  const auto found = values();
  expect_values(found, {{"learning_rate", 1e-4}, {"global_batch", 64}, {"steps_an_epoch", 2}});
  EXPECT_DOUBLE_EQ(found.at("epoch_seconds"), 3.95)
      << "with its validation, without the half second before the first step";
  EXPECT_DOUBLE_EQ(found.at("epochs"), 2.5) << "the clock cut the third";
  expect_values(found, {{"step_seconds", 1.5}, {"best_val_loss", 2.25}, {"test_loss", 2.5},
                           {"test_accuracy", 0.125}, {"model_bytes", 7}});
  EXPECT_EQ(found.count("lost_seconds"), 0U);
}

TEST_F(NodeValues, KeepTheCurvesByTheShareOfTheTime) {
  add_whole_run();
  const auto found = values();
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_020"), 3.0);
  EXPECT_EQ(found.count("train_loss_at_025"), 0U) << "no line was written then";
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_080"), 2.4);
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_100"), 2.3) << "the step that the clock found running";
  EXPECT_EQ(found.count("val_loss_at_040"), 0U) << "nothing was validated yet";
  expect_values(found, {{"val_loss_at_045", 2.7}, {"val_loss_at_080", 2.7},
                           {"val_loss_at_085", 2.25}, {"val_loss_at_100", 2.3}});
}

TEST_F(NodeValues, AShareOfTheTimeHasTheMeanOverItsSteps) {
  add_train(0.1, 1, 4.0);
  add_train(0.4, 4, 2.0);  // a line for three steps
  add_val(10.2, 4, 2.0);
  EXPECT_DOUBLE_EQ(values().at("train_loss_at_005"), 2.5);
}

TEST_F(NodeValues, OfNoWholeEpochHaveNoEpochTime) {
  add_train(9, 1, 3.0);
  add_val(11, 1, 3.0);
  const auto found = values();
  EXPECT_EQ(found.count("epoch_seconds"), 0U);
  EXPECT_EQ(found.count("epochs"), 0U);
  EXPECT_DOUBLE_EQ(found.at("steps"), 5);
}

TEST_F(NodeValues, SayWhatADeathCost) {
  add_train(2, 1, 3.0);
  add_train(4, 2, 2.8);
  add_val(4.4, 2, 2.7);
  add_train(6, 3, 9.9);           // made again by the next attempt
  add_train(5.5, 3, 2.6, 1, 13);  // which began from a snapshot after 4.5 s
  add_train(7.5, 4, 2.4, 1, 15);
  add_val(8, 4, 2.25, 1, 16);
  add_train(10, 5, 2.3, 1, 18);
  add_val(10.5, 5, 2.3, 1, 18);
  summary_.restarts = 1;
  const auto found = values(true);
  expect_values(found, {{"restarts", 1}, {"killed_after_seconds", 6}, {"made_again_seconds", 0.5}});
  EXPECT_DOUBLE_EQ(found.at("lost_seconds"), 7.5) << "18 - 2 on the wall, 10.5 - 2 in the run";
  expect_values(found, {{"epoch_seconds", 3.75}, {"train_loss_at_055", 2.6}});
  EXPECT_EQ(found.count("train_loss_at_060"), 0U) << "that step was made again";
}

TEST_F(NodeValues, RefuseARunThatDidNotEndAsItShould) {
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl"));
  add_whole_run();
  EXPECT_THAT(refusal(true), HasSubstr("never started again"));
  summary_.stopped_by = "epochs";
  EXPECT_THAT(refusal(), HasSubstr("ended by 'epochs', not by its time"));
  summary_.stopped_by = "time";
  summary_.steps = 0;
  EXPECT_THAT(refusal(), HasSubstr("not one step"));
}

// Of rounds in which scaling out paid.
page::Section usual_report(bool full = false) {
  const Study study = made_scale_out(full);
  return report_of(study, made_node_rounds(study, 2, 2.4));
}

TEST(ScaleOutStudy, HasExactlyTheStudysRows) {
  const auto section = usual_report(true);
  std::vector<std::string> heads;
  for (const auto& row : table_of(section, "scale-out-study").rows) heads.push_back(row.front());
  EXPECT_THAT(heads, ElementsAre("Learning Rate (e-4)", "Global Batch Size", "Steps Per Epoch",
                         "Avg Epoch Time (min)", "Epoch Num @ 2 h", "Scaling Efficiency",
                         "Scaling Efficiency, predicted", "Best Validation Loss", "Test Loss",
                         "Top1 Test Accuracy"));
}

TEST(ScaleOutStudy, SetsHereBesidePublished) {
  const Study study = made_scale_out();
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  const auto& rows = table_of(section, "scale-out-study");
  const std::string note = "4: oversubscribed; 8: not in --quick; --full measures it|";
  expect_rows_at(
      rows, {{0, "Learning Rate (e-4)|1.00|1.00|2.00|1.41|4.00|2.00|-|2.83|" + note},
                {3, "Avg Epoch Time (min)|0.05075|8.76|0.03383|5.40|0.04167|3.35|-|2.37|" + note},
                {5, "Scaling Efficiency|1.00|1.00|0.75|0.81|0.30|0.65|-|0.46|" + note}});
  // 45 MB at 4 Gbit/s beside the backward pass of a step of 0.5 s; the study's own 0.81 s and 558
  // MB at 25 Gbit/s.
  expect_rows_at(rows,
      {{6, "Scaling Efficiency, predicted|1.00|1.00|0.95|0.99|0.92|0.98|0.91|0.98|" + note},
          {9, "Top1 Test Accuracy|25.00 %|86.90 %|25.00 %|87.30 %|25.00 %|87.50 %|-|87.50 %|" +
                  note}});
  EXPECT_THAT(rows.notes, ::testing::Contains(HasSubstr("mnist-small at 28 pixels")));
  EXPECT_THAT(rows.notes, ::testing::Contains(HasSubstr("375")));
  EXPECT_THAT(rows.notes, ::testing::Contains(HasSubstr("which this bench trained before")));
}

TEST(ScaleOutStudy, SetsEfficiencyWithItsInterval) {
  const auto section = usual_report();
  const auto& rows = table_of(section, "scale-out-efficiency");
  ASSERT_EQ(rows.rows.size(), 4U);
  expect_rows_at(rows, {{1, "2|2.03|2.02 to 2.04|0.75|0.75 to 0.75|0.95|0.81|-|"},
                           {2, "4|2.50|-|0.30|-|0.92|0.65|oversubscribed|"}});
}

TEST(ScaleOutStudy, ShowsWhatADeathCost) {
  const auto section = usual_report();
  const auto& rows = table_of(section, "scale-out-survival");
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(row_text(rows, 1),
      "2 nodes, a worker killed|5.00|1|2.25|0.750|its time|12|2.4500|25.00 %|-|");
  EXPECT_THAT(row_text(rows, 0), HasSubstr("nobody was killed"));
  EXPECT_THAT(text_of(section),
      ContainsRegex("worker of 2 nodes was killed after 5.00 s of 10 s.*1 restart.*"
                    "lost 2.25 s .* loss of 2.4500 .2.4000 without a death"));
}

TEST(ScaleOutStudy, ConcludesWhatPaidByHowMuchAndHowSure) {
  const std::string text = text_of(usual_report());
  expect_parts(text, {"Scaling out paid here, in epochs and in what was learned", "over 2 rounds",
                         "4 nodes are more than there are cores", "1 of 5 cells have no number"});
  EXPECT_THAT(text, ContainsRegex("2 nodes: 1.50 .1.50 to 1.50. times .*, more in every round"));
  EXPECT_THAT(text,
      ContainsRegex("2 nodes: .*efficiency is 0.75 .0.75 to 0.75., 0.95 predicted, 0.81 pub"));
  EXPECT_THAT(text,
      ContainsRegex("2 nodes: .*loss was 0.9600 .0.9600 to 0.9600. times .*, better in every "));
  EXPECT_THAT(text, Not(HasSubstr("4 nodes: ")));
}

TEST(ScaleOutStudy, ConcludesTheOtherWayFromOtherNumbers) {
  const Study study = made_scale_out();
  const std::string slow = text_of(report_of(study, made_node_rounds(study, 4, 2.6)));
  expect_parts(
      slow, {"fewer in every round", "worse in every round", "Scaling out did not pay here."});
  const std::string fewer = text_of(report_of(study, made_node_rounds(study, 4, 2.4)));
  EXPECT_THAT(fewer, HasSubstr("Fewer epochs were made, and yet more was learned"));
  const std::string no_wiser = text_of(report_of(study, made_node_rounds(study, 2, 2.6)));
  EXPECT_THAT(no_wiser, HasSubstr("Scaling out paid in epochs; that more was learned"));
  auto samples = made_node_rounds(study, 3, 2.5);
  for (Sample& sample : samples) {
    if (sample.round == 2 && sample.places == 2) sample.values[kEpochs] = 1;
  }
  EXPECT_THAT(
      text_of(report_of(study, samples)), HasSubstr("Whether scaling out paid is not shown."));
}

TEST(ScaleOutStudy, IsNotSureOfOneRound) {
  const Study study = made_scale_out();
  const std::string text = text_of(report_of(study, made_node_rounds(study, 2, 2.4, 1)));
  expect_parts(text, {"only one round, not conclusive", "nothing is sure",
                         "Whether scaling out paid is not shown."});
}

TEST(ScaleOutStudy, SaysWhyACellHasNoNumber) {
  const Study study = made_scale_out();
  auto samples = made_node_rounds(study, 2, 2.4);
  testing::fail_where(
      samples, "killed by SIGKILL", [](const Sample& sample) { return sample.places == 2; });
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "scale-out-study"), 0), HasSubstr("2: killed by SIGKILL"));
  EXPECT_THAT(row_text(table_of(section, "scale-out-efficiency"), 1), HasSubstr("SIGKILL"));
  EXPECT_THAT(row_text(table_of(section, "scale-out-survival"), 1), HasSubstr("SIGKILL"));
  expect_parts(text_of(section),
      {"No cell with several nodes has a number", "The run with a killed worker has no number.",
          "3 of 5 cells have no number"});
}

TEST(ScaleOutStudy, SaysWhereNoWholeEpochWasMade) {
  const Study study = made_scale_out();
  auto samples = made_node_rounds(study, 2, 2.4);
  for (Sample& sample : samples) {
    for (const char* name : {kEpochSeconds, kEpochs, "steps_an_epoch"}) sample.values.erase(name);
  }
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "scale-out-study"), 2),
      HasSubstr("1: no whole epoch in the time"));
  EXPECT_THAT(text_of(section), HasSubstr("No cell with several nodes has a number"));
}

TEST(ScaleOutStudy, EveryTableMarksTheOversubscribed) {
  const auto section = usual_report();
  page::Section with_many_nodes = section;
  std::erase_if(with_many_nodes.tables, [](const auto& t) { return t.id == "scale-out-survival"; });
  testing::expect_oversubscribed_marks(with_many_nodes);
  for (const plot::Figure& figure : section.figures) {
    EXPECT_THAT(figure.note, HasSubstr("From 4 nodes on oversubscribed.")) << figure.id;
  }
}

TEST(ScaleOutStudy, DrawsTheCurvesOfTheSamples) {
  const auto section = usual_report();
  ASSERT_EQ(section.figures.size(), 3U);
  const auto& train = section.figures.at(0);
  EXPECT_EQ(train.id, "scale-out-train-loss");
  EXPECT_EQ(train.x.label, "training time [s]");
  ASSERT_EQ(train.series.size(), 4U);
  EXPECT_EQ(train.series[1].name, "2 nodes");
  EXPECT_EQ(train.series[3].name, "2 nodes, a worker killed");
  ASSERT_EQ(train.series[1].points.size(), 20U);
  EXPECT_DOUBLE_EQ(train.series[1].points[0].x, 0.5);
  EXPECT_DOUBLE_EQ(train.series[1].points[0].y, 2.4 + 0.95);
  EXPECT_EQ(section.figures.at(1).series[1].points.size(), 17U) << "from the first validation on";
  const auto& efficiency = section.figures.at(2);
  ASSERT_EQ(efficiency.series.size(), 3U);
  EXPECT_EQ(efficiency.series[1].name, "predicted");
  EXPECT_TRUE(efficiency.series[0].points.at(2).hollow) << "four nodes on two cores";
  const auto hours =
      report_of(made_scale_out(true), made_node_rounds(made_scale_out(true), 600, 2.4));
  EXPECT_EQ(hours.figures.at(0).x.label, "training time [min]");
}

TEST(ScaleOutStudy, PredictsNothingOfARealNetwork) {
  const Study study = make_study({.full = true, .cores = 2, .nodes = {"a", "b"}});
  const auto section = report_of(study, made_node_rounds(study, 600, 2.4));
  EXPECT_THAT(row_text(table_of(section, "scale-out-study"), 6), HasSubstr("predicted|-|1.00|-|"));
  EXPECT_THAT(table_of(section, "scale-out-study").notes,
      ::testing::Contains(HasSubstr("the rate of a real network is not known")));
}

TEST(PredictedEfficiency, IsOfSendingBesideBackward) {
  const plan::WholeStep one{.seconds = 3, .parameter_bytes = 1e9};
  EXPECT_DOUBLE_EQ(predicted_efficiency(1, one, 8e9), 1);
  // Forward takes 1 s and backward 2 s, of which a bucket's sixteenth comes before the first byte
  // can leave; two nodes send 1e9 bytes each.
  EXPECT_DOUBLE_EQ(predicted_efficiency(2, one, 8e8), 3 / (1 + 2.0 / 16 + 10));
  EXPECT_DOUBLE_EQ(predicted_efficiency(2, one, 8e9), 3 / (3 + 1.0 / 16)) << "but the last bucket";
  EXPECT_LT(predicted_efficiency(4, one, 8e8), predicted_efficiency(2, one, 8e8));
}

}  // namespace
}  // namespace lockstep::bench::scale_out
