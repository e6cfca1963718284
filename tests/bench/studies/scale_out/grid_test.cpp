#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/studies/scale_out/made_nodes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/cli/bench_flags.h"
#include "bench/studies/catalogue.h"
#include "bench/studies/scale_out/study.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image_folder.h"

namespace lockstep::bench::scale_out {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

std::string after(const Words& words, const std::string& flag) {
  const auto found = std::find(words.begin(), words.end(), flag);
  return found == words.end() || std::next(found) == words.end() ? "" : *std::next(found);
}

// What `lockstep train` is given: all after the word.
Words train_flags_of(const StudyCell& cell) {
  return {
      std::next(std::find(cell.command.begin(), cell.command.end(), "train")), cell.command.end()};
}

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
  EXPECT_THAT(eight.not_measurable, HasSubstr("not in --quick"));
  EXPECT_THAT(eight.not_measurable, HasSubstr("--full measures it"));
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
  EXPECT_THAT(message, HasSubstr("no room"));
  EXPECT_THAT(message, HasSubstr("pretraining-mnist-small-trial.log"));
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

}  // namespace
}  // namespace lockstep::bench::scale_out
