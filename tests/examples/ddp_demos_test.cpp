// The demos of DistributedDataParallel in every way in which ranks can be started: all ranks end
// with the weights that a serial step on the joined batch gives.

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "run_example.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {
namespace {

using testing::run_line;
using testing::TemporaryFolder;

using Weights = std::map<std::string, std::vector<float>>;

Weights weights_in(const std::filesystem::path& file) {
  Weights weights;
  const TensorFile opened = read_weights(file);
  for (const TensorEntry& entry : opened.entries()) {
    std::vector<float> values(entry.bytes.size() / sizeof(float));
    std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
    weights[entry.name] = values;
  }
  return weights;
}

// Infinite if the names or sizes differ.
double largest_difference(const Weights& a, const Weights& b) {
  double largest = 0;
  if (a.size() != b.size()) return INFINITY;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    for (std::size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(double{values[i]} - other->second[i]));
  }
  return largest;
}

// Starts two ranks by hand, as from two terminals.
std::string two_processes(const std::string& demo, const std::string& init_method) {
  const std::string line = concat(demo, " --init-method ", init_method, " --world-size 2 --rank ");
  return concat(line, "0 & first=$!; ", line, "1 || { kill $first; exit 1; }; wait $first");
}

std::string free_address() {
  static const net::ReservedPort kPort;
  return concat("tcp://127.0.0.1:", kPort.number());
}

std::string file_in(const std::string& folder) { return concat("file://", folder, "/meeting"); }

constexpr const char* kLaunched = "lockstep run --nproc-per-node 2 ";

/// A way of starting the ranks of a demo: the shell's line for it.
struct Way {
  const char* name;
  int ranks;
  std::string (*line)(const std::string& demo, const std::string& folder);
};

using Text = std::string;

const Way kWays[] = {
    {"threads", 2, [](const Text& demo, const Text&) { return demo + " --spawn 2"; }},
    {"four_threads", 4, [](const Text& demo, const Text&) { return demo + " --spawn 4"; }},
    {"launcher", 2, [](const Text& demo, const Text&) { return concat(kLaunched, demo); }},
    {"launcher_file", 2,
        [](const Text& demo, const Text& folder) {
          return concat(kLaunched, demo, " --init-method ", file_in(folder));
        }},
    {"launcher_tcp", 2,
        [](const Text& demo, const Text&) {
          return concat(kLaunched, demo, " --init-method ", free_address());
        }},
    {"by_hand_file", 2,
        [](const Text& demo, const Text& folder) { return two_processes(demo, file_in(folder)); }},
    {"by_hand_tcp", 2,
        [](const Text& demo, const Text&) { return two_processes(demo, free_address()); }}};

std::string line_of(const std::string& demo, const TemporaryFolder& folder) {
  std::string line = demo + " --output " + folder.str();
  if (demo == "ddp_checkpoint") line += " --checkpoint " + folder.file("toy.safetensors");
  return line;
}

Weights weights_of_rank(const TemporaryFolder& folder, const char* name, int rank) {
  return weights_in(folder.path() / concat(name, rank, ".safetensors"));
}

class DdpDemo : public ::testing::TestWithParam<std::tuple<const char*, Way>> {};

TEST_P(DdpDemo, EveryRankEndsWithTheSerialWeights) {
  const auto& [demo, way] = GetParam();
  const TemporaryFolder alone, together;
  const auto serial = run_line(line_of(demo, alone));
  ASSERT_EQ(serial.status, 0) << serial.output;
  const auto ended = run_line(way.line(line_of(demo, together), together.path()));
  ASSERT_EQ(ended.status, 0) << ended.output;

  const Weights expected = weights_of_rank(alone, "rank-", 0);
  const Weights first = weights_of_rank(together, "rank-", 0);
  ASSERT_EQ(expected.size(), 4U);
  EXPECT_LT(largest_difference(first, expected), 1e-6);
  for (int rank = 0; rank < way.ranks; ++rank) {
    EXPECT_THAT(ended.output, ::testing::HasSubstr(concat("rank ", rank, " of ", way.ranks)));
    EXPECT_EQ(weights_of_rank(together, "rank-", rank), first) << rank;
  }
  EXPECT_FALSE(std::filesystem::exists(together.path() / "meeting")) << "the last rank removes it";
}

INSTANTIATE_TEST_SUITE_P(Ways, DdpDemo,
    ::testing::Combine(::testing::Values("ddp_basic", "ddp_checkpoint", "ddp_model_parallel"),
        ::testing::ValuesIn(kWays)),
    [](const auto& chosen) {
      return concat(std::get<0>(chosen.param), "_", std::get<1>(chosen.param).name);
    });

// The half nets of ddp_model_parallel are the net of ddp_basic.
TEST(DdpDemos, TheSplitModelTakesTheStepOfTheWholeOne) {
  const TemporaryFolder whole, split;
  ASSERT_EQ(run_line(line_of("ddp_basic", whole)).status, 0);
  ASSERT_EQ(run_line(line_of("ddp_model_parallel", split)).status, 0);
  EXPECT_LT(
      largest_difference(weights_of_rank(whole, "rank-", 0), weights_of_rank(split, "rank-", 0)),
      1e-6);
}

TEST(DdpDemos, EveryRankLoadsWhatRankZeroSaved) {
  const TemporaryFolder stepped, folder;
  ASSERT_EQ(run_line(line_of("ddp_basic", stepped)).status, 0);
  const auto ended = run_line(concat(kLaunched, line_of("ddp_checkpoint", folder)));
  ASSERT_EQ(ended.status, 0) << ended.output;
  // What is saved is the state after one step, which is all that ddp_basic does.
  const Weights loaded = weights_of_rank(folder, "loaded-", 0);
  EXPECT_LT(largest_difference(loaded, weights_of_rank(stepped, "rank-", 0)), 1e-6);
  EXPECT_EQ(weights_of_rank(folder, "loaded-", 1), loaded);
  EXPECT_NE(weights_of_rank(folder, "rank-", 0), loaded) << "the training goes on";
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "toy.safetensors"));
}

TEST(DdpDemos, AMeetingPlaceThatCannotBeIsRefused) {
  const auto bad = run_line("ddp_basic --rank 0 --world-size 2 --init-method tcp://127.0.0.1");
  EXPECT_EQ(bad.status, 2) << bad.output;
  EXPECT_THAT(bad.output, ::testing::HasSubstr("needs an address and a port"));
  const auto none =
      run_line("ddp_basic --rank 0 --world-size 2 --init-method file:///no-such-folder/meeting");
  EXPECT_EQ(none.status, 4) << none.output;
  EXPECT_THAT(none.output, ::testing::HasSubstr("/no-such-folder/meeting"));
}

}  // namespace
}  // namespace lockstep
