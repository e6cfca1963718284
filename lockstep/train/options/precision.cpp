#include "lockstep/train/options/precision.h"

#include "lockstep/core/error.h"
#include "lockstep/core/processor.h"

namespace lockstep {

bool computes_bf16(const std::string& features) {
  return has_feature(features, "avx512_bf16") || has_feature(features, "amx_bf16");
}

bool this_processor_computes_bf16() { return computes_bf16(processor_features()); }

namespace {

std::string warning_about(Precision precision, const Computing& on) {
  if (precision == Precision::k16Mixed && !on.on_accelerators)
    return "--precision 16-mixed is for GPUs: on a CPU, bf16-mixed is faster and does not overflow";
  if (precision != Precision::kBf16Mixed || on.is_bf16_fast) return "";
  return on.on_accelerators
             ? "--precision bf16-mixed: a device of this run multiplies in bfloat16 no faster than "
               "in float32"
             : "--precision bf16-mixed: a processor of this run has no instructions for bfloat16 "
               "and emulates them, about 5 times slower than --precision 32";
}

}  // namespace

PrecisionChoice choose_precision(
    const PrecisionRequest& asked, const Computing& on, std::optional<Precision> resumed) {
  PrecisionChoice choice;
  choice.precision = asked.precision;
  if (asked.is_auto)
    choice.precision = resumed.value_or(on.is_bf16_fast ? Precision::kBf16Mixed : Precision::k32);
  choice.warning = warning_about(choice.precision, on);
  if (!asked.is_given && !resumed && on.is_bf16_fast)
    choice.hint = concat("this ",
        on.on_accelerators ? "device is faster in bf16" : "processor has bf16 instructions",
        ": --precision bf16-mixed (or auto) is usually faster");
  return choice;
}

}  // namespace lockstep
