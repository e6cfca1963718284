#include "lockstep/train/state/parameters_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/support/message_of.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(ParametersHash, EveryBitOfEveryElementCounts) {
  std::set<std::uint64_t> seen;
  torch::Tensor bits = at::zeros({7}, torch::kInt);  // 28 bytes: a last word that is not full
  seen.insert(parameters_hash({bits}));
  for (int element = 0; element < 7; ++element) {
    for (int bit = 0; bit < 32; ++bit) {
      bits.zero_();
      bits.data_ptr<int>()[element] = static_cast<int>(1u << bit);
      seen.insert(parameters_hash({bits}));
    }
  }
  EXPECT_EQ(seen.size(), 1u + 7u * 32u);
}

TEST(ParametersHash, OrderAndBordersCount) {
  const torch::Tensor whole = at::arange(6, torch::kInt);
  const torch::Tensor left = whole.slice(0, 0, 2), right = whole.slice(0, 2, 6);
  EXPECT_NE(parameters_hash({left, right}), parameters_hash({right, left}));
  EXPECT_NE(parameters_hash({left, right}), parameters_hash({whole}));
}

TEST(ParametersHash, MemoryOrderDoesNotCount) {
  const torch::Tensor plain = at::arange(2 * 3 * 4 * 5, torch::kFloat).reshape({2, 3, 4, 5});
  EXPECT_EQ(parameters_hash({plain}),
      parameters_hash({plain.contiguous(at::MemoryFormat::ChannelsLast)}));
}

TEST(ParametersHash, RanksThatAgreeGetTheHash) {
  run_ranks(2, [](ProcessGroup world) {
    const std::vector<torch::Tensor> same = {at::arange(10, torch::kFloat)};
    EXPECT_EQ(agreed_parameters_hash(same, world, ProcessGroup()).size(), 16u);
  });
}

TEST(ParametersHash, ARankThatDiffersIsNamedOnAllRanks) {
  run_ranks(3, [](ProcessGroup world) {
    torch::Tensor values = at::arange(10, torch::kFloat);
    if (world.rank() == 2) values[9] = 9.0000010f;
    const auto agree = [&] { agreed_parameters_hash({values}, world, ProcessGroup()); };
    EXPECT_THAT(testing::message_of<Error>(agree), ::testing::HasSubstr("on rank 2"));
  });
}

}  // namespace
}  // namespace lockstep
