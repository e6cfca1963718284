#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "bench/studies/catalogue.h"
#include "bench/studies/ddp_scaling/study.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::ddp_scaling {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

Study scaling(const StudyOptions& options) { return find_study("ddp-scaling")->make(options); }

std::vector<std::string> before_train(const StudyCell& cell) {
  const auto train = std::find(cell.command.begin(), cell.command.end(), "train");
  return {cell.command.begin(), train};
}

TEST(ScalingGrid, IsTheStudysInFull) {
  const Study study = scaling({.full = true, .cores = 8});
  check_study(study);
  ASSERT_THAT(study.cells, SizeIs(6));
  EXPECT_THAT(before_train(study.cells[0]), SizeIs(0));
  EXPECT_THAT(before_train(study.cells[1]),
      ElementsAre("run", "--nproc-per-node", "2", "--", kThisProgram));
  EXPECT_EQ(study.cells[2].program, "torchrun");
  EXPECT_THAT(before_train(study.cells[2]),
      ElementsAre("--standalone", "--no-python", "--nproc-per-node", "2", kThisProgram));
  EXPECT_THAT(before_train(study.cells[4]),
      ElementsAre("hosts", "--count", "2", "--rate", "1gbit", "--", kThisProgram, "run",
          "--nproc-per-node", "2", "--", kThisProgram));
  EXPECT_EQ(study.cells[5].program, "") << "lockstep hosts starts it";
  EXPECT_THAT(before_train(study.cells[5]),
      ElementsAre("hosts", "--count", "2", "--rate", "1gbit", "--", "torchrun", "--no-python",
          "--nproc-per-node", "2", kThisProgram));
}

TEST(ScalingGrid, SaysWhereThereIsNoTorchrun) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", folder.str().c_str(), 1);
  const Study study = scaling({.cores = 4, .nodes = {"red", "blue"}});
  ::setenv("PATH", path.c_str(), 1);
  for (const std::size_t cell : {2U, 5U})
    EXPECT_THAT(study.cells[cell].not_measurable, HasSubstr("no torchrun in PATH"));
  EXPECT_EQ(study.cells[4].not_measurable, "");
}

TEST(ScalingGrid, EveryCommandTrainsAsTheStudyDid) {
  for (const bool full : {false, true}) {
    for (const StudyCell& cell : scaling({.full = full, .cores = 2}).cells) {
      const auto train = std::find(cell.command.begin(), cell.command.end(), "train");
      const auto command = cli::parse_train_flags({train + 1, cell.command.end()},
          {.world_size = cell.places, .local_world_size = cell.places});
      ASSERT_TRUE(command.has_value()) << cell.id;
      const TrainOptions& options = command->options;
      EXPECT_EQ(options.model, "resnet18");
      EXPECT_EQ(options.batch_size, kStudyBatch);
      EXPECT_EQ(options.val_interval, 1) << "as the study, an evaluation after each epoch";
      EXPECT_EQ(options.snapshots.unit, SnapshotUnit::kEpochs);
      EXPECT_EQ(options.snapshots.count, 1);
      EXPECT_EQ(cell.command.back(), full ? "none" : "3");
      EXPECT_THAT(cell.command, Contains("timm"));
      EXPECT_THAT(cell.command, Contains(full ? "224" : "32"));
      EXPECT_THAT(cell.command, Contains("cifar100:{bench}/data/cifar100"));
    }
  }
}

TEST(ScalingGrid, GivesEachPlaceTheSameCores) {
  const Study two = scaling({.full = true, .cores = 2}),
              sixteen = scaling({.full = true, .cores = 16});
  EXPECT_EQ(two.cells[0].cores, 1);
  EXPECT_EQ(two.cells[4].cores, 2);
  EXPECT_EQ(two.cells[4].places, 4);
  EXPECT_EQ(sixteen.cells[0].cores, 4);
  EXPECT_EQ(sixteen.cells[4].cores, 16);
  EXPECT_THAT(sixteen.cells[4].environment, ElementsAre("OMP_NUM_THREADS=4"));
}

TEST(ScalingGrid, TakesRealHostsAndAsksForEnough) {
  const Study study = scaling({.cores = 2, .nodes = {"red", "me@blue", "green"}});
  EXPECT_THAT(before_train(study.cells[3]),
      ElementsAre("hosts", "--names", "red,me@blue", "--", kThisProgram, "run", "--nproc-per-node",
          "1", "--", kThisProgram));
  EXPECT_EQ(study.cells[3].not_measurable, "");
  EXPECT_EQ(study.cells[4].places, 2) << "only those of this machine take its cores";
  const Study one = scaling({.cores = 2, .nodes = {"red"}});
  EXPECT_THAT(one.cells[3].not_measurable, HasSubstr("name as many with --nodes"));
}

TEST(ScalingGrid, PublishedTimesAreTheStudys) {
  EXPECT_DOUBLE_EQ(published_seconds(1, 1, "train").value(), 555.0834);
  EXPECT_DOUBLE_EQ(published_seconds(1, 2, "run").value(), 301.9986);
  EXPECT_DOUBLE_EQ(published_seconds(1, 2, "torchrun").value(), 324.2550);
  EXPECT_DOUBLE_EQ(published_seconds(2, 4, "hosts").value(), 549.2544);
  EXPECT_DOUBLE_EQ(published_seconds(2, 4, kHostsTorchrun).value(), 549.2544);
  EXPECT_FALSE(published_seconds(2, 2, "hosts").has_value());
}

TEST(ScalingGrid, CountsWhatALinkCarries) {
  EXPECT_EQ(study_steps(1), 3910);
  EXPECT_EQ(study_steps(4), 980);
  // Of two places a link carries all gradients once, of four one and a half times.
  EXPECT_NEAR(seconds_on_link(2, 8e9), 1960 * 44911248e-9, 1e-6);
  EXPECT_NEAR(seconds_on_link(4, 8e9), 980 * 1.5 * 44911248e-9, 1e-6);
}

TEST(ScalingGrid, PreparesASetOnceAndWantsOneThatIsNamed) {
  const lockstep::testing::TemporaryFolder folder;
  const auto prepare = find_study("ddp-scaling")->prepare;
  prepare({.cores = 2}, folder.path());
  const auto set = folder.path() / "data" / "cifar100";
  ASSERT_TRUE(std::filesystem::is_directory(set));
  const auto made = std::filesystem::last_write_time(set);
  prepare({.cores = 2}, folder.path());
  EXPECT_EQ(std::filesystem::last_write_time(set), made);
  EXPECT_THROW(prepare({.cores = 2, .data = {"cifar100"}}, folder.path()), InvalidArgument);
  EXPECT_THROW(
      prepare({.cores = 2, .data = {"cifar100:/no/such/folder"}}, folder.path()), DataError);
}

}  // namespace
}  // namespace lockstep::bench::ddp_scaling
