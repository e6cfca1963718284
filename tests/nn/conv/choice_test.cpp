#include "lockstep/nn/conv/choice.h"

#include <gtest/gtest.h>

namespace lockstep::nn::conv {
namespace {

TEST(ConvolutionChoice, TakesOursWhereItIsFaster) {
  for (const auto isa : {Isa::kAvx2, Isa::kAvx512}) {
    EXPECT_TRUE(is_own_faster({64, 64, 64, 32, 32}, isa, Multiplier::kFloat));
    EXPECT_TRUE(is_own_faster({4, 512, 512, 14, 14}, isa, Multiplier::kFloat));
    EXPECT_TRUE(is_own_faster({16, 512, 512, 7, 7}, isa, Multiplier::kFloat));
    EXPECT_TRUE(is_own_faster({128, 256, 256, 2, 2}, isa, Multiplier::kFloat));
  }
}

TEST(ConvolutionChoice, TakesTheTileWithFewerProducts) {
  EXPECT_EQ(fitting_tile({1, 8, 8, 2, 2}), 2);
  EXPECT_EQ(fitting_tile({1, 8, 8, 2, 16}), 2);
  EXPECT_EQ(fitting_tile({1, 8, 8, 3, 3}), 4);
  EXPECT_EQ(fitting_tile({1, 8, 8, 5, 5}), 4) << "as many products, fewer sums";
  EXPECT_EQ(fitting_tile({1, 8, 8, 32, 32}), 4);
}

TEST(ConvolutionChoice, LeavesTheRestToOneDnn) {
  EXPECT_FALSE(is_own_faster({64, 3, 64, 32, 32}, Isa::kAvx512, Multiplier::kFloat)) << "a stem";
  EXPECT_FALSE(is_own_faster({64, 64, 3, 32, 32}, Isa::kAvx512, Multiplier::kFloat))
      << "few outputs";
  EXPECT_FALSE(is_own_faster({64, 512, 512, 1, 1}, Isa::kAvx512, Multiplier::kFloat))
      << "single pixels";
  EXPECT_FALSE(is_own_faster({1, 512, 512, 7, 7}, Isa::kAvx512, Multiplier::kFloat)) << "few tiles";
  EXPECT_FALSE(is_own_faster({64, 64, 64, 32, 32}, Isa::kPlain, Multiplier::kFloat))
      << "no vectors";
}

TEST(ConvolutionChoice, InBf16ComparesWithWhatOneDnnHas) {
  const ConvolutionShape usual{64, 64, 64, 32, 32}, few{4, 512, 512, 14, 14};
  EXPECT_TRUE(is_own_faster(usual, Isa::kAvx512, Multiplier::kAvx512Bf16));
  EXPECT_FALSE(is_own_faster(few, Isa::kAvx512, Multiplier::kAvx512Bf16)) << "few tiles";
  EXPECT_FALSE(is_own_faster({128, 256, 256, 2, 2}, Isa::kAvx512, Multiplier::kAvx512Bf16));
  EXPECT_FALSE(is_own_faster(usual, Isa::kAvx512, Multiplier::kAmx));
  EXPECT_TRUE(is_own_faster(few, Isa::kAvx2, Multiplier::kConverted));
}

TEST(ConvolutionChoice, ReadsWhatMultipliesBf16) {
  EXPECT_EQ(bf16_multiplier("avx512f avx512_bf16 amx_bf16"), Multiplier::kAmx);
  EXPECT_EQ(bf16_multiplier("avx512f avx512_bf16"), Multiplier::kAvx512Bf16);
  EXPECT_EQ(bf16_multiplier("avx2 avx512f"), Multiplier::kConverted);
}

}  // namespace
}  // namespace lockstep::nn::conv
