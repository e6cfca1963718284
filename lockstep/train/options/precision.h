#pragma once

#include <optional>
#include <string>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The types in which a model computes; parameters and optimizer stay float32.
enum class Precision {
  k32,
  kBf16Mixed,  ///< autocast to bfloat16
  k16Mixed     ///< autocast to float16, with a GradScaler
};
constexpr auto names_of(Precision) {
  return std::array{EnumName{Precision::k32, "32"}, EnumName{Precision::kBf16Mixed, "bf16-mixed"},
      EnumName{Precision::k16Mixed, "16-mixed"}};
}

/// The float32 products that NVIDIA's GPUs may round to TF32, of 10 bits of mantissa, which is
/// several times as fast.
enum class Tf32 {
  kAuto,  ///< convolutions, not matrix products: LibTorch's own choice
  kOn,
  kOff
};
constexpr auto names_of(Tf32) {
  return std::array{
      EnumName{Tf32::kAuto, "auto"}, EnumName{Tf32::kOn, "on"}, EnumName{Tf32::kOff, "off"}};
}

/// The request of --precision.
struct PrecisionRequest {
  bool is_auto = false;
  bool is_given = false;  ///< on the command line
  Precision precision = Precision::k32;
};

/// The precision of a run, and the remarks on it.
struct PrecisionChoice {
  Precision precision = Precision::k32;
  std::string hint;     ///< that another would be quicker; may be empty
  std::string warning;  ///< of a slow one; may be empty
};

/// The hardware on which all ranks of a run compute.
struct Computing {
  double bf16_speed = 0;  ///< of products in bfloat16, float32's being 1; the least of all
  bool on_accelerators = false;
};

/// Says whether a training in bfloat16 is likely the faster one. On a CPU its products must take
/// half of float32's time, as our kernels of float32 save half of them in convolutions.
bool is_bf16_fast(const Computing& on);

/// Decides in what to compute; `resumed` is what the snapshot has that a run goes on from, which
/// `auto` keeps.
PrecisionChoice choose_precision(
    const PrecisionRequest& asked, const Computing& on, std::optional<Precision> resumed);

}  // namespace lockstep
