// What docs/plugins.md says of serial programs: each one of programs/before becomes the plugin in
// programs/after by a few lines more, and trains in several ways.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

std::vector<std::string> lines_of(const std::string& place) {
  std::ifstream file(concat(LOCKSTEP_PROGRAMS, "/", place));
  EXPECT_TRUE(file) << place;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Returns the length of the longest row of lines that both have.
std::size_t lines_in_common(
    const std::vector<std::string>& one, const std::vector<std::string>& other) {
  std::vector<std::size_t> longest(other.size() + 1);
  for (const std::string& line : one) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t above = longest[j + 1];
      longest[j + 1] = line == other[j] ? diagonal + 1 : std::max(above, longest[j]);
      diagonal = above;
    }
  }
  return longest.back();
}

void expect_few_lines_more(const std::string& program, std::size_t most) {
  const auto before = lines_of("before/" + program), after = lines_of("after/" + program);
  const std::size_t kept = lines_in_common(before, after);
  EXPECT_GE(kept + 1, before.size()) << program << ": it goes on as a program of its own";
  EXPECT_GT(after.size(), kept) << program;
  EXPECT_LE(after.size() - kept, most) << program;
}

// Trains in one process and in others; the loss falls by a part in each, and equally in all where
// nothing is drawn.
struct Program {
  std::string flags;
  int batch;
  double falls_to;
  bool draws = false;
  std::vector<std::string> more_ways = {};
};

void expect_training(const Program& program) {
  const std::string flags = program.flags + " --seed 3 --max-steps 40 ";
  const std::string whole = concat(" --batch-size ", program.batch);
  const TrainedRun alone = trained_run(flags + whole);
  std::vector<std::string> ways{concat("--nproc-per-node 2 --batch-size ", program.batch / 2)};
  for (const std::string& way : program.more_ways) ways.push_back(way + whole);
  const auto expect_fall = [&](const std::vector<double>& losses) {
    EXPECT_EQ(losses.size(), 40U);
    EXPECT_LT(losses.back(), program.falls_to * losses.front());
  };
  expect_fall(alone.losses());
  for (const std::string& way : ways) {
    SCOPED_TRACE(way);
    const auto losses = trained_run(flags + way).losses();
    expect_fall(losses);
    if (!program.draws) expect_near(losses, alone.losses(), 40);
  }
}

TEST(SerialProgram, BecomesAPluginByFewLines) {
  expect_few_lines_more("digits.cpp", 8);
  expect_few_lines_more("rows.cpp", 8);
  expect_few_lines_more("critic.cpp", 35);  // whose loop of two optimizers becomes a task
}

// Dropout draws in each rank its own.
TEST(SerialProgram, AModuleWithDropoutAndALossOfItsOwnTrains) {
  const IdxFiles data{640, 64};
  expect_training({.flags = concat(data.flag(), " ", plugin_flag("digits"),
                       "--model digits --loss nll --opt sgd --lr 0.05 --momentum 0.5"),
      .batch = 64,
      .falls_to = 0.7,
      .draws = true});
}

// Both nets: the critic loses what it knew at first, as the generator's points come to the ring.
TEST(SerialProgram, AGeneratorTrainsWithItsCritic) {
  const std::string flags =
      plugin_flag("critic") + "--data ring --model gan --task gan --seed 3 --lr 0.003 --epochs 30 ";
  for (const std::string way : {"--batch-size 64", "--batch-size 32 --parallel dp --places 2",
           "--batch-size 32 --nproc-per-node 2"}) {
    SCOPED_TRACE(way);
    const TrainedRun trained = trained_run(flags + way);
    const auto radius = trained.values("val", "radius"), loss = trained.values("val", "loss"),
               of_critic = trained.values("val", "critic_loss"),
               of_generator = trained.values("val", "generator_loss");
    EXPECT_LT(radius.front(), 0.7);
    EXPECT_NEAR(radius.back(), 1, 0.5);
    EXPECT_NEAR(loss.back(), of_critic.back() + of_generator.back(), 1e-6);
    EXPECT_GT(of_critic.back(), 0.5);
  }
}

TEST(SerialProgram, ATransformerTrainsInAPipelineToo) {
  const IdxFiles data{640, 64};
  expect_training(
      {.flags = concat(data.flag(), " ", plugin_flag("rows"), "--model rows --lr 0.003"),
          .batch = 64,
          .falls_to = 0.8,
          .more_ways = {"--parallel pp --chunks 2 --nproc-per-node 2"}});
}

}  // namespace
}  // namespace lockstep::testing
