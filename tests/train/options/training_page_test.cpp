// Holds README.md, docs/training.md and others to the command: their lines can be given, the table
// of rates is what the schedules do, and the list of flags that a resume keeps is whole.

#include <cstdio>
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

struct Page {
  const char* name;
  const char* beginning;  // of a command's line
  std::size_t least;      // commands
};

TEST(Pages, TheirTrainingsCanBeGiven) {
  for (const Page& page :
      {Page{"training.md", "    lockstep train ", 3}, {"snapshots.md", "    lockstep train ", 10},
          {"../README.md", "lockstep train ", 4}, {"launching.md", "    lockstep train ", 1}}) {
    const auto commands = lines_with(page.name, page.beginning);
    EXPECT_GE(commands.size(), page.least) << page.name;
    for (const auto& command : commands) EXPECT_NO_THROW(options_of(command)) << command;
  }
  EXPECT_EQ(lines_with("snapshots.md", "    lockstep train ").size(), 10U);
}

TEST(SnapshotsPage, ListsTheFlagsThatAResumeKeeps) {
  std::string text, flags;
  for (const auto& line : lines_with("snapshots.md", "")) text += line + " ";
  for (const FlagSpec* flag : train_flags().specs())
    if (flag->is_decisive()) flags += (flags.empty() ? "`" : ", `") + flag->name + "`";
  EXPECT_THAT(text, ::testing::HasSubstr(" " + flags + ". "));
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
  const auto rows = lines_with("training.md", "| `--sched ");
  EXPECT_EQ(rows.size(), 8U);
  for (const auto& rest : rows) {
    const std::string row = "--sched " + rest;
    EXPECT_EQ(row, row_of(row.substr(0, row.find('`'))));
  }
}

}  // namespace
}  // namespace lockstep
