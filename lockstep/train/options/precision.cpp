#include "lockstep/train/options/precision.h"

#include <fstream>
#include <sstream>

#include "lockstep/core/environment.h"

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
    const PrecisionRequest& asked, bool all_compute_bf16, std::optional<Precision> resumed) {
  PrecisionChoice choice;
  choice.precision = asked.precision;
  if (asked.is_auto)
    choice.precision = resumed.value_or(all_compute_bf16 ? Precision::kBf16Mixed : Precision::k32);
  if (choice.precision == Precision::kBf16Mixed && !all_compute_bf16)
    choice.warning =
        "--precision bf16-mixed: a processor of this run has no instructions for bfloat16 and "
        "emulates them, about 5 times slower than --precision 32";
  if (!asked.is_given && !resumed && all_compute_bf16)
    choice.hint =
        "this processor has bf16 instructions: --precision bf16-mixed (or auto) is usually faster";
  return choice;
}

}  // namespace lockstep
