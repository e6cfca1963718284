#include "lockstep/train/options/precision.h"

#include <fstream>
#include <sstream>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string processor_features() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("flags")) return line;
  return "";
}

}  // namespace

bool computes_bf16(const std::string& features) {
  std::istringstream words(features);
  for (std::string word; words >> word;)
    if (word == "avx512_bf16" || word == "amx_bf16") return true;
  return false;
}

bool this_processor_computes_bf16() {
  const auto features = environment("LOCKSTEP_TEST_CPU_FEATURES");
  return computes_bf16(features ? *features : processor_features());
}

PrecisionChoice choose_precision(
    const PrecisionRequest& asked, const Computing& on, std::optional<Precision> resumed) {
  PrecisionChoice choice;
  choice.precision = asked.precision;
  if (asked.is_auto)
    choice.precision = resumed.value_or(on.is_bf16_fast ? Precision::kBf16Mixed : Precision::k32);
  if (choice.precision == Precision::kBf16Mixed && !on.is_bf16_fast)
    choice.warning =
        on.on_accelerators
            ? "--precision bf16-mixed: a device of this run multiplies in bfloat16 no faster than "
              "in float32"
            : "--precision bf16-mixed: a processor of this run has no instructions for bfloat16 "
              "and emulates them, about 5 times slower than --precision 32";
  if (!asked.is_given && !resumed && on.is_bf16_fast)
    choice.hint = concat("this ",
        on.on_accelerators ? "device is faster in bf16" : "processor has bf16 instructions",
        ": --precision bf16-mixed (or auto) is usually faster");
  return choice;
}

}  // namespace lockstep
