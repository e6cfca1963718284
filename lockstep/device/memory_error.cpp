#include "lockstep/device/memory_error.h"

#include <string>

#include <c10/util/Exception.h>

namespace lockstep {
namespace {

constexpr const char* kHelp =
    "; take a smaller --batch-size (--grad-accum-steps keeps the step's), --precision bf16-mixed, "
    "or spread the model: --parallel pp";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The host's allocator has no type of its own for it.
bool is_of_host(const std::string& text) {
  return text.find("DefaultCPUAllocator: can't allocate memory") != std::string::npos;
}

std::optional<MemoryError> inside_of(const std::exception& outer) {
  try {
    std::rethrow_if_nested(outer);
    return std::nullopt;
  } catch (const std::exception& inner) {
    return as_memory_error(inner);
  }
}

}  // namespace

// A pipeline names the stage around LibTorch's own.
std::optional<MemoryError> as_memory_error(const std::exception& error) {
  const auto* const own = dynamic_cast<const c10::Error*>(&error);
  if (own == nullptr) return inside_of(error);
  const std::string text = own->what_without_backtrace();
  const bool is_memory = dynamic_cast<const c10::OutOfMemoryError*>(own) != nullptr;
  if (!is_memory && !is_of_host(text)) return std::nullopt;
  return MemoryError(concat("out of memory: ", first_line(text), kHelp));
}

}  // namespace lockstep
