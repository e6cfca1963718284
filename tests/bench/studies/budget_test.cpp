// How a budget changes what is measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "bench/studies/bench_request.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {
namespace {

using ::testing::Contains;

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

TEST(BenchRequest, ABudgetChangesNeitherTheWholeGridNorRoundsThatWereAskedFor) {
  EXPECT_EQ(options_within("throughput", 3600, 3).work, 1);
  EXPECT_EQ(options_within("throughput", 3600, 3).rounds, 3);
  BenchRequest request{.studies = {"throughput"}, .options = {.full = true, .cores = 2}};
  fit_to_budget(request, 3600);
  EXPECT_EQ(request.options.work, 1);
  EXPECT_EQ(request.options.rounds, 0);
}

}  // namespace
}  // namespace lockstep::bench
