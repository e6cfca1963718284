#include "lockstep/snapshot/restore_tensors.h"

#include <mutex>
#include <string>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/nn/weights.h"

namespace lockstep {

namespace {

std::string differences(
    const nn::NamedTensors& target, const nn::NamedTensors& saved, Others others) {
  std::string text;
  for (const auto& item : target) {
    const torch::Tensor* const found = saved.find(item.key());
    if (found == nullptr) {
      text += "  missing: " + item.key() + "\n";
    } else if (found->scalar_type() != item.value().scalar_type() ||
               found->sizes() != item.value().sizes()) {
      text += "  " + item.key() + ": " + type_and_shape(*found) + " was saved, " +
              type_and_shape(item.value()) + " is needed\n";
    }
  }
  for (const auto& item : saved) {
    if (others == Others::kRefused && !target.contains(item.key()))
      text += "  unexpected: " + item.key() + "\n";
  }
  return text;
}

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

std::string type_and_shape(const torch::Tensor& tensor) {
  const auto type = nn::element_type_of(tensor.scalar_type());
  return concat(type ? torch_name(*type) : c10::toString(tensor.scalar_type()), ' ',
      shape_text(tensor.sizes()));
}

void restore_tensors(const nn::NamedTensors& target, const nn::NamedTensors& saved,
    const std::string& what, Others others) {
  const std::string text = differences(target, saved, others);
  if (!text.empty()) {
    throw DataError(what + ": what was saved does not fit; nothing was loaded:\n" +
                    first_lines(text) +
                    "continue with the model and the configuration that the snapshot was taken of");
  }
  const torch::NoGradGuard no_gradients;
  for (const auto& item : target) torch::Tensor(item.value()).copy_(saved[item.key()]);
}

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
