#include "lockstep/train/options/loading_settings.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int kMostWorkersUnasked = 8;

}  // namespace

int workers_of(const LoadingSettings& settings, int cores, bool is_mere_copy) {
  if (settings.workers) return *settings.workers;
  if (is_mere_copy || cores < 2) return 0;
  return std::min(cores / 2, kMostWorkersUnasked);
}

}  // namespace lockstep
