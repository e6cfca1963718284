#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/parallel/place/place.h"

namespace lockstep::data_parallel {

/// A parameter or buffer of a module, by its full name. The tensor may be undefined.
struct ModuleTensor {
  std::string name;
  torch::Tensor tensor;
  bool is_buffer = false;
};

/// Lists a module's parameters, then its buffers. One that has several names is listed for each.
std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module);

/// Returns the first place in a list where this very tensor stands; undefined ones stand anywhere.
std::size_t first_with(const std::vector<ModuleTensor>& tensors, const torch::Tensor& tensor);

/// Throws InvalidArgument that names parameter or buffer and device unless all are on the device.
void check_on_device(const std::vector<ModuleTensor>& tensors, torch::Device device);

/// Throws InvalidArgument that names the difference unless a replica has the same parameters and
/// buffers as the module: names, shapes, types, and which of them are one tensor.
void check_replica_is_alike(
    const std::vector<ModuleTensor>& originals, const std::vector<ModuleTensor>& replica);

using NamedModules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

/// Throws InvalidArgument that names the first change unless a module still consists of these
/// tensors and sub-modules: its replicas were made like them.
void check_unchanged(const std::vector<ModuleTensor>& tensors, const NamedModules& modules,
    const torch::nn::Module& now);

/// Makes one tensor the same elements of the same memory as the original, with a common version, so
/// that autograd notices when the original changes between forward and backward. Cheap if it is so.
void share_memory(const torch::Tensor& original, torch::Tensor& replica);

/// Returns how often a tensor was changed in place; 0 for one of inference mode, or undefined.
std::int64_t version_of(const torch::Tensor& tensor);

/// Copies values and follows the version of the original: if it was changed explicitly since the
/// last time, graphs that saved the copy become unusable, as do those that saved the original; the
/// silent updates of running statistics affect neither.
class ValueCopy {
 public:
  /// `value` is what to copy: the original, or a copy of it that is nearer.
  void update(const torch::Tensor& original, const torch::Tensor& value, torch::Tensor& copy);

 private:
  std::int64_t version_ = -1;
};

/// A lasting thread for each place; all work at the same time.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(const std::vector<Place>& places);

  /// Calls `task(i)` in the first `count` threads, with the caller's modes, and waits for all.
  /// Callers in several threads take turns.
  ///
  /// Then throws what the lowest of them threw: the types of Lockstep, of LibTorch and of the
  /// standard library stay what they are, and their texts are preceded by `replica 1 (cpu cores
  /// 2-3): `. Another type cannot take a text: it becomes an Error in which it is nested
  /// (std::rethrow_if_nested() returns it).
  void run(std::size_t count, const std::function<void(std::size_t)>& task);

  std::size_t size() const { return workers_.size(); }
  const Place& place(std::size_t index) const { return workers_[index]->place(); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PlaceWorker>> workers_;
};

/// Makes another module like this one by its clone(). Throws InvalidArgument that names the module
/// or sub-module that has no clone().
std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module);

/// Calls a function that constructs modules and restores the default random generator: constructing
/// draws the first values of parameters, which a replica does not need.
void without_drawing(const std::function<void()>& construct);

/// A lasting copy of the user's module in a place, brought up to date before each forward.
///
/// On the device of the module it shares the memory of the parameters, elsewhere it copies them.
/// The first replica shares the buffers as well, so that running statistics persist; the others
/// have copies that end with the forward, as in PyTorch.
class Replica {
 public:
  /// Takes a module that is built like the original, whatever its values are. Throws
  /// InvalidArgument if it is not.
  Replica(std::shared_ptr<torch::nn::Module> module, const torch::nn::Module& original,
      const Place& place, bool is_first);

  /// Takes over values, what requires gradients, and training or evaluation of each sub-module.
  void follow(const std::vector<ModuleTensor>& originals, const torch::nn::Module& original);

  /// Returns where the gradient of a tensor arrives in this replica's graph; an invalid edge if the
  /// tensor came before under another name.
  torch::autograd::Edge gradient_edge(std::size_t index) const;

 private:
  std::vector<torch::Tensor> values_here(const std::vector<ModuleTensor>& originals) const;
  void follow_modes(const torch::nn::Module& original);

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<ModuleTensor> tensors_;
  std::vector<bool> repeats_;  // whether the tensor came before under another name
  std::vector<ValueCopy> copies_;
  torch::Device device_;
  bool is_first_;
  bool is_placed_ = false;
};

}  // namespace lockstep::data_parallel
