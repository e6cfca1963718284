// Holds docs/benchmarks.md to the command: its lines can be given.

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cli/bench_flags.h"
#include "bench/studies/catalogue.h"

namespace lockstep::cli {
namespace {

TEST(BenchmarksPage, ItsCommandsCanBeGiven) {
  std::ifstream page(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/benchmarks.md");
  const std::string beginning = "    lockstep bench ";
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(beginning)) continue;
    std::istringstream stream(line.substr(beginning.size()));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    EXPECT_NO_THROW(EXPECT_TRUE(parse_bench(words).has_value())) << line;
    ++commands;
  }
  EXPECT_GE(commands, std::ssize(bench::study_catalogue())) << "a line for each study at least";
}

}  // namespace
}  // namespace lockstep::cli
