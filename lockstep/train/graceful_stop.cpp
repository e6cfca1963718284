#include "lockstep/train/graceful_stop.h"

#include <utility>

#include "lockstep/train/stop_signal.h"

namespace lockstep {

GracefulStop::GracefulStop(ProcessGroup world) : agreement_(std::move(world)) {
  let_stops_be_saved();
  handle_stop_signals();
}

bool GracefulStop::requested() {
  if (is_requested_ || !agreement_.is_due()) return is_requested_;
  const StepReport own{.seconds = watch_.seconds(), .signal = static_cast<double>(stop_signal())};
  is_requested_ = agreement_.maximum(own, {}).signal != 0;
  return is_requested_;
}

}  // namespace lockstep
