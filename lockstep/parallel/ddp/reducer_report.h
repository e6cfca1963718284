#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// Tells how the reducer has averaged gradients so far, on this rank.
struct ReducerReport {
  std::int64_t passes = 0;       ///< backward passes that were synchronised
  std::size_t buckets = 0;       ///< a pass
  std::size_t bytes = 0;         ///< of dense gradients in the buckets, a pass
  bool rebuilt = false;          ///< the buckets were cut anew, in the order of arrival
  bool graph_is_static = false;  ///< every pass, two at least, used the same parameters as often
  double communication_seconds = 0;  ///< from the first bucket's launch to the last one's end
  double exposed_seconds = 0;        ///< of these, spent launching, carrying forward and waiting

  /// Is the share of communication that went on while backward computed, from 0 to 1; 0 if there
  /// was none.
  double hidden_share() const;
  /// Puts it into one line.
  std::string to_string() const;
};

}  // namespace lockstep
