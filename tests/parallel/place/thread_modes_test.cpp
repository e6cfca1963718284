// The case T9 of the conformance list: modes are thread-local, and a new thread has others.

#include <cfenv>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/place/place_worker.h"

namespace lockstep {
namespace {

void in_a_new_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// Runs the body in a new thread that has taken over the modes of this one.
void with_modes_of_this_thread(const std::function<void()>& body) {
  const ThreadModes modes;
  in_a_new_thread([&] {
    const ThreadModes::Scope scope(modes);
    body();
  });
}

at::ScalarType type_of_product() {
  return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

TEST(ThreadModes, CarryGradModeT9) {
  const torch::NoGradGuard no_grad;
  in_a_new_thread([] { EXPECT_TRUE(torch::GradMode::is_enabled()); });
  with_modes_of_this_thread([] { EXPECT_FALSE(torch::GradMode::is_enabled()); });
}

TEST(ThreadModes, CarryInferenceMode) {
  const c10::InferenceMode inference;
  in_a_new_thread([] { EXPECT_FALSE(at::ones({1}).is_inference()); });
  with_modes_of_this_thread([] { EXPECT_TRUE(at::ones({1}).is_inference()); });
}

TEST(ThreadModes, CarryAutocastWithItsTypeT9) {
  const nn::Autocast autocast(at::kCPU, at::kHalf);
  in_a_new_thread([] { EXPECT_EQ(type_of_product(), at::kFloat); });
  with_modes_of_this_thread([] {
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_EQ(type_of_product(), at::kHalf);
  });
}

TEST(ThreadModes, CarryThatAutocastIsOff) {
  const ThreadModes modes;
  const nn::Autocast autocast(at::kCPU, at::kBFloat16);
  {
    const ThreadModes::Scope scope(modes);
    EXPECT_EQ(type_of_product(), at::kFloat);
  }
  EXPECT_EQ(type_of_product(), at::kBFloat16);
}

TEST(ThreadModes, CarryWhetherAutocastCaches) {
  at::autocast::set_autocast_cache_enabled(false);
  in_a_new_thread([] { EXPECT_TRUE(at::autocast::is_autocast_cache_enabled()); });
  with_modes_of_this_thread([] { EXPECT_FALSE(at::autocast::is_autocast_cache_enabled()); });
  at::autocast::set_autocast_cache_enabled(true);
}

TEST(ThreadModes, CarryThatHooksOnSavedTensorsAreForbidden) {
  at::SavedTensorDefaultHooks::disable("not in this test");
  in_a_new_thread([] { EXPECT_TRUE(at::SavedTensorDefaultHooks::is_enabled()); });
  with_modes_of_this_thread([] { EXPECT_FALSE(at::SavedTensorDefaultHooks::is_enabled()); });
  at::SavedTensorDefaultHooks::enable();
}

TEST(ThreadModes, CarryTheModeOfArithmetic) {
  const ThreadModes nearest;
  std::fesetround(FE_UPWARD);
  with_modes_of_this_thread([] { EXPECT_EQ(std::fegetround(), FE_UPWARD); });
  {
    const ThreadModes::Scope scope(nearest);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

TEST(ThreadModes, GiveTheThreadItsOwnBack) {
  const ThreadModes modes;
  in_a_new_thread([&] {
    const torch::NoGradGuard no_grad;
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    {
      const ThreadModes::Scope scope(modes);
      EXPECT_TRUE(torch::GradMode::is_enabled());
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
    }
    EXPECT_FALSE(torch::GradMode::is_enabled());
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  });
}

}  // namespace
}  // namespace lockstep
