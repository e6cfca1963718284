#include "bench/studies/ddp_scaling.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/studies/bench_request.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::ddp_scaling {
namespace {

using lockstep::testing::expect_parts;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::expect_rows_at;
using testing::expect_values;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::report_of;
using testing::row_text;
using ::testing::SizeIs;
using testing::table_of;
using testing::text_of;

std::vector<std::string> before_train(const StudyCell& cell) {
  const auto train = std::find(cell.command.begin(), cell.command.end(), "train");
  return {cell.command.begin(), train};
}

TEST(ScalingGrid, IsTheStudysInFull) {
  const Study study = make_study({.full = true, .cores = 8});
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
  const Study study = make_study({.cores = 4, .nodes = {"red", "blue"}});
  ::setenv("PATH", path.c_str(), 1);
  for (const std::size_t cell : {2U, 5U})
    EXPECT_THAT(study.cells[cell].not_measurable, HasSubstr("no torchrun in PATH"));
  EXPECT_EQ(study.cells[4].not_measurable, "");
}

TEST(ScalingGrid, EveryCommandTrainsAsTheStudyDid) {
  for (const bool full : {false, true}) {
    for (const StudyCell& cell : make_study({.full = full, .cores = 2}).cells) {
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
  const Study two = make_study({.full = true, .cores = 2}),
              sixteen = make_study({.full = true, .cores = 16});
  EXPECT_EQ(two.cells[0].cores, 1);
  EXPECT_EQ(two.cells[4].cores, 2);
  EXPECT_EQ(two.cells[4].places, 4);
  EXPECT_EQ(sixteen.cells[0].cores, 4);
  EXPECT_EQ(sixteen.cells[4].cores, 16);
  EXPECT_THAT(sixteen.cells[4].environment, ElementsAre("OMP_NUM_THREADS=4"));
}

TEST(ScalingGrid, TakesRealHostsAndAsksForEnough) {
  const Study study = make_study({.cores = 2, .nodes = {"red", "me@blue", "green"}});
  EXPECT_THAT(before_train(study.cells[3]),
      ElementsAre("hosts", "--names", "red,me@blue", "--", kThisProgram, "run", "--nproc-per-node",
          "1", "--", kThisProgram));
  EXPECT_EQ(study.cells[3].not_measurable, "");
  EXPECT_EQ(study.cells[4].places, 2) << "only those of this machine take its cores";
  const Study one = make_study({.cores = 2, .nodes = {"red"}});
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

class ScalingValues : public testing::RunFolder {
 protected:
  // Half a second of checkpoint after each evaluation; the start took three.
  SampleValues values_of(const std::vector<EpochSummary>& epochs) const {
    RunSummary summary;
    summary.epochs = epochs;
    write(summary);
    double elapsed = 3;
    for (const EpochSummary& epoch : epochs) {
      elapsed += epoch.train_seconds + epoch.val_seconds.value_or(0);
      add({.elapsed = elapsed, .epoch = epoch.epoch, .split = "val"});
      elapsed += 0.5;
    }
    return ddp_scaling::values_of(run());
  }
};

TEST_F(ScalingValues, SumWholeEpochs) {
  std::vector<EpochSummary> epochs;
  for (int epoch = 1; epoch <= 10; ++epoch) {
    const double seconds = epoch == 1 ? 60 : 50 + (epoch % 2 == 0 ? 1 : -1);
    epochs.push_back({.epoch = epoch,
        .train_seconds = seconds,
        .train_loss = 4,
        .samples = 50048,
        .val_seconds = 6,
        .val_samples = 10000});
  }
  const auto found = values_of(epochs);
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 1) << "ranks repeat some images";
  EXPECT_NEAR(found.at("run_seconds"), 60 + 5 * 51 + 4 * 49, 1e-9);
  EXPECT_NEAR(found.at("trained_seconds"), found.at("run_seconds"), 1e-9);
  expect_values(found, {{"first_epoch_seconds", 60}, {"evaluation_seconds", 6}});
  EXPECT_NEAR(found.at("checkpoint_seconds"), 0.5, 1e-9);
  EXPECT_NEAR(found.at("whole_seconds"), found.at("run_seconds") + 65, 1e-9);
}

TEST_F(ScalingValues, ExtrapolateThePartThatWasMeasured) {
  const auto found = values_of(
      {{.epoch = 1, .train_seconds = 5, .samples = 500, .val_seconds = 0.75, .val_samples = 1000},
          {.epoch = 2,
              .train_seconds = 2,
              .train_loss = 4.5,
              .samples = 500,
              .val_seconds = 0.25,
              .val_samples = 1000}});
  expect_values(found, {{"epoch_share", 0.01}, {"epoch_seconds", 200}, {"first_epoch_seconds", 203},
                           {"run_seconds", 203 + 9 * 200}, {"trained_seconds", 7},
                           {"samples_per_s", 250}, {"train_loss", 4.5}});
  EXPECT_DOUBLE_EQ(found.at("evaluation_seconds"), 5) << "half a second for a tenth";
  EXPECT_DOUBLE_EQ(found.at("evaluated_images"), 1000);
  EXPECT_NEAR(found.at("between_seconds"), 1 + 2 * 0.5, 1e-9);
  EXPECT_NEAR(found.at("whole_seconds"), 203 + 9 * 200 + 10 * 5.5, 1e-9);
}

TEST_F(ScalingValues, AreNotThoseOfOneEpoch) {
  EXPECT_THROW(values_of({{.epoch = 1, .train_seconds = 5, .samples = 500}}), DataError);
}

TEST_F(ScalingValues, AreNotThoseWithoutEvaluations) {
  const EpochSummary first{.epoch = 1, .train_seconds = 5, .samples = 500};
  EpochSummary second = first;
  second.epoch = 2;
  EXPECT_THROW(values_of({first, second}), DataError);
}

constexpr int kEnough = 16;  // cores for four places

page::Section report_of(const ScalingSeconds& seconds, int cores = kEnough) {
  const Study study = made_scaling_study(cores);
  return report_of(study, made_scaling_rounds(study, seconds));
}

std::string notes_text(const page::Section& section) {
  std::string text;
  for (const std::string& note : section.tables.front().notes) text += note + "\n";
  return text;
}

TEST(DdpScaling, SetsPublishedBesideHereAndPredicted) {
  const auto section = report_of(usual_scaling());
  const std::string id = "ddp-scaling-run-times";
  expect_rows_at(table_of(section, id),
      {{0, "1|1|lockstep train|555|1124|1020|1010 to 1030|-|the baseline of the others|"},
          {1, "2|1|lockstep run|302|586|530|525 to 536|510|-|"},
          {2, "2|1|torchrun|324|592|536|530 to 541|510|-|"}});
  // 1960 steps of 44.9 MB at 125 MB/s besides.
  expect_rows_at(table_of(section, id),
      {{3, "2|2|lockstep hosts|-|788|714|707 to 721|1065|not in the study|"},
          {4, "4|2|lockstep hosts|549|900|816|808 to 824|532|-|"},
          {5, "4|2|torchrun on lockstep hosts|549|990|898|889 to 906|532|-|"}});
  EXPECT_THAT(notes_text(section), HasSubstr("a link of 1gbit each way"));
}

TEST(DdpScaling, ReportsSpeedUpsAndWhatStartingCosts) {
  const auto section = report_of(usual_scaling());
  expect_rows_at(table_of(section, "ddp-scaling-speed-up"),
      {{0, "2|1|lockstep run|1.84|1.92|1.92 to 1.92|2.00|96 %|-|"},
          {3, "4|2|lockstep hosts|1.01|1.25|1.25 to 1.25|1.92|31 %|-|"}});
  EXPECT_EQ(row_text(table_of(section, "ddp-scaling-epochs"), 2),
      "2|1|torchrun|54.5|53.5|934|4.200|5.36|0.250|3.00|-|");
}

TEST(DdpScaling, ConcludesWhatPaid) {
  const std::string text = text_of(report_of(usual_scaling()));
  expect_parts(text, {"1.01 times (1.01 to 1.01) as long under torchrun",
                         "1.10 times (1.10 to 1.10) as long by torchrun on each as by",
                         "Four places on two nodes took 1.54 times", "stay on one node",
                         "over 3 rounds", "Gradients alone take 528 s",
                         "epochs of one place took 1124 s, of which training 1020 s"});
  EXPECT_THAT(
      text, ContainsRegex("2 places on one node.* lockstep run.* 1.92 times .1.92 to 1.92. as fast "
                          "as one place: faster in every round"));
  EXPECT_THAT(text, ContainsRegex("1.35 times .* on two nodes as on one: longer in every round"));
}

TEST(DdpScaling, ConcludesTheOtherWayFromOtherNumbers) {
  auto seconds = usual_scaling();
  seconds["1 2 run"] = 1200;
  seconds["2 2 hosts"] = 1000;
  seconds["2 4 hosts"] = 300;
  const std::string text = text_of(report_of(seconds));
  expect_parts(text, {"0.83 times (0.83 to 0.83) as fast as one place: slower in every round",
                         "under torchrun as under lockstep run: shorter in every round",
                         "on two nodes as on one: shorter in every round", "the second node pays"});
}

TEST(DdpScaling, FindsNoDifferenceWhereIntervalsCross) {
  const Study study = made_scaling_study(kEnough);
  auto samples = made_scaling_rounds(study, usual_scaling());
  for (Sample& sample : samples) {
    const bool torchrun = sample.settings.at("started by") == "torchrun";
    if (torchrun && sample.round == 2) sample.values["run_seconds"] = 400;
  }
  EXPECT_THAT(text_of(report_of(study, samples)),
      HasSubstr("under lockstep run: no significant difference"));
}

TEST(DdpScaling, ClaimsNothingOfMorePlacesThanCores) {
  const auto section = report_of(usual_scaling(), 2);
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 4), HasSubstr("oversubscribed"));
  EXPECT_THAT(text_of(section), HasSubstr("not a fair test"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("Four places on two nodes took")));
  EXPECT_THAT(notes_text(section), HasSubstr("oversubscribed: more places than cores"));
}

TEST(DdpScaling, SaysWhyACellHasNoNumber) {
  Study study = made_scaling_study(kEnough);
  auto seconds = usual_scaling();
  seconds.erase("1 2 torchrun");
  study.cells[2].not_measurable = "there is no torchrun in PATH";
  auto samples = made_scaling_rounds(study, seconds);
  testing::fail_where(samples, "killed by SIGKILL",
      [](const Sample& sample) { return sample.settings.at("nodes") == "2"; });
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 2), HasSubstr("no torchrun"));
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 3), HasSubstr("SIGKILL"));
  EXPECT_THAT(text_of(section), HasSubstr("4 of 6 cells have no number"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("torchrun as under")));
}

