#include "lockstep/bench/collectives/sweep_table.h"

#include <algorithm>

#include "lockstep/bench/text_table.h"

namespace lockstep::bench {
namespace {

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e-9;

}  // namespace

std::string sweep_table(const std::vector<SweepLine>& lines) {
  TextTable table(
      {"op", "backend", "memory", "bytes", "calls", "median [us]", "least [us]", "most [us]",
       "algorithm [GB/s]", "bus [GB/s]", "copy [us]"},
      {true, true, true, false, false, false, false, false, false, false, false});
  for (const SweepLine& line : lines) {
    const auto [least, most] = std::minmax_element(line.seconds.begin(), line.seconds.end());
    table.add_row(
        {name_of(line.collective), line.backend, line.group_memory ? "group" : "ordinary",
         std::to_string(line.bytes), std::to_string(line.calls),
         cell(line.median_seconds() * kMicro, 2), cell(*least * kMicro, 2), cell(*most * kMicro, 2),
         cell(line.algorithm_bandwidth() * kGiga, 3), cell(line.bus_bandwidth() * kGiga, 3),
         cell(line.median_copy_seconds() * kMicro, 2)});
  }
  return table.text();
}

}  // namespace lockstep::bench
