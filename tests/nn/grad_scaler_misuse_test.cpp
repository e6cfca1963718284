// The case G9 of the conformance list: misuse is an error, and changes nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/nn/one_parameter.h"
#include "tests/support/message_of.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;
using torch::optim::SGD;

TEST(GradScaler, RefusesImpossibleOptionsG9) {
  const auto message = [](const GradScalerOptions& options) {
    return lockstep::testing::message_of<InvalidArgument>([&] { GradScaler scaler(options); });
  };
  EXPECT_EQ(message(GradScalerOptions().growth_factor(1)),
      "GradScaler: the growth factor must be above 1: 1");
  EXPECT_EQ(message(GradScalerOptions().backoff_factor(1)),
      "GradScaler: the backoff factor must be above 0 and below 1: 1");
  EXPECT_THAT(message(GradScalerOptions().backoff_factor(0)), HasSubstr("backoff factor"));
  EXPECT_THAT(message(GradScalerOptions().init_scale(-1)), HasSubstr("scale must be"));
  EXPECT_THAT(message(GradScalerOptions().init_scale(1e39)), HasSubstr("scale must be"));
  EXPECT_THAT(message(GradScalerOptions().growth_interval(0)), HasSubstr("interval"));
  EXPECT_NO_THROW(GradScaler(GradScalerOptions().growth_factor(1).enabled(false)));
}

class GradScalerMisuse : public ::testing::Test {
 protected:
  void begin(double second = 1) {
    scale_something(scaler_);
    net_.set_gradient(second);
  }

  OneParameter net_;
  GradScaler scaler_;
};

TEST_F(GradScalerMisuse, UnscaleTwiceG9) {
  begin(2);
  scaler_.unscale_(net_.optimizer);
  EXPECT_EQ(
      lockstep::testing::message_of<InvalidArgument>([&] { scaler_.unscale_(net_.optimizer); }),
      "GradScaler: unscale_() was called twice for one optimizer since the last update()");
  EXPECT_EQ(net_.parameter.grad()[1].item<double>(), 2.0 / 65536);
  EXPECT_TRUE(scaler_.step(net_.optimizer));
  scaler_.update();
  begin();
  scaler_.unscale_(net_.optimizer);
}

TEST_F(GradScalerMisuse, UnscaleAfterStepG9) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_EQ(
      lockstep::testing::message_of<InvalidArgument>([&] { scaler_.unscale_(net_.optimizer); }),
      "GradScaler: unscale_() was called after step(); it belongs between backward() and step()");
}

TEST_F(GradScalerMisuse, StepTwiceG9) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.step(net_.optimizer); }),
      "GradScaler: step() was called twice for one optimizer since the last update()");
  EXPECT_EQ(net_.moved(), 1.0 / 65536);
}

TEST_F(GradScalerMisuse, StepOrUpdateBeforeScaleG9) {
  net_.set_gradient(1);
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.step(net_.optimizer); }),
      HasSubstr("unscale_() or step() was called before scale()"));
  EXPECT_EQ(net_.moved(), 0);
  EXPECT_EQ(net_.parameter.grad()[0].item<double>(), 1);
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.update(); }),
      HasSubstr("update() was called before any step()"));
}

TEST_F(GradScalerMisuse, NoGradientsG9) {
  scale_something(scaler_);
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.step(net_.optimizer); }),
      HasSubstr("step() found no gradient of this optimizer's parameters"));
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.update(); }),
      HasSubstr("update() was called before any step()"));
}

// A refusal changes nothing: once there is a gradient, the iteration goes on.
TEST_F(GradScalerMisuse, AfterAStepWithoutGradientsAllGoesOn) {
  for (const bool unscales : {false, true}) {
    net_.parameter.mutable_grad().reset();
    scale_something(scaler_);
    if (unscales) scaler_.unscale_(net_.optimizer);
    EXPECT_THROW(scaler_.step(net_.optimizer), InvalidArgument);
    const double before = net_.moved();
    net_.set_gradient(1);
    if (unscales) scaler_.unscale_(net_.optimizer);
    EXPECT_TRUE(scaler_.step(net_.optimizer));
    EXPECT_EQ(net_.moved() - before, 1.0 / 65536);
    scaler_.update();
  }
}

TEST_F(GradScalerMisuse, HalfGradientsG9) {
  const auto half = at::zeros({3}, at::kHalf).set_requires_grad(true);
  SGD optimizer({net_.parameter, half}, 1.0);
  begin(65536);
  half.mutable_grad() = at::ones({3}, at::kHalf);
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.step(optimizer); }),
      "GradScaler: unscale_() and step() take no float16 gradients, such as one of [3]; keep the "
      "parameters in float32 and compute under Autocast");
  EXPECT_EQ(net_.parameter.grad()[1].item<double>(), 65536);
}

TEST_F(GradScalerMisuse, AScaleThatCannotBe) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler_.update(0); }),
      HasSubstr("the scale must be"));
  scaler_.update(1024);
  EXPECT_EQ(scaler_.scale_factor(), 1024);
  EXPECT_EQ(scaler_.state()->growth_tracker, 0);
}

}  // namespace
}  // namespace lockstep::nn
