#include "lockstep/parallel/data_parallel/replicate.h"

#include <exception>
#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"

namespace lockstep::data_parallel {
namespace {

bool can_be_cloned(const torch::nn::Module& module) {
  try {
    return module.clone() != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

/// Names the innermost sub-module without clone(): those around it fail because of it.
std::string culprit(const torch::nn::Module& module) {
  for (const auto& item : module.named_children()) {
    if (can_be_cloned(*item.value())) continue;
    const std::string inner = culprit(*item.value());
    return inner.empty() ? item.key() : item.key() + "." + inner;
  }
  return "";
}

std::string describe_culprit(const torch::nn::Module& module) {
  const std::string path = culprit(module);
  if (path.empty()) return concat("the module (", module.name(), ")");
  return concat("sub-module ", path, " (", module.named_modules()[path]->name(), ")");
}

/// Keeps the first line: LibTorch's messages go on with where in its sources they come from.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module) {
  try {
    return module.clone();
  } catch (const c10::Error& error) {
    throw InvalidArgument(concat(
        "DataParallel: ", describe_culprit(module),
        " cannot be cloned: ", first_line(error.what_without_backtrace()),
        "; derive it from torch::nn::Cloneable, or pass a function that makes another module"));
  }
}

void without_drawing(const std::function<void()>& construct) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto state = [&] {
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }();
  construct();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace lockstep::data_parallel
