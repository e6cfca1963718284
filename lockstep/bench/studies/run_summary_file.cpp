#include "lockstep/bench/studies/run_summary_file.h"

#include <fstream>
#include <iterator>
#include <limits>

#include "lockstep/core/error.h"

namespace lockstep::bench {

SummaryFacts read_run_summary(const std::filesystem::path& run) {
  const auto path = run / "summary.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat(path.string(), ": the run left no summary"));
  return parse_summary({std::istreambuf_iterator<char>(file), {}}, path.string());
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace lockstep::bench
