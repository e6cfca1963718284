#include "lockstep/comm/quiet_log.h"

#include <mutex>

#include <c10/util/Logging.h>

#include "lockstep/core/environment.h"

namespace lockstep {
namespace {

constexpr int kSilent = 4;  // above FATAL

std::mutex log_mutex;
int log_silencers = 0;
int log_level_before = 0;

bool user_chose_the_level() { return environment("TORCH_CPP_LOG_LEVEL").has_value(); }

}  // namespace

QuietLog::QuietLog() {
  const std::lock_guard lock(log_mutex);
  if (log_silencers++ > 0 || user_chose_the_level()) return;
  log_level_before = std::exchange(FLAGS_caffe2_log_level, kSilent);
}

QuietLog::~QuietLog() {
  const std::lock_guard lock(log_mutex);
  if (--log_silencers > 0 || user_chose_the_level()) return;
  FLAGS_caffe2_log_level = log_level_before;
}

}  // namespace lockstep
