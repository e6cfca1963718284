#pragma once

// What the fragments of C++ in README.md and docs/ take for granted: the names of a training
// program. Each fragment is compiled as the body of a function after this; a line of three dots
// stands for code of the reader's own.

#include <cstdint>
#include <lockstep/lockstep.h>
#include <vector>

#include <torch/torch.h>

using torch::optim::SGD;

inline constexpr int kSteps = 5;
inline constexpr double kRate = 0.1;

/// The work of a rank: its part of the data.
struct Task {
  torch::Tensor inputs, labels;
  Task share(const lockstep::ProcessGroup& group) const;
};

extern const Task task;
extern lockstep::ProcessGroup world;
extern lockstep::data::InMemoryImages clothes;
extern const std::vector<torch::Tensor> validation;
extern torch::nn::Sequential net;
extern SGD optimizer;
extern torch::Tensor loss;
extern std::int64_t step, steps;

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& labels);
