// Holds README.md, docs/training.md and others to the command: their lines can be given, the table
// of rates is what the schedules do.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "parsed_flags.h"

#include "lockstep/train/options/train_flags.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_with(const std::string& name, const std::string& beginning) {
  std::ifstream page(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/" + name);
  std::vector<std::string> found;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with(beginning)) found.push_back(line.substr(beginning.size()));
  return found;
}

TrainOptions options_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  int ranks = 1;  // that the launcher would have started
  for (std::string word; stream >> word;) {
    if (!words.empty() && words.back() == "--nproc-per-node") ranks = std::stoi(word);
    words.push_back(word);
  }
  return testing::parsed(words, ranks);
}

TEST(TrainingPage, ItsCommandsCanBeGiven) {
  const auto commands = lines_with("training.md", "    lockstep train ");
  EXPECT_GE(commands.size(), 3U);
  for (const auto& command : commands) EXPECT_NO_THROW(options_of(command)) << command;
}

TEST(SnapshotsPage, ItsCommandsCanBeGiven) {
  const auto commands = lines_with("snapshots.md", "    lockstep train ");
  EXPECT_EQ(commands.size(), 10U);
  for (const auto& command : commands) EXPECT_NO_THROW(options_of(command)) << command;
}

TEST(Readme, ItsTrainingsCanBeGiven) {
  const auto commands = lines_with("../README.md", "lockstep train ");
  EXPECT_GE(commands.size(), 4U);
  for (const auto& command : commands) EXPECT_NO_THROW(options_of(command)) << command;
}

TEST(LaunchingPage, ItsTrainingsCanBeGiven) {
  const auto commands = lines_with("launching.md", "    lockstep train ");
  EXPECT_GE(commands.size(), 1U);
  for (const auto& command : commands) EXPECT_NO_THROW(options_of(command)) << command;
}

// The row as the page must have it, with epochs of one step.
std::string row_of(const std::string& flags) {
  constexpr std::int64_t kEpochs = 6;
  const TrainOptions options = options_of(flags + " --lr 0.1 --epochs " + std::to_string(kEpochs));
  const LrSchedule schedule =
      make_lr_schedule(options.optimizer.schedule, options.optimizer.lr, options.limits, 1);
  std::string row = flags + "` |";
  for (std::int64_t step = 0; step < kEpochs; ++step) {
    char rate[32];
    std::snprintf(rate, sizeof rate, " %.4g |", lr_at(schedule, step));
    row += rate;
  }
  return row;
}

TEST(TrainingPage, ItsTableIsThatOfTheSchedules) {
  auto rows = lines_with("training.md", "| `--sched ");
  std::erase_if(rows, [](const auto& row) { return row.starts_with("NAME"); });  // of all flags
  EXPECT_EQ(rows.size(), 8U);
  for (const auto& rest : rows) {
    const std::string row = "--sched " + rest;
    EXPECT_EQ(row, row_of(row.substr(0, row.find('`'))));
  }
}

// LOCKSTEP_WRITE_PAGE=1 brings the page up to date.
TEST(TrainingPage, ItsFlagsAreThoseOfTheTable) {
  const std::string path = std::string(LOCKSTEP_SOURCE_DIR) + "/docs/training.md";
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  const std::string heading = "## All flags\n", text = page.str();
  const auto begin = text.find(heading);
  ASSERT_NE(begin, std::string::npos);
  const std::string now = heading + flags_as_markdown(train_flags().specs());
  if (std::getenv("LOCKSTEP_WRITE_PAGE") != nullptr)
    std::ofstream(path) << text.substr(0, begin) << now;
  EXPECT_EQ(text.substr(begin), now) << "run with LOCKSTEP_WRITE_PAGE=1, and look at the page";
}

}  // namespace
}  // namespace lockstep
