#pragma once

#include <array>

#include "lockstep/core/enum_names.h"

namespace lockstep::nn {

/// Who computes, on the CPU, convolutions, linear layers, LSTMs, dropout, batch norm with its ReLU,
/// attention, RMSNorm, layer norm and scale, and language models' SwiGLU, rotary positions and
/// loss: LibTorch, or our own kernels, wherever they can be used or only where they are faster.
enum class Kernels { kAuto, kOwn, kLibTorch };
constexpr auto names_of(Kernels) {
  return std::array{EnumName{Kernels::kAuto, "auto"}, EnumName{Kernels::kOwn, "own"},
      EnumName{Kernels::kLibTorch, "libtorch"}};
}

/// A scope in which `who` computes the CPU layers of this process, in any module and thread. The
/// newest scope counts; without any it is LibTorch.
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
