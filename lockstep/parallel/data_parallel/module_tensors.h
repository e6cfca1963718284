#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

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

}  // namespace lockstep::data_parallel
