#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

namespace lockstep {

/// A model as a chain of layers, each called with the output of the one before. Names are for
/// messages; parameters keep the names that their modules give them.
using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;

/// The input of a chain's first layer: a tensor, or several as a vector; all have the same first
/// dimension, the batch.
struct ChainInput {
  ChainInput() = default;
  ChainInput(torch::Tensor tensor) : tensors{std::move(tensor)} {}
  ChainInput(std::vector<torch::Tensor> several) : tensors(std::move(several)) {}

  /// Returns the number of samples. Throws InvalidArgument unless all tensors have as many.
  std::int64_t batch_size() const;
  bool requires_grad() const;
  /// Returns the argument of the first layer: a vector unless there is one tensor.
  torch::nn::AnyValue value() const;

  std::vector<torch::Tensor> tensors;
};

/// Returns the layers of a Sequential, named as its children.
Layers layers_of(const torch::nn::Sequential& net);

/// Cuts a chain into stages of `balance[i]` layers each.
///
/// Throws InvalidArgument that says what to do if the numbers do not add up to the layers or one is
/// below 1, if a layer occurs twice, or if two stages hold the same parameter.
///
///     cut(layers, {2, 3})
std::vector<Layers> cut(const Layers& layers, const std::vector<int>& balance);

/// Returns every parameter of the layers once, in order.
std::vector<torch::Tensor> parameters_of(const Layers& layers);

/// A layer that keeps its input under a name for a later Pop, and returns it.
///
/// A skip connection of a chain, wherever its ends lie: in one stage, or in two of a pipeline.
///
///     torch::nn::Sequential net(Stash("in"), Conv2d(...), ReLU(), Pop("in"), Linear(...));
class StashImpl : public torch::nn::Cloneable<StashImpl> {
 public:
  explicit StashImpl(std::string name) : name_(std::move(name)) {}
  torch::Tensor forward(torch::Tensor input);
  void reset() override {}
  const std::string& skip_name() const { return name_; }

 private:
  std::string name_;
};
TORCH_MODULE(Stash);

/// A layer that joins its input with what the Stash of that name kept, by default by their sum.
class PopImpl : public torch::nn::Cloneable<PopImpl> {
 public:
  using Join = std::function<torch::Tensor(torch::Tensor input, torch::Tensor kept)>;
  explicit PopImpl(std::string name, Join join = nullptr)
      : name_(std::move(name)), join_(std::move(join)) {}
  /// Throws Error if nothing was kept under the name.
  torch::Tensor forward(torch::Tensor input);
  void reset() override {}
  const std::string& skip_name() const { return name_; }

 private:
  std::string name_;
  Join join_;
};
TORCH_MODULE(Pop);

/// What is kept between Stash and Pop, of one micro-batch.
using SkipTable = std::map<std::string, torch::Tensor>;

/// Makes Stash and Pop of this thread use a table while it exists, else they use the thread's.
class [[nodiscard]] SkipScope {
 public:
  explicit SkipScope(SkipTable& table);
  ~SkipScope();
  SkipScope(const SkipScope&) = delete;
  SkipScope& operator=(const SkipScope&) = delete;

 private:
  SkipTable* before_;
};

/// Returns for every boundary between stages the names of the skips that cross it; boundary i lies
/// before stage i + 1. Throws InvalidArgument for a Pop without a Stash before it, a Stash without
/// a Pop, or a name that is used twice.
std::vector<std::vector<std::string>> skips_across(const std::vector<Layers>& stages);

}  // namespace lockstep
