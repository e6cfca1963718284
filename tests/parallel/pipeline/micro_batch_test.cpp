#include "lockstep/parallel/pipeline/micro_batch.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Sizes = std::vector<std::int64_t>;

// Conformance 5.1: the rule of tensor_split, empty pieces left out.
TEST(MicroBatch, SizesFollowTensorSplit) {
  EXPECT_EQ(micro_batch_sizes(8, 4), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(7, 4), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(micro_batch_sizes(6, 4), (Sizes{2, 2, 1, 1}));
  EXPECT_EQ(micro_batch_sizes(5, 4), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(micro_batch_sizes(9, 4), (Sizes{3, 2, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(2, 4), (Sizes{1, 1}));
}

TEST(MicroBatch, SizesAgreeWithTensorSplit) {
  for (std::int64_t batch = 1; batch < 40; ++batch) {
    for (int chunks = 1; chunks < 12; ++chunks) {
      Sizes expected;
      for (const auto& piece : torch::empty({batch}).tensor_split(chunks)) {
        if (piece.numel() > 0) expected.push_back(piece.numel());
      }
      EXPECT_EQ(micro_batch_sizes(batch, chunks), expected);
    }
  }
}

TEST(MicroBatch, SplitThenMergeIsTheIdentity) {
  const auto batch = torch::randn({7, 3});
  EXPECT_TRUE(torch::equal(torch::cat(split_batch(batch, micro_batch_sizes(7, 4))), batch));
}

TEST(MicroBatch, RefusesNoChunksAndNoSamples) {
  EXPECT_THROW(micro_batch_sizes(4, 0), InvalidArgument);
  EXPECT_THROW(micro_batch_sizes(4, -1), InvalidArgument);
  EXPECT_THROW(micro_batch_sizes(0, 2), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
