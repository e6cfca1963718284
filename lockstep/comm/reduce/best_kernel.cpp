#include <algorithm>
#include <array>
#include <string>

#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::reduce {
namespace {

struct Choice {
  const char* name;
  Kernel kernel;
  bool supported;
};

// Slowest first. The flags of reduce_avx512.cpp in CMakeLists.txt name the features that are asked
// for here.
std::array<Choice, 3> choices() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  const bool avx2 = false, avx512 = false;
#endif
  return {{{"plain", reduce_plain, true}, {"avx2", reduce_avx2, avx2},
      {"avx512", reduce_avx512, avx512}}};
}

Choice best_choice() {
  const auto all = choices();
  const auto wanted = environment("LOCKSTEP_SIMD");
  Choice best = all.front();
  for (const Choice& choice : all) {
    if (choice.supported) best = choice;
    if (wanted == choice.name) {
      check(choice.supported, "LOCKSTEP_SIMD: this processor has no ", *wanted);
      return choice;
    }
  }
  check(!wanted, "LOCKSTEP_SIMD: must be plain, avx2 or avx512: ", wanted.value_or(""));
  return best;
}

const Choice& chosen() {
  static Choice choice = best_choice();
  return choice;
}

}  // namespace

Kernel best_kernel() { return chosen().kernel; }

const char* best_kernel_name() { return chosen().name; }

}  // namespace lockstep::reduce
