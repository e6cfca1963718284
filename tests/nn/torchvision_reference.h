#pragma once

#include <string>
#include <vector>

#include <torch/ordered_dict.h>
#include <torch/types.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Stands for a tensor: its 2-norm, and the sum of its elements times factors from a formula.
struct Sums {
  double norm = 0, dot = 0;
};

/// The results of a model of torchvision, as tests/conformance/models.py has written them.
struct Reference {
  struct TensorSums {
    std::string name, shape;
    Sums seed0;  ///< as manual_seed(0) and the constructor leave it
    Sums after;  ///< a parameter's gradient, or a buffer, after one step of training
  };
  std::vector<TensorSums> tensors;         // of the state dictionary, in its order
  std::vector<double> evaluated, trained;  // logits
};

/// Reads the numbers of a model from tests/conformance/models.
Reference read_reference(const std::string& model);

/// Gives the model the weights with which the script computed; they come from a formula.
void fill(Model& model, const Reference& reference);

/// Returns the script's images, [4, 3, 64, 64] in double, and what stands for their loss's
/// gradient.
torch::Tensor reference_images();
torch::Tensor reference_gradient();

/// Returns parameters and buffers by their names.
torch::OrderedDict<std::string, torch::Tensor> state_of(const Model& model);

/// Returns a shape as the script writes it: `64x3x7x7`, `scalar`.
std::string shape_text(const torch::Tensor& tensor);

Sums sums(const torch::Tensor& tensor);

/// Expects that both stand for the same tensor, up to a part `relative` of its norm.
void expect_near(const Sums& ours, const Sums& theirs, double relative, const std::string& name);

/// Returns the norm of the logits' difference as a part of theirs.
double distance(const torch::Tensor& logits, const std::vector<double>& theirs);

/// Expects torchvision's names, shapes and order.
void expect_alike(const Model& model, const Reference& reference);

/// Expects what torchvision's constructor makes of the same seed.
void expect_seed0(const Model& model, const Reference& reference);

/// Expects gradients and buffers as after the script's step; nets in double.
void expect_trained(const Model& model, const Reference& reference);

}  // namespace lockstep::nn
