// Times pipelines of two stages against the same stages run alone with the same micro-batches, in
// turn, and prints which share of the bound that the bubble sets they reach. See
// benchmarks/README.md.
//
//     lockstep run --nproc-per-node 1 -- build/release/bin/pipeline_benchmark
//     lockstep run --nproc-per-node 2 -- build/release/bin/pipeline_benchmark --ranks

#include <CLI/CLI.hpp>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

#include "comparison.h"
#include "machine_load.h"

namespace lockstep::benchmark {
namespace {

struct Flags {
  WorkSize size = {.micro_batch = 256, .width = 1024, .depth = 8, .image_size = 64};
  std::vector<int> chunks = {10};
  std::vector<std::string> schedules = {
      "sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"};
  int rounds = 7;
  bool ranks = false;
};

void describe(CLI::App& parser, Flags& flags) {
  parser.add_option("--model", flags.size.model, "chain, or a net: resnet50")
      ->capture_default_str();
  parser.add_option("--micro-batch", flags.size.micro_batch, "samples")->capture_default_str();
  parser.add_option("--width", flags.size.width, "of the chain's layers")->capture_default_str();
  parser.add_option("--depth", flags.size.depth, "of the chain, in layers")->capture_default_str();
  parser.add_option("--image-size", flags.size.image_size, "of a net")->capture_default_str();
  parser.add_option("--chunks", flags.chunks, "micro-batches a step, one or more numbers")
      ->capture_default_str();
  parser.add_option("--schedules", flags.schedules, "to measure")->capture_default_str();
  parser.add_option("--rounds", flags.rounds, "in each everything is measured once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  parser.add_flag("--ranks", flags.ranks, "one process a stage; start with lockstep run");
}

std::vector<ScheduleKind> kinds_of(const std::vector<std::string>& names) {
  std::vector<ScheduleKind> kinds;
  for (const std::string& name : names) kinds.push_back(schedule_kind(name));
  return kinds;
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App parser("Times pipelines against the same stages run alone.");
  describe(parser, flags);
  CLI11_PARSE(parser, argc, argv);
  const ProcessGroup world = init_process_group();
  check(flags.ranks || world.size() == 1, "start one process, or give --ranks");
  constexpr int kPlaces = 2;
  const auto machine = flags.ranks ? make_rank_machine(world) : make_place_machine(kPlaces);
  check(machine->ranks() == kPlaces, "--ranks takes 2 ranks: ", machine->ranks());
  if (machine->reports()) std::printf("%s\n", machine_description().c_str());
  for (const int chunks : flags.chunks) {
    Comparison comparison(*machine, flags.size, chunks, kinds_of(flags.schedules));
    for (int round = 0; round < flags.rounds; ++round) comparison.run_round();
    comparison.report();
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  return lockstep::run_program("pipeline_benchmark", lockstep::benchmark::run, argc, argv);
}
