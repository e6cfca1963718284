#include "lockstep/cli/bench/collectives_flags.h"

#include <algorithm>
#include <charconv>

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/cli/flags/suggest.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    R"(Measures collectives of float32 numbers between ranks, over message sizes and backends.

A result is compared with the exact one before it is timed. Then repeats of all backends, and of a copy of as many
bytes within memory, take turns; a repeat is some calls in a row after a barrier, its time that of the slowest rank.
Bus bandwidth is that of nccl-tests. Inside lockstep run or torchrun the ranks are those of the launcher.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep collectives                                          all_reduce of two ranks, shm beside Gloo
  lockstep collectives --nproc-per-node 4 --op all --output sweep
  lockstep collectives --backend threads --max-bytes 1M         the ranks are threads of one process
  lockstep run --nproc-per-node 2 -- lockstep collectives --backend shm

Exit codes: 0 done, 1 a wrong result, 2 bad flags, 4 environment, 5 peers lost, 128+n signal n.)";

struct Words {
  std::vector<std::string> collectives;
  std::vector<std::string> backends;
  std::string memory = "group";
  std::string least = "1K";
  std::string most = "64M";
  std::string workers = "2";
  bool no_check = false;
  bool no_pin = false;
};

void add_what_is_measured(CLI::App& app, Words& words) {
  app.add_option("--op", words.collectives)
      ->type_name("LIST")
      ->description(
          "all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, or\n"
          "all [all_reduce]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--backend", words.backends)
      ->type_name("LIST")
      ->description("shm and gloo, or threads alone [shm,gloo]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--memory", words.memory)
      ->type_name("KIND")
      ->description(
          "of the tensors: group, as DDP's buckets have it, or ordinary, which shm\n"
          "copies through its own [group]");
  app.add_option("--min-bytes", words.least, "smallest message, as 4096, 4K, 1M [1K]")
      ->type_name("SIZE");
  app.add_option("--max-bytes", words.most, "largest message [64M]")->type_name("SIZE");
}

void add_how(CLI::App& app, CollectivesCommand& command, Words& words) {
  app.add_option("--factor", command.sweep.factor, "from one size to the next [4]")->type_name("N");
  app.add_option("--warmup", command.sweep.warmup, "repeats not counted [3]")->type_name("N");
  app.add_option("--iterations", command.sweep.iterations, "repeats counted [10]")->type_name("N");
  app.add_flag("--no-check", words.no_check, "do not compare results with the exact ones");
  app.add_option("--nproc-per-node", words.workers, "ranks to start [2]")->type_name("N");
  app.add_flag("--no-pin", words.no_pin, "leave the ranks to all cores");
  app.add_option("--output", command.output)
      ->type_name("DIR")
      ->description("folder for collectives.jsonl, a line for each result [none]");
  app.add_flag("--json", command.json, "end stdout with all results as one JSON object");
  app.set_help_flag("-h,--help", "print this");
}

void add_flags(CLI::App& app, CollectivesCommand& command, Words& words) {
  use_our_layout(app, "Usage: lockstep collectives [flags]");
  app.description(kDescription);
  app.footer(kExamples);
  add_what_is_measured(app, words);
  add_how(app, command, words);
}

std::string one_of(
    const char* flag, const std::string& word, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return word;
  std::string list;
  for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
  throw InvalidArgument(concat(
      "collectives: ", flag, " must be one of ", list, ": ", word, did_you_mean(word, known)));
}

std::int64_t unit_of(std::string suffix) {
  if (suffix.ends_with("iB")) suffix.resize(1);
  static const std::vector<std::pair<std::string, int>> kUnits{
      {"", 0}, {"K", 10}, {"M", 20}, {"G", 30}};
  for (const auto& [name, shift] : kUnits) {
    if (suffix == name) return std::int64_t{1} << shift;
  }
  return 0;
}

std::int64_t bytes_of(const char* flag, const std::string& text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::int64_t unit = unit_of({end, text.data() + text.size()});
  check(
      error == std::errc() && unit > 0 && number > 0 && number <= kMost / unit,
      "collectives: ", flag, " must be a number of bytes, as 4096, 4K, 1M: ", text);
  return number * unit;
}

std::vector<bench::Collective> collectives_of(const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const auto each : bench::kCollectives) known.emplace_back(name_of(each));
  known.emplace_back("all");
  std::vector<bench::Collective> list;
  for (const std::string& word : words) {
    if (one_of("--op", word, known) == "all") {
      list.insert(list.end(), bench::kCollectives.begin(), bench::kCollectives.end());
    } else {
      list.push_back(*bench::find_collective(word));
    }
  }
  return list;
}

void resolve(CollectivesCommand& command, const Words& words) {
  if (!words.collectives.empty()) command.sweep.collectives = collectives_of(words.collectives);
  if (!words.backends.empty()) command.sweep.backends = words.backends;
  for (const std::string& backend : command.sweep.backends) {
    one_of("--backend", backend, {"shm", "gloo", "threads"});
  }
  command.sweep.check = !words.no_check;
  command.pin = !words.no_pin;
  command.sweep.group_memory = one_of("--memory", words.memory, {"group", "ordinary"}) == "group";
  command.sweep.min_bytes = bytes_of("--min-bytes", words.least);
  command.sweep.max_bytes = bytes_of("--max-bytes", words.most);
  command.ranks = launch::worker_count(words.workers);
}

}  // namespace

std::string collectives_help() {
  CLI::App app;
  CollectivesCommand command;
  Words words;
  add_flags(app, command, words);
  return app.help();
}

std::optional<CollectivesCommand> parse_collectives(const std::vector<std::string>& arguments) {
  CLI::App app;
  CollectivesCommand command;
  Words words;
  add_flags(app, command, words);
  std::vector<std::string> flags;
  for (const std::string& argument : arguments) flags.push_back(canonical_flag(argument));
  if (!parse_flags(app, "collectives", flags)) return std::nullopt;
  resolve(command, words);
  return command;
}

}  // namespace lockstep::cli
