// Convolutions whose gradients are computed in the places that are offered for them.

#include "lockstep/device/gradient_places.h"

#include <gtest/gtest.h>
#include <memory>

#include <ATen/ops/randn.h>
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
                      .weight = weight,
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
    return torch::autograd::grad({loss}, {weight})[0];
  }

  void backward() const { loss(images).backward(); }

  static at::Tensor drawn(at::IntArrayRef sizes) {
    return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  }

  at::Tensor images = drawn({4, 16, GetParam(), GetParam()});
  at::Tensor weight = drawn({16, 16, 3, 3}).requires_grad_();
  at::Tensor place = at::zeros_like(weight).detach();
  at::Tensor expected = gradient_by(loss(images));
};

TEST_P(GradientPlacesOf, HaveThemWithoutACopy) {
  GradientPlaces places;
  places.offer(weight, place);
  backward();
  EXPECT_EQ(weight.grad().data_ptr(), place.data_ptr());
  EXPECT_TRUE(torch::equal(place, expected));
}

TEST_P(GradientPlacesOf, AddTheSecondGradientOfAWeightThatIsUsedTwice) {
  GradientPlaces places;
  places.offer(weight, place);
  const at::Tensor others = drawn(images.sizes());
  const at::Tensor both = expected + gradient_by(loss(others));
  (loss(images) + loss(others)).backward();
  EXPECT_TRUE(torch::allclose(weight.grad(), both));
}

TEST_P(GradientPlacesOf, AddToWhatHasAccumulated) {
  GradientPlaces places;
  places.offer(weight, place);
  backward();
  places.renew();
  backward();
  EXPECT_EQ(weight.grad().data_ptr(), place.data_ptr());
  EXPECT_TRUE(torch::equal(place, 2 * expected));
}

TEST_P(GradientPlacesOf, GiveThemAgainOnlyAfterTheyAreRenewed) {
  GradientPlaces places;
  places.offer(weight, place);
  for (const bool is_free : {true, false, true}) {
    weight.mutable_grad().reset();
    backward();
    EXPECT_EQ(weight.grad().data_ptr() == place.data_ptr(), is_free);
    if (!is_free) places.renew();
  }
}

TEST_P(GradientPlacesOf, LeaveResultsOfAutogradToTheirCaller) {
  GradientPlaces places;
  places.offer(weight, place);
  const at::Tensor result = gradient_by(loss(images));
  EXPECT_NE(result.data_ptr(), place.data_ptr());
  backward();
  EXPECT_EQ(weight.grad().data_ptr(), place.data_ptr());
  EXPECT_TRUE(torch::equal(result, expected));
}

TEST_P(GradientPlacesOf, AreForgottenWithTheirOwner) {
  auto first = std::make_unique<GradientPlaces>();
  GradientPlaces second;
  first->offer(weight, at::zeros_like(place));
  second.offer(weight, place);
  first.reset();
  backward();
  EXPECT_EQ(weight.grad().data_ptr(), place.data_ptr());
  auto third = std::make_unique<GradientPlaces>();
  third->offer(weight, place);
  third.reset();
  weight.mutable_grad().reset();
  backward();
  EXPECT_NE(weight.grad().data_ptr(), place.data_ptr());
  EXPECT_TRUE(torch::equal(weight.grad(), expected));
}

TEST_P(GradientPlacesOf, PassByOneThatLiesOtherwise) {
  GradientPlaces places;
  places.offer(weight, at::zeros_like(place, at::MemoryFormat::Contiguous));
  backward();
  EXPECT_TRUE(torch::equal(weight.grad(), expected));
  EXPECT_EQ(weight.grad().strides(), weight.strides());
}

INSTANTIATE_TEST_SUITE_P(Images, GradientPlacesOf, ::testing::Values(8, 1));

}  // namespace
}  // namespace lockstep::nn::conv
