#include "lockstep/nn/models/plugin_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace lockstep::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const torch::Tensor& images() {
  static const torch::Tensor kImages = torch::zeros({4, 1, 2, 2});
  return kImages;
}

torch::Tensor classes() { return torch::tensor({0, 1, 2, 1}, torch::kLong); }

std::string refusal(const torch::Tensor& samples, const torch::Tensor& labels, int count = 0) {
  std::string words = "accepted";
  try {
    (void)set_of(samples, labels, count);
  } catch (const std::invalid_argument& error) {
    words = error.what();
  }
  try {
    (void)set_of({{"samples", samples}}, labels, count);
  } catch (const std::invalid_argument&) {
    return words;
  }
  return words == "accepted" ? words : "of images alone: " + words;
}

// Targets of a regression, say, which would be trained as other classes.
TEST(PluginTensors, LabelsAreWholeNumbers) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16})
    EXPECT_THAT(
        refusal(images(), torch::tensor({0.0, 0.5, 3.0, 1.0}).to(type)), HasSubstr("labels of"))
        << type;
  EXPECT_THAT(refusal(images(), classes().to(torch::kComplexFloat)), HasSubstr("whole numbers"));
  for (const auto type : {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong})
    EXPECT_EQ(refusal(images(), classes().to(type)), "accepted") << type;
  EXPECT_EQ(set_of(images(), classes().eq(1)).classes, 2);
}

TEST(PluginTensors, LabelsAreClasses) {
  EXPECT_THAT(refusal(images(), torch::tensor({0, 1, -7, 1}, torch::kLong)),
      AllOf(HasSubstr("sample 2 has the label -7"), HasSubstr("0 to 1")));
  EXPECT_THAT(refusal(images(), classes(), 2), HasSubstr("sample 2 has the label 2"));
  EXPECT_EQ(set_of(images(), classes()).classes, 3);
  EXPECT_EQ(set_of(images(), classes(), 5).classes, 5);
}

TEST(PluginTensors, WholeNumbersBeyondAFloatAreRefusedAsPixels) {
  torch::Tensor whole = images().to(torch::kLong);
  whole[2][0][1][0] = (1 << 24) + 1;
  EXPECT_THAT(refusal(whole, classes()),
      AllOf(HasSubstr("of images alone"), HasSubstr("16777217 at [2, 0, 1, 0]")));
  whole[2][0][1][0] = 1 << 25;
  EXPECT_EQ(refusal(whole, classes()), "accepted");
  EXPECT_EQ(refusal(torch::full({4, 1, 2, 2}, 255, torch::kByte), classes()), "accepted");
}

TEST(PluginTensors, DoublesThatAFloatDoesNotHoldAreRefused) {
  for (const double number : {0.1, 1e300, 1e-60}) {
    const auto given = torch::full({4, 1, 2, 2}, number, torch::kDouble);
    EXPECT_THAT(refusal(given, classes()), HasSubstr("samples of Double")) << number;
    EXPECT_EQ(refusal(given.to(torch::kFloat), classes()), "accepted") << number;
  }
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {0.5, -3.0, kNaN, kInfinity})
    EXPECT_EQ(refusal(torch::full({4, 1, 2, 2}, number, torch::kDouble), classes()), "accepted")
        << number;
  for (const auto type : {torch::kHalf, torch::kBFloat16})
    EXPECT_EQ(refusal(torch::full({4, 1, 2, 2}, 0.1, type), classes()), "accepted") << type;
}

TEST(PluginTensors, ComplexAndLargeUnsignedNumbersAreRefused) {
  EXPECT_THAT(
      refusal(images().to(torch::kComplexFloat), classes()), HasSubstr("must be real numbers"));
  const auto large = torch::full({4, 1, 2, 2}, -1, torch::kLong).view(torch::kUInt64);
  EXPECT_THAT(refusal(large, classes()), HasSubstr("samples of UInt64"));
}

}  // namespace
}  // namespace lockstep::nn