TEST(DdpScaling, IsNotSureOfOneRound) {
  const Study study = made_scaling_study(kEnough);
  auto samples = made_scaling_rounds(study, usual_scaling());
  samples.resize(study.cells.size());
  const auto section = report_of(study, samples);
  expect_parts(text_of(section), {"only one round, not conclusive", "nothing is sure"});
}

TEST(DdpScaling, SaysWhatIsExtrapolatedAndSmaller) {
  Study study = make_study({.cores = 2});
  for (StudyCell& cell : study.cells) cell.not_measurable.clear();
  auto samples = made_scaling_rounds(study, usual_scaling());
  for (Sample& sample : samples) {
    sample.values["epoch_share"] = 0.02;
    sample.values["evaluated_images"] = 1024;
  }
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 1),
      HasSubstr("extrapolated from 2.0 %"));
  EXPECT_THAT(notes_text(section), HasSubstr("32 x 32 pixels in place of the study's 224"));
  EXPECT_THAT(text_of(section), HasSubstr("extrapolated from 2.0 %"));
  EXPECT_THAT(notes_text(section),
      HasSubstr("evaluation: extrapolated from 1024 images to 10000; a checkpoint"));
}

TEST(DdpScaling, NamesRealHostsAndPredictsNothingOfTheirLink) {
  Study study = make_study({.full = true, .cores = 2, .nodes = {"red", "blue"}});
  for (StudyCell& cell : study.cells) cell.not_measurable.clear();
  const auto section = report_of(study, made_scaling_rounds(study, usual_scaling()));
  // Two places on each of two machines with two cores each are no more than there are.
  EXPECT_EQ(row_text(table_of(section, "ddp-scaling-run-times"), 4),
      "4|2|lockstep hosts|549|900|816|808 to 824|-|link's rate not known: no prediction|");
  EXPECT_THAT(notes_text(section), HasSubstr("the real hosts that were named"));
}

}  // namespace
}  // namespace lockstep::bench::ddp_scaling
