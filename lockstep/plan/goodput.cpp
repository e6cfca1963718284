#include "lockstep/plan/goodput.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

double share_of(double interval, double snapshot, double recovery, double mean) {
  const double spent = mean * std::exp(recovery / mean) * std::expm1((interval + snapshot) / mean);
  return interval / spent;
}

// The share has one maximum over the interval: sections of the logarithm find it.
double best_interval(const Failures& failures, double mean) {
  double least = std::log(1e-3), most = std::log(100 * mean + 1);
  for (int round = 0; round < 200; ++round) {
    const double third = (most - least) / 3;
    const auto share = [&](double logarithm) {
      return share_of(std::exp(logarithm), failures.snapshot, failures.recovery, mean);
    };
    if (share(least + third) < share(most - third)) {
      least += third;
    } else {
      most -= third;
    }
  }
  return std::exp((least + most) / 2);
}

}  // namespace

Goodput goodput_of(const Failures& failures, int nodes) {
  for (const double seconds :
      {failures.between, failures.snapshot, failures.interval, failures.recovery}) {
    check(seconds >= 0 && std::isfinite(seconds),
        "plan: failures, snapshots and recovery take 0 "
        "or more seconds: ",
        seconds);
  }
  const double interval = failures.interval;
  if (failures.between == 0) {
    return {.share = interval > 0 ? interval / (interval + failures.snapshot) : 1,
        .interval = interval};
  }
  check(interval > 0 || failures.snapshot > 0,
      "plan: the best interval between snapshots depends on what one takes: give "
      "--snapshot-seconds, or --snapshot-interval");
  const double mean = failures.between / std::max(1, nodes);
  const double taken = interval > 0 ? interval : best_interval(failures, mean);
  return {.share = share_of(taken, failures.snapshot, failures.recovery, mean), .interval = taken};
}

}  // namespace lockstep::plan
