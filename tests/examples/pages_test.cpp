// Checks docs/parallelism.md: its code is from the examples, its tables are what the library
// prints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep {
namespace {

std::string text_of(const std::string& file) {
  return testing::contents(std::string(LOCKSTEP_SOURCE_DIR) + "/" + file);
}

// Removes comments and line ends, which the page sets in its own way.
std::string bare(const std::string& code) {
  const auto without_comments = std::regex_replace(code, std::regex("//[^\\n]*"), "");
  return std::regex_replace(without_comments, std::regex("\\s+"), "");
}

std::vector<std::string> snippets_of(const std::string& page) {
  const std::string begin = "```cpp\n", end = "```\n";
  std::vector<std::string> snippets;
  for (auto at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    snippets.push_back(page.substr(at, page.find(end, at) - at));
  }
  return snippets;
}

TEST(ParallelismPage, ItsCodeIsFromTheExample) {
  const auto snippets = snippets_of(text_of("docs/parallelism.md"));
  const auto example = bare(text_of("examples/every_way.cpp"));
  ASSERT_FALSE(example.empty());
  EXPECT_EQ(snippets.size(), 7U);
  for (const auto& snippet : snippets)
    EXPECT_NE(example.find(bare(snippet)), std::string::npos) << snippet;
}

std::string indented(const std::string& table) {
  return "    " + std::regex_replace(table.substr(0, table.size() - 1), std::regex("\n"), "\n    ");
}

TEST(ParallelismPage, ItsTablesAreThoseOfTheSchedules) {
  const auto page = text_of("docs/parallelism.md");
  for (const auto kind : {ScheduleKind::kSequential, ScheduleKind::kGPipe, ScheduleKind::k1F1B,
           ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble}) {
    const int stages = kind == ScheduleKind::kInterleaved ? 4 : 2;
    const auto timetable = simulate(make_schedule(kind, 2, stages, 4), ActionCosts());
    EXPECT_THAT(page, ::testing::HasSubstr(indented(to_table(timetable)))) << name_of(kind);
  }
}

}  // namespace
}  // namespace lockstep
