#include "lockstep/record/profile/flops.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Flops, OfConvolutionsFollowTheirPixels) {
  const OperatorShapes same{.tensors = {{2, 3, 8, 8}, {4, 3, 3, 3}, {4}}, .padding = {1, 1}};
  EXPECT_EQ(forward_flops("aten::conv2d", same), 2.0 * (2 * 8 * 8) * (4 * 3 * 3 * 3));
  OperatorShapes halved = same;
  halved.stride = {2};
  EXPECT_EQ(forward_flops("aten::conv2d", halved), 2.0 * (2 * 4 * 4) * (4 * 3 * 3 * 3));
  OperatorShapes wide = same;
  wide.padding = {0};
  wide.dilation = {2, 3};  // reaches of 5 and 7
  EXPECT_EQ(forward_flops("aten::conv2d", wide), 2.0 * (2 * 4 * 2) * (4 * 3 * 3 * 3));
}

TEST(Flops, OfGroupsAreThoseOfTheirChannels) {
  const OperatorShapes groups{.tensors = {{2, 4, 8, 8}, {4, 1, 3, 3}}, .is_padding_same = true};
  EXPECT_EQ(forward_flops("aten::conv2d", groups), 2.0 * (2 * 8 * 8) * (4 * 1 * 3 * 3));
}

TEST(Flops, OfAConvolutionWithoutBatchOrInOneDimension) {
  EXPECT_EQ(forward_flops("aten::conv2d", {.tensors = {{3, 8, 8}, {4, 3, 1, 1}}}), 2.0 * 64 * 12);
  EXPECT_EQ(forward_flops("aten::conv1d", {.tensors = {{5, 3, 8}, {4, 3, 3}}}), 2.0 * 30 * 36);
}

TEST(Flops, OfProductsCountMultiplicationsAndAdditions) {
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{128, 6272}, {64, 6272}, {64}}}),
      2.0 * 128 * 6272 * 64);
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{2, 5, 7}, {3, 7}}}), 2.0 * 2 * 5 * 7 * 3);
  EXPECT_EQ(forward_flops("aten::mm", {.tensors = {{2, 3}, {3, 5}}}), 2.0 * 2 * 3 * 5);
  EXPECT_EQ(forward_flops("aten::addmm", {.tensors = {{5}, {2, 3}, {3, 5}}}), 2.0 * 2 * 3 * 5);
  EXPECT_EQ(forward_flops("aten::matmul", {.tensors = {{2, 3}, {4, 3, 5}}}), 2.0 * 4 * 2 * 3 * 5);
}

TEST(Flops, OfAttentionAreThoseOfItsTwoProducts) {
  EXPECT_EQ(forward_flops("aten::scaled_dot_product_attention",
                {.tensors = {{2, 4, 6, 8}, {2, 4, 10, 8}, {2, 4, 10, 16}}}),
      2.0 * (2 * 4 * 6 * 10) * (8 + 16));
}

TEST(Flops, OfOtherOperatorsAreNotCounted) {
  EXPECT_EQ(forward_flops("aten::relu", {.tensors = {{2, 3}, {3, 5}}}), 0);
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{2, 3}}}), 0);
  EXPECT_EQ(forward_flops("aten::conv2d", {.tensors = {{1, 3, 2, 2}, {4, 3, 3, 3}}}), 0);
}

}  // namespace
}  // namespace lockstep
