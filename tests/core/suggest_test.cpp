#include <gtest/gtest.h>

#include "lockstep/core/text.h"

namespace lockstep {
namespace {

TEST(EditDistance, CountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("nnodes", "nndoes"), 1U) << "neighbours swapped";
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(DidYouMean, ProposesTheNearest) {
  const std::vector<std::string> known{"--nproc-per-node", "--nnodes", "--node-rank", "--tee"};
  EXPECT_EQ(did_you_mean("--nproc-per-nod", known), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--nproc_pre_node", known), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--nproc", known), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--nodes", known), "; did you mean --nnodes?");
  EXPECT_EQ(did_you_mean("--te", known), "; did you mean --tee?");
}

TEST(DidYouMean, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(did_you_mean("--frobnicate", {"--nnodes", "--tee"}), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

}  // namespace
}  // namespace lockstep
