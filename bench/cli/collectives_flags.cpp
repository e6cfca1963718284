#include "bench/cli/collectives_flags.h"

#include <algorithm>

#include "lockstep/core/backend_names.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCollectivesDescription =
    R"(Measures collectives of float32 numbers between ranks, over message sizes and backends.

A result is compared with the exact one before it is timed. Then repeats of all backends, and of a copy of as many
bytes within memory, take turns. A repeat is several calls in a row after a barrier; its time is that of the slowest
rank. Bus bandwidth is defined as in nccl-tests. Inside lockstep run or torchrun the ranks are the launcher's.
)";

constexpr const char* kCollectivesExamples = R"(Examples:
  lockstep collectives                                          all_reduce of two ranks, shm beside Gloo
  lockstep collectives --nproc-per-node 4 --op all --output sweep
  lockstep collectives --backend threads --max-bytes 1M         the ranks are threads of one process
  lockstep run --nproc-per-node 2 -- lockstep collectives --backend shm

Exit codes: 0 done, 1 a wrong result, 2 bad flags, 4 environment, 5 peers lost, 128+n signal n.)";

std::int64_t unit_of(std::string suffix) {
  if (suffix.ends_with("iB")) suffix.resize(1);
  static const std::vector<std::pair<std::string, int>> kUnits{
      {"", 0}, {"K", 10}, {"M", 20}, {"G", 30}};
  for (const auto& [name, shift] : kUnits) {
    if (suffix == name) return std::int64_t{1} << shift;
  }
  return 0;
}

Flag<CollectivesCommand> size_flag(
    const char* name, const char* help, std::int64_t bench::Sweep::*member, const char* usual) {
  const auto read = [member](CollectivesCommand& command, const FlagSpec& flag,
                        const std::string& text) {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::int64_t number = parse_number<std::int64_t>(text.substr(0, digits)).value_or(0);
    const std::int64_t unit = unit_of(text.substr(digits));
    check(unit > 0 && number > 0 && number <= kMost / unit, "collectives: ", flag.name,
        " must be a number of bytes such as 4096, 4K or 1M: ", text);
    command.sweep.*member = number * unit;
  };
  return flag_by<CollectivesCommand>(name, "SIZE", help, read).usually(usual);
}

void read_collectives(CollectivesCommand& command, const FlagSpec& flag, const std::string& text) {
  command.sweep.collectives.clear();
  for (const std::string& word : split(text, ',')) {
    if (flag.word(word) == "all") {
      command.sweep.collectives.clear();
      for (const auto& each : names_of(bench::Collective{}))
        command.sweep.collectives.push_back(each.value);
    } else {
      command.sweep.collectives.push_back(*bench::find_collective(word));
    }
  }
}

std::vector<std::string> collective_words() {
  std::vector<std::string> words = all_names<bench::Collective>();
  words.emplace_back("all");
  return words;
}

std::vector<std::string> backend_words() {
  std::vector<std::string> words = backend_names();
  std::erase(words, "auto");
  words.emplace_back("threads");
  return words;
}

FlagGroup<CollectivesCommand> collectives_options() {
  using C = CollectivesCommand;
  using S = bench::Sweep;
  return {"Options",
      {flag_by<C>(
           "--op", "LIST", "one or more, separated by commas [all_reduce]:\n{}", read_collectives)
              .one_of(collective_words())
              .usually(""),
          flag("--backend", "LIST", "shm and gloo; or one alone: hierarchical, threads", &C::sweep,
              &S::backends)
              .one_of(backend_words()),
          flag_by<C>("--memory", "KIND",
              "memory of the tensors: group, as DDP's buckets have, or ordinary,\nwhich shm copies "
              "through its own",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.sweep.group_memory = flag.word(text) == "group";
              })
              .one_of({"group", "ordinary"})
              .usually("group"),
          size_flag("--min-bytes", "smallest message: 4096, 4K, 1M", &S::min_bytes, "1K"),
          size_flag("--max-bytes", "largest message", &S::max_bytes, "64M"),
          flag("--factor", "N", "ratio of one size to the next smaller one", &C::sweep, &S::factor),
          flag("--warmup", "N", "repeats not counted", &C::sweep, &S::warmup),
          flag("--iterations", "N", "repeats counted", &C::sweep, &S::iterations),
          flag_off(
              "--no-check", "do not compare results with the exact ones", &C::sweep, &S::check),
          flag_on("--oversubscribe", "start more than 8 ranks on each core", &C::oversubscribe),
          flag_by<C>(
              "--nproc-per-node", "N", "ranks to start",
              [](C& command, const FlagSpec&, const std::string& text) {
                command.ranks = launch::worker_count(text);
              },
              [](const C& command) { return written_value(command.ranks); }),
          flag_off("--no-pin", "let each rank use all cores", &C::pin),
          flag(
              "--output", "DIR", "folder for collectives.jsonl, a line for each result", &C::output)
              .usually("none"),
          flag_on("--json", "end stdout with all results as one JSON object", &C::json)}};
}

const FlagTable<CollectivesCommand>& collectives_table() {
  static const FlagTable<CollectivesCommand> kTable({.verb = "collectives",
                                                        .usage = "lockstep collectives [flags]",
                                                        .description = kCollectivesDescription,
                                                        .footer = kCollectivesExamples},
      {collectives_options()});
  return kTable;
}

}  // namespace

std::string collectives_help() { return collectives_table().help(); }

std::optional<CollectivesCommand> parse_collectives(const std::vector<std::string>& arguments) {
  const GivenFlags given = collectives_table().parse(arguments);
  if (given.asks_help) return std::nullopt;
  CollectivesCommand command;
  collectives_table().read(command, given);
  command.starts_ranks =
      given.has("--nproc-per-node") || given.has("--no-pin") || given.has("--oversubscribe");
  return command;
}

}  // namespace lockstep::cli
