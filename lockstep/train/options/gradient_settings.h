#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The way in which the ranks of `ddp` send each other gradients.
enum class CommHookKind { kNone, kFp16, kBf16, kPowerSgd };
constexpr auto names_of(CommHookKind) {
  return std::array{EnumName{CommHookKind::kNone, "none"}, EnumName{CommHookKind::kFp16, "fp16"},
      EnumName{CommHookKind::kBf16, "bf16"}, EnumName{CommHookKind::kPowerSgd, "powersgd"}};
}

/// The settings of a communication hook; the numbers are PowerSGD's, as PyTorch's.
struct CommHookSettings {
  CommHookKind kind = CommHookKind::kNone;
  std::int64_t rank = 1;
  std::int64_t start_step = 1000;  ///< how many steps are exact, each time the run is started
};

/// The settings of how gradients are averaged over the ranks of `ddp`.
struct GradientSettings {
  std::optional<double> bucket_mb = {};  ///< MiB
  CommHookSettings comm_hook = {};
  bool find_unused_parameters = false;  ///< backward may leave some without a gradient
};

/// Reads `none`, `fp16`, `bf16`, `powersgd`, `powersgd:RANK` or `powersgd:RANK:STEP`. Throws
/// InvalidArgument whose words go on after the flag's name.
CommHookSettings parse_comm_hook(const std::string& text);

/// Writes it so that it can be read.
std::string comm_hook_text(const CommHookSettings& settings);

}  // namespace lockstep
