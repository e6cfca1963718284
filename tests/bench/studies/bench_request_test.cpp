#include "bench/studies/bench_request.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/cli/bench_flags.h"
#include "bench/studies/bench_report.h"
#include "bench/studies/throughput.h"
#include "lockstep/core/error.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::bench {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

StudyOptions options_within(const std::string& study, double seconds, int rounds = 0) {
  BenchRequest request{.studies = {study}, .options = {.cores = 2, .rounds = rounds}};
  fit_to_budget(request, seconds);
  return request.options;
}

std::vector<std::string> cells_within(const std::string& study, double seconds) {
  BenchRequest request{.studies = {study}, .options = options_within(study, seconds)};
  const std::vector<Study> studies = request.make();
  std::vector<std::string> ids;
  for (const StudyCell& cell : studies.front().cells) ids.push_back(cell.id);
  return ids;
}

TEST(BenchRequest, ABudgetOfMinutesIsTheQuickGridItself) {
  EXPECT_EQ(options_within("throughput", 60).work, 1);
  EXPECT_THAT(cells_within("throughput", 60), Contains("serial-p1-b2-224px-32-s4"));
}

TEST(BenchRequest, ABudgetOfHoursIsMoreWorkASample) {
  EXPECT_EQ(options_within("throughput", 3600).work, 30);
  EXPECT_THAT(cells_within("throughput", 3600), Contains("serial-p1-b2-224px-32-s91"));
  EXPECT_THAT(cells_within("ddp-scaling", 3600), Contains("n1-p1-train-s51"));
  EXPECT_THAT(cells_within("scale-out", 3600), Contains("mnist-small-120s-n2"));
  EXPECT_THAT(cells_within("pipeline", 3600), Contains("gpipe-b120-s20"));
  // Whole epochs of the small net, a part of the large one's.
  const auto data_parallel = cells_within("data-parallel", 3600);
  EXPECT_THAT(data_parallel, Contains("mnist-small-r1-b128-p1"));
  EXPECT_THAT(data_parallel, Contains("mnist-large-r1-b128-p1-s160"));
}

// The estimate of a round is for other machines, and for what the program was when it was made.
TEST(BenchRequest, AFirstRoundThatWasShortGivesSamplesMoreWork) {
  BenchRequest request{.studies = {"language-model"}, .options = {.cores = 2}};
  ASSERT_TRUE(fit_to_budget(request, 3600));
  EXPECT_EQ(request.options.work, 13);
  EXPECT_FALSE(refit_to_budget(request, 300, 3300)) << "as was expected";
  EXPECT_FALSE(refit_to_budget(request, 1000, 2600)) << "longer";
  EXPECT_EQ(request.options.work, 13);
  ASSERT_TRUE(refit_to_budget(request, 80, 3520));
  EXPECT_EQ(request.options.work, 95) << "six rounds of 587 s";
  EXPECT_EQ(request.make().front().cells.front().id, "serial-p1-t64-s761");
}

