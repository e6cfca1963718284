#pragma once

#include <array>

#include "lockstep/core/enum_names.h"

namespace lockstep::nn {

/// Who computes convolutions, and batch norm with the ReLU behind it, on the CPU: LibTorch, or
/// kernels of our own, everywhere that they can or where they are faster.
enum class Kernels { kAuto, kOwn, kLibTorch };
constexpr auto names_of(Kernels) {
  return std::array{EnumName{Kernels::kAuto, "auto"}, EnumName{Kernels::kOwn, "own"},
      EnumName{Kernels::kLibTorch, "libtorch"}};
}

/// Lets layers of this process that run on the CPU, of any module, in any thread, be computed by
/// `who` while it exists; of several the newest counts. Without any it is LibTorch.
class [[nodiscard]] KernelScope {
 public:
  explicit KernelScope(Kernels who);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

  Kernels who() const { return who_; }

 private:
  Kernels who_;
};

/// Returns what the newest scope says.
Kernels kernels_in_use();

}  // namespace lockstep::nn
