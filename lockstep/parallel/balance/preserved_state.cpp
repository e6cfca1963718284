#include "lockstep/parallel/balance/preserved_state.h"

#include <cstdint>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>

namespace lockstep {
namespace {

struct SavedTensor {
  torch::Tensor tensor;
  torch::Tensor value;
  std::uint32_t version;
};

struct SavedMode {
  torch::nn::Module* module;
  bool training;
};

struct SavedGenerator {
  at::Generator generator;
  torch::Tensor state;
};

std::uint32_t version_of(const torch::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

// Only what was written to is put back, so that graphs which hold the rest stay usable. The version
// alone is not enough: batch norm writes its statistics without counting.
bool was_written(const SavedTensor& saved) {
  return version_of(saved.tensor) != saved.version || !saved.tensor.equal(saved.value);
}

class PreservedState {
 public:
  PreservedState(const std::vector<torch::nn::Module*>& modules, const c10::Device& device) {
    for (torch::nn::Module* module : modules) {
      for (const torch::Tensor& tensor : module->parameters()) save(tensor);
      for (const torch::Tensor& tensor : module->buffers()) save(tensor);
      save_mode(*module);
      for (const auto& child : module->modules(/*include_self=*/false)) save_mode(*child);
    }
    save(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)));
    if (!device.is_cpu()) save(at::globalContext().defaultGenerator(device));
  }

  void restore() {
    const torch::NoGradGuard no_gradients;
    for (SavedTensor& saved : tensors_) {
      if (was_written(saved)) saved.tensor.copy_(saved.value);
    }
    for (const SavedMode& saved : modes_) saved.module->train(saved.training);
    for (SavedGenerator& saved : generators_) {
      const std::lock_guard lock(saved.generator.mutex());
      saved.generator.set_state(saved.state);
    }
  }

 private:
  void save(const torch::Tensor& tensor) {
    if (!tensor.defined()) return;
    tensors_.push_back({tensor, tensor.detach().clone(), version_of(tensor)});
  }

  void save_mode(torch::nn::Module& module) { modes_.push_back({&module, module.is_training()}); }

  void save(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    generators_.push_back({generator, generator.get_state()});
  }

  std::vector<SavedTensor> tensors_;
  std::vector<SavedMode> modes_;  // a parent before its children: train() reaches down
  std::vector<SavedGenerator> generators_;
};

}  // namespace

void with_preserved_state(const std::vector<torch::nn::Module*>& modules, const c10::Device& device,
    const std::function<void()>& body) {
  PreservedState state(modules, device);
  try {
    body();
  } catch (...) {
    state.restore();
    throw;
  }
  state.restore();
}

}  // namespace lockstep
