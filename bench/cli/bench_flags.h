#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/studies/bench_request.h"

namespace lockstep::cli {

/// A request to `lockstep bench`.
struct BenchCommand {
  bench::BenchRequest request;
  std::string name;    ///< of the study, or `all`; empty: only the list
  std::string output;  ///< folder
  std::uint64_t seed = 42;
  double budget = 0;       ///< seconds after which no further sample begins; 0: there is no limit
  bool is_fitted = false;  ///< the work of a sample was chosen by the budget
  bool quick = false;      ///< asked for by name
  bool keep_runs = false;
  bool retry_failed = false;
  bool list = false;
  bool json = false;
};

/// Returns the help of `lockstep bench`.
std::string bench_help();

/// Reads the flags; nothing when they ask for help. Throws InvalidArgument that proposes the study
/// or flag that was meant.
std::optional<BenchCommand> parse_bench(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
