#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>

#include "tests/support/temporary_folder.h"
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

namespace lockstep::nn {

/// A folder for files of weights.
class Weights : public ::testing::Test {
 protected:
  Weights() { torch::manual_seed(3); }

  std::string file(const std::string& name = "w.safetensors") const {
    return (folder_.path() / name).string();
  }

  // Writes tensors as they are, under any names.
  std::string written(const NamedTensors& state) const {
    save_weights(state, file());
    return file();
  }

  testing::TemporaryFolder folder_;
};

/// Copies tensors, so that a test may change them.
inline NamedTensors copies(const NamedTensors& state, const std::string& prefix = "") {
  NamedTensors result("Tensor");
  for (const auto& item : state) result.insert(prefix + item.key(), item.value().detach().clone());
  return result;
}

inline void expect_equal_state(const torch::nn::Module& ours, const NamedTensors& expected) {
  const auto state = named_state(ours);
  ASSERT_EQ(state.keys(), expected.keys());
  for (const auto& item : state) {
    EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
  }
}

}  // namespace lockstep::nn
