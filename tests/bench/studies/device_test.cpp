// Studies on a type of device.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/bench/studies/catalogue.h"
#include "lockstep/cli/bench/bench_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::bench {
namespace {

// Of a command that may begin with a launcher's words.
std::vector<std::string> training_of(const StudyCell& cell) {
  const auto verb = std::find(cell.command.begin(), cell.command.end(), "train");
  return verb == cell.command.end() ? std::vector<std::string>()
                                    : std::vector<std::string>(verb + 1, cell.command.end());
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
    const auto words = training_of(cell);
    ASSERT_FALSE(words.empty()) << cell.id;
    EXPECT_EQ(train_flags().parse(words).find("--device"), "cuda") << cell.id;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StudyOnDevice,
    ::testing::Values("data-parallel", "throughput", "pipeline", "ddp-scaling", "scale-out"));

TEST(BenchFlags, DeviceIsForStudiesThatTrain) {
  EXPECT_EQ(cli::parse_bench({"pipeline", "--device", "cpu"})->request.options.device, "cpu");
  EXPECT_EQ(cli::parse_bench({"all", "--device", "cuda"})->request.options.device, "cuda");
  EXPECT_THROW(cli::parse_bench({"collectives", "--device", "cuda"}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::bench
