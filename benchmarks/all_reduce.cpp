// Times all_reduce of float32 sums over shared memory, in place and through the staging buffer, and
// over Gloo on loopback: the three in turn, so that whatever else the machine does meets all alike.
// See benchmarks/README.md.
//
//     lockstep run --nproc-per-node 2 --no-pin -- build/release/bin/all_reduce_benchmark

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

/// Is one way of reducing: a group and a tensor in the memory of its choice.
struct Way {
  const char* name;
  ProcessGroup group;
  torch::Tensor tensor;
  std::vector<double> milliseconds = {};
};

// Several in a row, as backward reduces its buckets; the first of them still finds the caches as
// the other ways left them and is not counted.
void time_some(Way& way) {
  constexpr int kInARow = 10;
  for (int call = 0; call <= kInARow; ++call) {
    way.group.barrier().wait();
    const Stopwatch stopwatch;
    way.group.all_reduce(way.tensor).wait();
    if (call > 0) way.milliseconds.push_back(stopwatch.seconds() * 1000);
  }
}

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(at * static_cast<double>(values.size() - 1))];
}

void report(std::int64_t bytes, const std::vector<Way>& ways) {
  const auto& gloo = ways.back().milliseconds;
  for (const Way& way : ways) {
    std::printf(
        "%10.3f MB  %-12s  best %9.4f ms  median %9.4f ms  upper quartile %9.4f ms  Gloo's median "
        "/ its median %7.1f  "
        "Gloo's best / its median %7.1f\n",
        static_cast<double>(bytes) / 1e6, way.name, quantile(way.milliseconds, 0),
        quantile(way.milliseconds, 0.5), quantile(way.milliseconds, 0.75),
        quantile(gloo, 0.5) / quantile(way.milliseconds, 0.5),
        quantile(gloo, 0) / quantile(way.milliseconds, 0.5));
  }
}

void measure(std::int64_t bytes, const ProcessGroup& shm, const ProcessGroup& gloo) {
  const std::int64_t elements = bytes / 4;
  std::vector<Way> ways = {{"shm in place", shm, shm.empty(elements, torch::kFloat).zero_()},
      {"shm staged", shm, torch::zeros({elements})}, {"gloo", gloo, torch::zeros({elements})}};
  constexpr int kRounds = 20;
  for (int round = 0; round <= kRounds; ++round) {
    if (round == 1) {  // the first round was to warm up
      for (Way& way : ways) way.milliseconds.clear();
    }
    for (Way& way : ways) time_some(way);
  }
  if (shm.rank() == 0) report(bytes, ways);
}

int run(int, char**) {
  const ProcessGroup shm = init_process_group({.backend = "shm"});
  shm.barrier().wait();  // the store of the first group is closed everywhere before the second one
                         // opens its own
  const ProcessGroup gloo = init_process_group({.backend = "gloo"});
  for (const std::int64_t bytes : {4'000, 64'000, 1'000'000, 1'600'000, 10'000'000, 40'000'000}) {
    measure(bytes, shm, gloo);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_program("all_reduce_benchmark", lockstep::run, argc, argv);
}
