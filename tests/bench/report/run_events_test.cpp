#include "lockstep/report/run/run_events.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/metric_lines.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/event_file.h"
#include "lockstep/record/event_log.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using testing::evaluation_line;
using ::testing::HasSubstr;
using testing::train_line;

constexpr double kMidnight = 1769817600;  // 2026-01-31T00:00:00Z

class RunEvents : public ::testing::Test {
 protected:
  RunReport run_of(const std::string& name, const std::string& metrics) const {
    fs::create_directories(folder_.path() / name);
    std::ofstream(folder_.path() / name / "metrics.jsonl") << metrics;
    return read_run_report(folder_.path() / name);
  }

  lockstep::testing::TemporaryFolder folder_;
};

std::string event_of(double time, std::int64_t step, double loss) {
  return scalars_event({time, step}, {{"train/loss", loss}, {"train/lr", 0.1},
                                         {"train/samples_per_s", 100}, {"train/step_ms", 500}});
}

TEST_F(RunEvents, AreOneCurveOverRestarts) {
  const auto run =
      run_of("a", train_line(0, 1, 4, 0.5, 1) + train_line(0, 1, 8, 0.25, 2) +
                      train_line(1, 1, 8, 0.125, 9) + evaluation_line(1, 1, 8, "val", 0.25, 0.875));
  EXPECT_EQ(events_of_run(run),
      version_event({kMidnight + 1}) + event_of(kMidnight + 1, 4, 0.5) +
          event_of(kMidnight + 9, 8, 0.125) +
          scalars_event({kMidnight + 60, 8}, {{"val/loss", 0.25}, {"val/accuracy", 0.875}}));
}

TEST_F(RunEvents, AreWrittenByNameOfTheRunAndWrittenAgain) {
  const auto first = run_of("a", train_line(0, 1, 4, 0.5, 1));
  const auto files = write_run_events({first, run_of("b", "")}, folder_.path() / "events");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0], folder_.path() / "events/a/events.out.tfevents.1769817601.lockstep");
  EXPECT_EQ(files[1].parent_path(), folder_.path() / "events/b");
  EXPECT_EQ(lockstep::testing::contents(files[0]), events_of_run(first));
  const auto longer = run_of("a", train_line(0, 1, 4, 0.5, 1) + train_line(0, 1, 8, 0.5, 2));
  EXPECT_EQ(write_run_events({longer}, folder_.path() / "events").at(0), files[0]);
  EXPECT_EQ(lockstep::testing::contents(files[0]), events_of_run(longer));
}

TEST_F(RunEvents, RunsOfOneNameAndFoldersOfRunsAreRefusedBeforeAnythingIsWritten) {
  const auto a = run_of("x/run", train_line(0, 1, 4, 0.5, 1));
  const auto b = run_of("y/run", train_line(0, 1, 4, 0.5, 1));
  const auto message = [&](const std::vector<RunReport>& runs, const char* directory) {
    return lockstep::testing::message_of<InvalidArgument>(
        [&] { write_run_events(runs, folder_.path() / directory); });
  };
  EXPECT_THAT(message({a, b}, "events"), HasSubstr("called run"));
  EXPECT_FALSE(fs::exists(folder_.path() / "events"));
  EXPECT_THAT(message({a}, "x"), HasSubstr("name another DIR"));
}

}  // namespace
}  // namespace lockstep::bench
