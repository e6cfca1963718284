#include "lockstep/train/options/precision.h"

#include <iomanip>

#include "lockstep/core/error.h"

namespace lockstep {

bool is_bf16_fast(const Computing& on) { return on.bf16_speed >= (on.on_accelerators ? 1.2 : 2); }

namespace {

std::string times(double factor) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << factor << " times as ";
  return text.str();
}

std::string warning_about(Precision precision, const Computing& on) {
  if (precision == Precision::k16Mixed && !on.on_accelerators)
    return "--precision 16-mixed is for GPUs: on a CPU, bf16-mixed is faster and does not overflow";
  if (precision != Precision::kBf16Mixed || is_bf16_fast(on)) return "";
  const std::string who = on.on_accelerators ? "a device" : "a processor";
  return concat("--precision bf16-mixed: ", who, " of this run multiplies in bfloat16 only ",
      times(on.bf16_speed), "fast as in float32: --precision 32 is usually faster");
}

}  // namespace

PrecisionChoice choose_precision(
    const PrecisionRequest& asked, const Computing& on, std::optional<Precision> resumed) {
  PrecisionChoice choice;
  choice.precision = asked.precision;
  if (asked.is_auto)
    choice.precision = resumed.value_or(is_bf16_fast(on) ? Precision::kBf16Mixed : Precision::k32);
  choice.warning = warning_about(choice.precision, on);
  if (!asked.is_given && !resumed && is_bf16_fast(on))
    choice.hint = concat("this ", on.on_accelerators ? "device" : "processor", " multiplies ",
        times(on.bf16_speed),
        "fast in bfloat16: --precision bf16-mixed (or auto) is usually faster");
  return choice;
}

}  // namespace lockstep
