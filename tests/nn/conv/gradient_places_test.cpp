// Convolutions whose gradients are computed in the places that are offered for them.

#include "lockstep/device/gradient_places.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "lockstep/nn/conv/convolution.h"

namespace lockstep::nn::conv {
namespace {

/// By Winograd's form where images are of 8x8, by one product where they are of one pixel.
class GradientPlacesOf : public ::testing::TestWithParam<std::int64_t> {
 protected:
  at::Tensor outputs(const at::Tensor& of_images) const {
    static const std::int64_t kOne[] = {1, 1};
    return conv2d({.images = of_images,
                      .weight = weight_,
                      .bias = {},
                      .stride = kOne,
                      .padding = kOne,
                      .dilation = kOne,
                      .groups = 1},
        Kernels::kOwn);
  }

  at::Tensor loss(const at::Tensor& of_images) const { return outputs(of_images).square().sum(); }

  // Without places.
  at::Tensor gradient_by(const at::Tensor& loss) const {
    return torch::autograd::grad({loss}, {weight_})[0];
  }

  void backward() const { loss(images_).backward(); }

  at::Tensor images_ = drawn({4, 16, GetParam(), GetParam()});
  at::Tensor weight_ = drawn({16, 16, 3, 3}).requires_grad_();
  at::Tensor place_ = at::zeros_like(weight_).detach();
  at::Tensor expected_ = gradient_by(loss(images_));
};

TEST_P(GradientPlacesOf, HaveThemWithoutACopy) {
  GradientPlace place(place_);
  place.offer_to(weight_);
  backward();
  EXPECT_EQ(weight_.grad().data_ptr(), place_.data_ptr());
  EXPECT_TRUE(torch::equal(place_, expected_));
}

TEST_P(GradientPlacesOf, AddTheSecondGradientOfAWeightThatIsUsedTwice) {
  GradientPlace place(place_);
  place.offer_to(weight_);
  const at::Tensor others = drawn(images_.sizes());
  const at::Tensor both = expected_ + gradient_by(loss(others));
  (loss(images_) + loss(others)).backward();
  EXPECT_TRUE(torch::allclose(weight_.grad(), both));
}

TEST_P(GradientPlacesOf, AddToWhatHasAccumulated) {
  GradientPlace place(place_);
  place.offer_to(weight_);
  backward();
  backward();
  EXPECT_EQ(weight_.grad().data_ptr(), place_.data_ptr());
  EXPECT_TRUE(torch::equal(place_, 2 * expected_));
}

// A gradient that a caller keeps, or a view of it.
TEST_P(GradientPlacesOf, GiveThemOnlyWhileNobodySeesWhatIsThere) {
  GradientPlace place(place_);
  place.offer_to(weight_);
  for (const bool keeps_view : {false, true}) {
    backward();
    EXPECT_EQ(weight_.grad().data_ptr(), place_.data_ptr());
    const at::Tensor kept = keeps_view ? weight_.grad()[0] : weight_.grad();
    weight_.mutable_grad().reset();
    backward();
    EXPECT_NE(weight_.grad().data_ptr(), place_.data_ptr());
    EXPECT_TRUE(torch::equal(kept, keeps_view ? expected_[0] : expected_));
    weight_.mutable_grad().reset();
  }
}

TEST_P(GradientPlacesOf, AreLeftWithTheirValuesAndStayWhereTheyAre) {
  const at::Tensor memory = at::zeros({3 + weight_.numel()});
  GradientPlace place(memory, 3, weight_.sizes(), weight_.strides());
  EXPECT_EQ(place.memory().data_ptr(), memory.data_ptr<float>() + 3);
  EXPECT_EQ(place.memory().strides(), weight_.strides());
  EXPECT_FALSE(place.is_seen());
  const at::Tensor gradient = place.gradient(), view = gradient[0];
  gradient.copy_(expected_);
  EXPECT_TRUE(place.is_seen());
  place.leave_to_those_who_see();
  EXPECT_FALSE(place.is_seen());
  EXPECT_EQ(place.memory().data_ptr(), memory.data_ptr<float>() + 3);
  place.memory().zero_();
  EXPECT_TRUE(torch::equal(gradient, expected_));
  EXPECT_EQ(view.data_ptr(), gradient.data_ptr());
}

TEST_P(GradientPlacesOf, LeaveResultsOfAutogradToTheirCaller) {
  GradientPlace place(place_);
  place.offer_to(weight_);
  const at::Tensor result = gradient_by(loss(images_));
  EXPECT_NE(result.data_ptr(), place_.data_ptr());
  backward();
  EXPECT_EQ(weight_.grad().data_ptr(), place_.data_ptr());
  EXPECT_TRUE(torch::equal(result, expected_));
}

TEST_P(GradientPlacesOf, AreForgottenWithTheirOwner) {
  GradientPlace second(place_);
  {
    GradientPlace first(at::zeros_like(place_));
    first.offer_to(weight_);
    second.offer_to(weight_);
  }
  backward();
  EXPECT_EQ(weight_.grad().data_ptr(), place_.data_ptr());
  second = GradientPlace();
  weight_.mutable_grad().reset();
  backward();
  EXPECT_NE(weight_.grad().data_ptr(), place_.data_ptr());
  EXPECT_TRUE(torch::equal(weight_.grad(), expected_));
}

TEST_P(GradientPlacesOf, PassByOneThatLiesOtherwise) {
  GradientPlace place(at::zeros_like(place_, at::MemoryFormat::Contiguous));
  place.offer_to(weight_);
  backward();
  EXPECT_TRUE(torch::equal(weight_.grad(), expected_));
  EXPECT_EQ(weight_.grad().strides(), weight_.strides());
}

TEST(GradientPlace, TakesInAGradientHoweverItLies) {
  const std::vector<std::int64_t> strides[] = {{4, 1}, {1, 3}, {8, 2}};
  for (const auto& of_gradient : strides) {
    GradientPlace place(at::zeros({12}), 0, {3, 4}, {4, 1});
    at::Tensor gradient = at::empty_strided({3, 4}, of_gradient).normal_();
    const at::Tensor same = gradient, expected = gradient.clone();
    place.take_in(gradient);
    EXPECT_TRUE(place.has(same)) << at::IntArrayRef(of_gradient);
    EXPECT_TRUE(torch::equal(same, expected)) << at::IntArrayRef(of_gradient);
  }
}

INSTANTIATE_TEST_SUITE_P(Images, GradientPlacesOf, ::testing::Values(8, 1));

}  // namespace
}  // namespace lockstep::nn::conv