// An epoch of CIFAR-100 has 97 steps on four places.
TEST(BenchRequest, SamplesThatCanHaveNoMoreWorkDoNotBeginAnew) {
  BenchRequest request{.studies = {"ddp-scaling"}, .options = {.cores = 2}};
  ASSERT_TRUE(fit_to_budget(request, 36'000));
  const int work = request.options.work;
  EXPECT_EQ(request.make().front().cells.front().id, "n1-p1-train-s97");
  EXPECT_FALSE(refit_to_budget(request, 60, 35'940));
  EXPECT_EQ(request.options.work, work);
}

TEST(BenchRequest, TheWorkOfASampleHasABound) {
  BenchRequest request{.studies = {"language-model"}, .options = {.cores = 2}};
  ASSERT_TRUE(fit_to_budget(request, 36'000));
  ASSERT_TRUE(refit_to_budget(request, 1e-3, 36'000));
  EXPECT_EQ(request.options.work, 10'000);
  EXPECT_FALSE(refit_to_budget(request, 1e-3, 36'000));
  EXPECT_EQ(options_within("data-parallel", 1e9).work, 10'000);
}

TEST(BenchRequest, ABudgetChangesNeitherTheWholeGridNorRoundsThatWereAskedFor) {
  EXPECT_EQ(options_within("throughput", 3600, 3).work, 1);
  EXPECT_EQ(options_within("throughput", 3600, 3).rounds, 3);
  BenchRequest request{.studies = {"throughput"}, .options = {.full = true, .cores = 2}};
  fit_to_budget(request, 3600);
  EXPECT_EQ(request.options.work, 1);
  EXPECT_EQ(request.options.rounds, 0);
}

class StudyOnDevice : public ::testing::TestWithParam<const char*> {};

TEST_P(StudyOnDevice, TrainsEveryCellThere) {
  const StudyOptions options{.cores = 2, .device = "cuda"};
  const Study study = find_study(GetParam())->make(options);
  const Study without = find_study(GetParam())->make({.cores = 2});
  ASSERT_EQ(study.cells.size(), without.cells.size());
  for (std::size_t i = 0; i < study.cells.size(); ++i) {
    const StudyCell& cell = study.cells[i];
    EXPECT_EQ(cell.id, without.cells[i].id + "-cuda");
    EXPECT_EQ(cell.settings.back(), (Setting{"device", "cuda"}));
    EXPECT_EQ(train_flags().parse(testing::train_flags_of(cell)).find("--device"), "cuda")
        << cell.id;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StudyOnDevice,
    ::testing::Values(
        "data-parallel", "throughput", "pipeline", "ddp-scaling", "scale-out", "language-model"));

const StudyOptions kOnDevices{.cores = 1, .device = "cuda"};

TEST(StudyOnDevices, DevicesDoNotShareTheCores) {
  for (const StudyCell& cell : find_study("pipeline")->make(kOnDevices).cells)
    EXPECT_FALSE(cell.on_cores) << cell.id;
  for (const StudyCell& cell : find_study("pipeline")->make({.cores = 1, .device = "cpu"}).cells)
    EXPECT_TRUE(cell.on_cores) << cell.id;
  const Study few = find_study("data-parallel")->make(kOnDevices);
  const Study many = find_study("data-parallel")->make({.cores = 64, .device = "cuda"});
  for (std::size_t i = 0; i < few.cells.size(); ++i)
    EXPECT_EQ(few.cells[i].rounds, many.cells[i].rounds) << few.cells[i].id;
}

TEST(StudyOnDevices, WhatNeedsMoreGpusThanThereAreSaysSo) {
  BenchRequest request{
      .studies = {"throughput"}, .options = {.cores = 4, .gpus = 1, .device = "cpu,cuda"}};
  const std::vector<Study> studies = request.make();
  for (const StudyCell& cell : studies.at(0).cells) EXPECT_EQ(cell.not_measurable, "") << cell.id;
  for (const StudyCell& cell : studies.at(1).cells)
    EXPECT_EQ(cell.not_measurable,
        cell.places == 1 ? "" : concat("needs ", cell.places, " GPUs; this host has 1"));
  request.options = {.cores = 4, .gpus = 4, .device = "cuda"};
  const std::vector<Study> enough = request.make();
  for (const StudyCell& cell : enough.at(0).cells) EXPECT_EQ(cell.not_measurable, "") << cell.id;
}

TEST(StudyOnDevices, WhatOnlyCoresCanBeMeasuredOnSaysSo) {
  const auto reasons = [](const char* study) {
    std::vector<std::string> all;
    for (const StudyCell& cell : find_study(study)->make(kOnDevices).cells)
      if (!cell.not_measurable.empty()) all.push_back(cell.id + ": " + cell.not_measurable);
    return all;
  };
  EXPECT_THAT(reasons("pipeline"),
      ElementsAre(
          "single-both-b8-cuda: two devices do not make one place, as two sets of cores do"));
  EXPECT_THAT(reasons("ddp-scaling"), IsSupersetOf({HasSubstr("hosts of this machine would share"),
                                          HasSubstr("hosts of this machine would share")}));
  EXPECT_THAT(reasons("scale-out"), Contains(HasSubstr("n2-cuda: hosts of this machine would")));
  const throughput::Point large{.way = "dp", .places = 4, .batch = 4096};
  EXPECT_EQ(throughput::cell_of(large, kOnDevices, 1).not_measurable, "")
      << "the host's memory is not the device's";
}

TEST(StudyOnDevices, IsReportedFromItsFolder) {
  const lockstep::testing::TemporaryFolder folder;
  const BenchRequest request{.studies = {"data-parallel"}, .options = kOnDevices};
  write_request(folder.path(), request);
  const Study study = request.make().front();
  std::ofstream(folder.path() / "samples.jsonl") << to_json(testing::made_sample("data-parallel",
      study.cells.front(), 1, {{"first_epoch_seconds", 2}, {"second_epoch_seconds", 1.625}}));
  EXPECT_THAT(bench_text(read_bench_report(folder.path())), HasSubstr("1.62"));
  BenchRequest other = request;
  check_continues(*read_request(folder.path()), other);
  other.options.device = "cpu";
  EXPECT_THROW(check_continues(*read_request(folder.path()), other), InvalidArgument);
}

TEST(StudyOnDevices, EachOfSeveralHasItsOwnSection) {
  BenchRequest all{.studies = {}, .options = {.cores = 2, .device = "cpu,cuda"}};
  for (const StudyEntry& entry : study_catalogue()) all.studies.push_back(entry.name);
  page::Page page{.title = "a page", .sections = {}, .environment = {}};
  std::vector<std::string> names;
  for (const Study& study : all.make()) {
    names.push_back(study.name);
    page.sections.push_back(study.report(study, {}));
    if (study.name == "collectives") continue;
    for (const StudyCell& cell : study.cells)
      EXPECT_TRUE(study.name.ends_with("-" + cell.settings.back().value)) << cell.id;
  }
  EXPECT_THAT(names, ElementsAre("data-parallel-cpu", "data-parallel-cuda", "throughput-cpu",
                         "throughput-cuda", "ddp-scaling-cpu", "ddp-scaling-cuda", "pipeline-cpu",
                         "pipeline-cuda", "scale-out-cpu", "scale-out-cuda", "language-model-cpu",
                         "language-model-cuda", "collectives", "ways-cpu", "ways-cuda"));
  page::check_page(page);
}

TEST(BenchFlags, DeviceIsForStudiesThatTrain) {
  EXPECT_EQ(cli::parse_bench({"pipeline", "--device", "cpu"})->request.options.device, "cpu");
  EXPECT_EQ(cli::parse_bench({"all", "--device", "cuda"})->request.options.device, "cuda");
  EXPECT_EQ(cli::parse_bench({"all", "--device", "cpu,cuda"})->request.make().size(), 13U);
  for (const char* wrong : {"cpu,cpu", "cpu,", ","})
    EXPECT_THROW(cli::parse_bench({"pipeline", "--device", wrong}), InvalidArgument) << wrong;
  EXPECT_THROW(cli::parse_bench({"collectives", "--device", "cuda"}), InvalidArgument);
}

TEST(BenchFlags, ThatWouldBeIgnoredAreRefused) {
  EXPECT_NO_THROW(cli::parse_bench({"ddp-scaling", "--nodes", "a,b"}));
  EXPECT_NO_THROW(cli::parse_bench({"pipeline", "--list", "--full"}));
  EXPECT_THROW(cli::parse_bench({"pipeline", "--nodes", "a,b"}), InvalidArgument);
  EXPECT_THROW(cli::parse_bench({"pipeline", "--list", "--json"}), InvalidArgument);
  EXPECT_THROW(cli::parse_bench({"--list", "--full"}), InvalidArgument);
}

TEST(EveryStudy, ReportsEvenWhatHasNoSamples) {
  const auto text_of = [](const char* study, bool full) {
    const Study made = find_study(study)->make({.full = full, .cores = 2});
    return testing::text_of(testing::report_of(made, {}));
  };
  EXPECT_THAT(text_of("collectives", true),
      AllOf(HasSubstr("No collective whose ranks had cores of their own"),
          HasSubstr("48 of 48 cells have no number")));
  EXPECT_THAT(
      text_of("data-parallel", true), AllOf(HasSubstr("no cell with several places has a number"),
                                          HasSubstr("90 of 90 cells have no number")));
  EXPECT_THAT(text_of("pipeline", true), HasSubstr("48 of 48 cells have no number"));
  EXPECT_THAT(text_of("ddp-scaling", false), HasSubstr("No cell with several places has a number"));
  for (const bool full : {false, true}) {
    EXPECT_THAT(text_of("scale-out", full), HasSubstr("5 of 5 cells have no number"));
    EXPECT_THAT(text_of("throughput", full), HasSubstr("cells have no number"));
    EXPECT_THAT(text_of("language-model", full), HasSubstr("cells have no number"));
  }
}

TEST(BenchmarksPage, HasOnlyCommandsThatCanBeGiven) {
  std::ifstream page(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/benchmarks.md");
  const std::string beginning = "    lockstep bench ";
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(beginning)) continue;
    std::istringstream stream(line.substr(beginning.size()));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    EXPECT_NO_THROW(EXPECT_TRUE(cli::parse_bench(words).has_value())) << line;
    ++commands;
  }
  EXPECT_GE(commands, std::ssize(study_catalogue())) << "a line for each study at least";
}

}  // namespace
}  // namespace lockstep::bench
