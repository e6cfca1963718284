// Times pipelines of two stages against the same stages run alone with the same micro-batches, in
// turn, and prints which share of the bound that the bubble sets they reach. See
// benchmarks/README.md.
//
//     lockstep run --nproc-per-node 1 -- build/release/bin/pipeline_benchmark
//     lockstep run --nproc-per-node 2 -- build/release/bin/pipeline_benchmark --ranks

#include <iostream>

#include "comparison.h"
#include "machine_load.h"

#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/flags/flag_table.h"

namespace lockstep::benchmark {
namespace {

WorkSize default_size() {
  WorkSize size;
  size.micro_batch = 256;
  size.width = 1024;
  size.depth = 8;
  size.image_size = 64;
  return size;
}

struct Flags {
  WorkSize size = default_size();
  std::vector<int> chunks = {10};
  std::vector<std::string> schedules = {
      "sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"};
  int rounds = 7;
  bool ranks = false;
};

void read_chunks(Flags& flags, const FlagSpec&, const std::string& text) {
  flags.chunks.clear();
  for (const std::string& piece : split(text, ',')) {
    const auto chunks = parse_number<int>(piece);
    check(chunks.has_value(), "--chunks must be numbers with commas between them: ", text);
    flags.chunks.push_back(*chunks);
  }
}

const FlagTable<Flags>& flag_table() {
  static const FlagTable<Flags> kTable(
      {"pipeline_benchmark", "pipeline_benchmark [flags]",
          "Times pipelines against the same stages run alone.\n", ""},
      {{"Options",
          {flag("--model", "NAME", "chain, or a net: resnet50", &Flags::size, &WorkSize::model),
              flag("--micro-batch", "N", "samples", &Flags::size, &WorkSize::micro_batch),
              flag("--width", "N", "of the chain's layers", &Flags::size, &WorkSize::width),
              flag("--depth", "N", "of the chain, in layers", &Flags::size, &WorkSize::depth),
              flag("--image-size", "N", "of a net", &Flags::size, &WorkSize::image_size),
              flag_by<Flags>("--chunks", "N,N", "micro-batches a step", read_chunks).usually(10),
              flag("--schedules", "NAME,NAME", "to measure", &Flags::schedules),
              flag("--rounds", "N", "in each everything is measured once", &Flags::rounds).from(1),
              flag_on("--ranks", "one process a stage; start with lockstep run", &Flags::ranks)}}});
  return kTable;
}

std::vector<ScheduleKind> kinds_of(const std::vector<std::string>& names) {
  std::vector<ScheduleKind> kinds;
  for (const std::string& name : names) kinds.push_back(schedule_kind(name));
  return kinds;
}

int run(int argc, char** argv) {
  const auto request = flag_table().request({argv + 1, argv + argc}, std::cout);
  if (!request) return 0;
  const Flags& flags = *request;
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
