#include "lockstep/train/snapshot/random_state.h"

#include <mutex>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::vector<torch::Device> with_cpu(const std::vector<torch::Device>& devices) {
  std::vector<torch::Device> all{torch::kCPU};
  for (const torch::Device& device : devices) {
    if (!device.is_cpu()) all.push_back(device);
  }
  return all;
}

std::string name_of(const torch::Device& device) { return "generator/" + device.str(); }

// Every copy of a Generator is the same generator.
at::Generator generator_of(const torch::Device& device) {
  return at::globalContext().defaultGenerator(device);
}

}  // namespace

nn::NamedTensors random_state(const std::vector<torch::Device>& devices) {
  nn::NamedTensors state("Tensor");
  for (const torch::Device& device : with_cpu(devices)) {
    at::Generator generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    state.insert(name_of(device), generator.get_state());
  }
  return state;
}

std::vector<torch::Device> restore_random_state(
    const nn::NamedTensors& state, const std::vector<torch::Device>& devices) {
  std::vector<torch::Device> absent;
  for (const torch::Device& device : with_cpu(devices)) {
    const torch::Tensor* const saved = state.find(name_of(device));
    if (saved == nullptr) {
      absent.push_back(device);
      continue;
    }
    at::Generator generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    try {
      generator.set_state(saved->clone());
    } catch (const c10::Error& error) {
      throw DataError(concat("restore_random_state: ", name_of(device),
          " is no state of this LibTorch's generator: ", error.what_without_backtrace()));
    }
  }
  return absent;
}

}  // namespace lockstep
