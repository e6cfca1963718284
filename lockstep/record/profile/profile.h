#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/core/spans.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {

/// The uses of a step's time: they add up to it.
enum class StepPhase {
  kInput,
  kCopy,
  kForward,
  kBackward,
  kStages,
  kCommunication,
  kIdle,
  kOptimizer,
  kOther
};
constexpr auto names_of(StepPhase) {
  using P = StepPhase;
  return std::array{EnumName{P::kInput, "input"}, EnumName{P::kCopy, "copy"},
      EnumName{P::kForward, "forward"}, EnumName{P::kBackward, "backward"},
      EnumName{P::kStages, "stages"}, EnumName{P::kCommunication, "communication"},
      EnumName{P::kIdle, "idle"}, EnumName{P::kOptimizer, "optimizer"},
      EnumName{P::kOther, "other"}};
}
inline constexpr std::size_t kStepPhases = names_of(StepPhase{}).size();

/// A thread's time in the steps that were measured; all in milliseconds a step.
struct LaneProfile {
  std::string thread;
  bool is_main = false;  ///< the one that makes the steps
  std::array<double, kStepPhases> phases = {};

  double of(StepPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  double& of(StepPhase phase) { return phases[static_cast<std::size_t>(phase)]; }
};

/// The time of one layer, in milliseconds a step, summed over the threads.
struct LayerProfile {
  std::string name;
  double forward = 0, backward = 0;
  double flops = 0;  ///< of one step
};

/// The time of one operator's calls, with those that they make in turn.
struct OperatorProfile {
  std::string name;
  bool is_backward = false;
  double calls = 0;  ///< a step
  double milliseconds = 0;
};

/// A box of the picture of one step, in milliseconds from its begin.
struct TimelineSpan {
  std::size_t lane = 0;  ///< of RankProfile::lanes; their number: gradients on their way
  StepPhase phase = StepPhase::kOther;
  std::string name;
  double begin = 0, end = 0;
};

/// Where the time of one rank's steps went; times in milliseconds a step.
struct RankProfile {
  int rank = 0;
  std::int64_t steps = 0;  ///< that were measured
  double step = 0;
  std::optional<double> unwaited_step = {};  ///< of an accelerator, when no operator is waited for
  std::vector<LaneProfile> lanes;
  std::vector<LayerProfile> layers;        ///< the slowest first
  std::vector<OperatorProfile> operators;  ///< the same
  double reduction = 0;                    ///< gradients were on their way
  double exposed = 0;                      ///< of it, not behind backward
  double flops = 0;                        ///< of one step
  double product_flops = 0;         ///< of them, those in matrix products, and not in convolutions
  std::optional<double> peak = {};  ///< FLOP/s that matrix products reached here
  std::vector<TimelineSpan> timeline;  ///< of the step whose time is the median
  std::int64_t batch = 0;              ///< samples that the chain was measured with
  std::vector<LayerCosts> chain;       ///< each computed alone; empty: no place has all layers
};

/// Analyses the spans of one rank. Throws DataError if there is no whole step among them.
RankProfile profile_of(const std::vector<SpanLane>& lanes);

/// The profile of a run: of all its ranks, rank 0 first.
struct RunProfile {
  std::string precision;  ///< of the products that the peak was measured with
  std::vector<RankProfile> ranks;

  /// Return FLOP/s of all ranks together; the peak only if each has measured it.
  double flops_per_second() const;
  std::optional<double> peak() const;
};

/// Writes profile.json, and reads it; what it does not know is a DataError.
std::string profile_json(const RunProfile& profile);
RunProfile read_profile(const std::string& text, const std::string& file);

/// Returns the phases to which some thread gives time that two digits of a millisecond show.
std::vector<StepPhase> shown_phases(const RunProfile& profile);

/// Writes the profile as tables for a terminal.
std::string profile_text(const RunProfile& profile);

/// Returns a line: the arithmetic of a step and the share of the peak; empty if there is none.
std::string arithmetic_text(const RunProfile& profile);

/// Writes the spans of one rank as events of Chrome's trace format, separated by commas, without
/// the list around them; `start` is time 0.
std::string trace_events(int rank, const std::vector<SpanLane>& lanes, std::int64_t start);

/// Puts the events of all ranks into a whole file, which chrome://tracing and Perfetto open.
std::string trace_file(const std::vector<std::string>& events);

}  // namespace lockstep
