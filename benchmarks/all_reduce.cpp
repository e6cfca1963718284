// Times collectives of float32 over shared memory, in the group's memory and through the staging
// buffers, and over Gloo on loopback: the three in turn, so that whatever else the machine does
// meets all alike. See benchmarks/README.md.
//
//     lockstep run --nproc-per-node 2 --no-pin -- build/release/bin/all_reduce_benchmark [NAME ...]
//
// NAME is all_reduce, which is the default, reduce_scatter, all_gather, broadcast or all_to_all.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/machine_load.h"

#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

using Call = std::function<void()>;

/// One way of doing a collective: a group, and the call on tensors in the memory of its choice.
struct Way {
  const char* name;
  ProcessGroup group;
  Call call;
  std::vector<double> milliseconds = {};  ///< of this rank
};

using Make = std::function<torch::Tensor(std::int64_t)>;

// A message is the larger of the two tensors, as in `lockstep collectives`.
Call make_call(
    const std::string& name, const ProcessGroup& group, std::int64_t elements, const Make& make) {
  const torch::Tensor whole = make(elements);
  if (name == "all_reduce") return [=] { group.all_reduce(whole).wait(); };
  if (name == "broadcast") return [=] { group.broadcast(whole, 0).wait(); };
  if (name == "all_to_all") {
    const torch::Tensor output = make(elements);
    return [=] { group.all_to_all(output, whole).wait(); };
  }
  const torch::Tensor piece = make(elements / group.size());
  if (name == "reduce_scatter") return [=] { group.reduce_scatter(piece, whole).wait(); };
  check(name == "all_gather", "no such collective: ", name);
  return [=] { group.all_gather(whole, piece).wait(); };
}

// Several in a row, as backward reduces its buckets; the first of them still finds the caches as
// the other ways left them and is not counted.
void time_some(Way& way) {
  constexpr int kInARow = 10;
  for (int call = 0; call <= kInARow; ++call) {
    way.group.barrier().wait();
    const Stopwatch stopwatch;
    way.call();
    if (call > 0) way.milliseconds.push_back(stopwatch.seconds() * 1000);
  }
}

// A call has taken as long as it took the slowest rank.
std::vector<double> of_slowest_rank(const Way& way) {
  const torch::Tensor slowest = torch::tensor(way.milliseconds, torch::kDouble);
  way.group.all_reduce(slowest, ReduceOp::kMax).wait();
  const double* const values = slowest.data_ptr<double>();
  return {values, values + slowest.numel()};
}

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(at * static_cast<double>(values.size() - 1))];
}

void report(const std::string& name, std::int64_t bytes, const std::vector<Way>& ways) {
  std::vector<std::vector<double>> times;
  for (const Way& way : ways) times.push_back(of_slowest_rank(way));
  for (std::size_t i = 0; ways[0].group.rank() == 0 && i < ways.size(); ++i) {
    const double median = quantile(times[i], 0.5);
    std::printf(
        "%-14s %8.3f MB  %-12s  best %9.4f ms  median %9.4f ms  quartiles %9.4f to %9.4f ms  "
        "Gloo's "
        "median / its median %7.1f  Gloo's best / its best %6.1f\n",
        name.c_str(), static_cast<double>(bytes) / 1e6, ways[i].name, quantile(times[i], 0), median,
        quantile(times[i], 0.25), quantile(times[i], 0.75), quantile(times.back(), 0.5) / median,
        quantile(times.back(), 0) / quantile(times[i], 0));
  }
  std::fflush(stdout);
}

void measure(const std::string& name, std::int64_t bytes, const ProcessGroup& shm,
    const ProcessGroup& gloo) {
  const std::int64_t elements = bytes / 4;
  const auto shared = [&](std::int64_t count) { return shm.empty(count, torch::kFloat).zero_(); };
  const auto ordinary = [](std::int64_t count) { return torch::zeros({count}); };
  std::vector<Way> ways = {{"shm in place", shm, make_call(name, shm, elements, shared)},
      {"shm staged", shm, make_call(name, shm, elements, ordinary)},
      {"gloo", gloo, make_call(name, gloo, elements, ordinary)}};
  const int rounds = bytes <= 2'000'000 ? 40 : bytes <= 10'000'000 ? 20 : 8;
  for (int round = 0; round <= rounds; ++round) {
    if (round == 1) {  // the first round was to warm up
      for (Way& way : ways) way.milliseconds.clear();
    }
    for (Way& way : ways) time_some(way);
  }
  report(name, bytes, ways);
}

int run(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) names = {"all_reduce"};
  const ProcessGroup shm = init_process_group({.backend = "shm"});
  shm.barrier().wait();  // the store of the first group is closed everywhere before the second one
                         // opens its own
  const ProcessGroup gloo = init_process_group({.backend = "gloo"});
  const benchmark::MachineLoad load;
  for (const std::string& name : names) {
    for (const std::int64_t bytes :
        {4'000, 16'000, 64'000, 256'000, 1'000'000, 1'600'000, 10'000'000, 40'000'000, 100'000'000})
      measure(name, bytes, shm, gloo);
  }
  const double others = load.others(shm.size());
  if (shm.rank() == 0) std::printf("other programs used %.0f %% of the machine\n", others * 100);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_program("all_reduce_benchmark", lockstep::run, argc, argv);
}
