#include "lockstep/parallel/ddp/reducer_report.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace lockstep {

double ReducerReport::hidden_share() const {
  if (communication_seconds <= 0) return 0;
  return std::clamp(1 - exposed_seconds / communication_seconds, 0.0, 1.0);
}

std::string ReducerReport::to_string() const {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << passes << " passes, " << buckets << " buckets, "
       << static_cast<double>(bytes) / (1 << 20) << " MiB a pass, "
       << (rebuilt ? "rebuilt" : "as first cut");
  if (passes == 0) return text.str();
  text << ", " << 1e3 * communication_seconds / static_cast<double>(passes)
       << " ms of communication a pass, " << std::setprecision(0) << 100 * hidden_share()
       << " % of it hidden behind backward";
  return text.str();
}

}  // namespace lockstep
