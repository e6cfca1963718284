#include "lockstep/cli/train/auto_parallel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

// Where `--parallel auto` or `--parallel=auto` begins, and how many words it has.
struct Found {
  std::ptrdiff_t at;
  std::ptrdiff_t words;
};

std::optional<Found> find_auto(const Words& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--parallel=auto") return Found{static_cast<std::ptrdiff_t>(i), 1};
    if (arguments[i] == "--parallel" && i + 1 < arguments.size() && arguments[i + 1] == "auto")
      return Found{static_cast<std::ptrdiff_t>(i), 2};
  }
  return std::nullopt;
}

constexpr std::array kOfTheWay{
    "--stages", "--stages-per-place", "--schedule", "--chunks", "--balance"};
constexpr std::array kOfThePlaces{"--places", "--nproc-per-node"};

bool is_among(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string text_in(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Ranks that were threads are places of one process.
int processes_of(const std::string& run) {
  const auto facts = nlohmann::json::parse(text_in(run + "/env.json"), nullptr, false);
  if (!facts.is_object() || facts.value("backend", "") == "threads") return 1;
  return facts.value("world_size", 1);
}

/// The way of spreading that a run took at its last start.
struct Taken {
  TrainOptions options = {};
  int processes = 1;
  Layout layout = {};

  int places() const { return std::max(processes, layout.replicas * layout.workers); }
};

Taken way_of(const std::string& run) {
  const std::string file = run + "/config.toml";
  check(std::filesystem::exists(file), "train: --parallel auto goes on with the way that ", run,
      " has taken, and there is no config.toml to read it from; name the way");
  Taken taken{.options = recorded_options(text_in(file), file), .processes = processes_of(run)};
  taken.layout = plan_layout(taken.options, taken.processes);
  return taken;
}

Words words_for(const Taken& taken) {
  Words words{"--batch-size", concat(taken.options.batch_size)};
  const TrainOptions usual;
  for (const auto& flag : train_flags().flags()) {
    const std::string& name = flag.spec.name;
    const bool counts = name == "--parallel" || name == "--places" || is_among(kOfTheWay, name);
    if (counts && flag.write(taken.options) != flag.write(usual))
      words.insert(words.end(), {name, text_of(flag.write(taken.options))});
  }
  if (taken.processes > 1) words.insert(words.end(), {"--nproc-per-node", concat(taken.processes)});
  return words;
}

// With `auto`, the batch is that of all replicas together, and the places are the most to be used.
void check_fits(
    const GivenFlags& given, std::int64_t batch, const Taken& taken, const std::string& run) {
  const auto replicas = static_cast<double>(taken.layout.replicas);
  check(std::llround(static_cast<double>(batch) / replicas) == taken.options.batch_size,
      "train: --parallel auto: ", run, " takes ", taken.options.batch_size * taken.layout.replicas,
      " samples in a batch of all replicas together, and --batch-size is ", batch,
      "; give the same, or another --output");
  for (const char* const flag : kOfThePlaces) {
    const auto most = parse_number<int>(given.find(flag).value_or(""));
    check(!most || *most >= taken.places(), "train: --parallel auto: ", run, " is spread over ",
        taken.places(), " places, and ", flag, " allows ", most.value_or(0),
        "; to go on in another way, name it");
  }
}

Words as_before(const GivenFlags& given, const TrainOptions& options) {
  const Taken taken = way_of(options.output);
  check_fits(given, options.batch_size, taken, options.output);
  Words words;
  for (const GivenFlag& flag : given.flags) {
    const std::string& name = flag.spec->name;
    if (name != "--batch-size" && !is_among(kOfThePlaces, name))
      words.insert(words.end(), flag.words.begin(), flag.words.end());
  }
  const Words way = words_for(taken);
  std::cerr << "lockstep: " << options.output << " goes on as it began: " << joined(way, " ")
            << std::endl;
  words.insert(words.end(), way.begin(), way.end());
  return words;
}

}  // namespace

void check_way_is_open(const GivenFlags& given) {
  for (const char* const flag : kOfTheWay)
    check(!given.has(flag), "train: ", flag,
        " is among what --parallel auto chooses; leave it out, or name the way");
  check(given.find("--lr-scale").value_or("none") == "none",
      "train: --lr-scale lets the learning rate follow the number of replicas, and with --parallel "
      "auto measured times would decide it; leave it out, or name the way");
}

Words resolve_auto_parallel(const Words& arguments) {
  const auto found = find_auto(arguments);
  if (!found) return arguments;
  check(!environment("RANK"),
      "train: --parallel auto chooses how many ranks to start, and these are started already: "
      "start without a launcher, or set --parallel");
  Words rest = arguments;
  rest.erase(rest.begin() + found->at, rest.begin() + found->at + found->words);
  const auto asks_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(rest.begin(), rest.end(), asks_help)) return rest;
  const GivenFlags given = train_flags().parse(rest);
  check_way_is_open(given);
  TrainOptions options;
  train_flags().read(options, given);
  if (!options.output.empty() && holds_run(options.output)) {
    if (continues(options.output, options.resume)) return as_before(given, options);
    if (!options.resume.overwrite) return rest;  // which will be refused
  }
  Words plan{"plan", "--train", "--"};
  plan.insert(plan.end(), rest.begin(), rest.end());
  become("train", sibling_program("train", "lockstep-bench"), plan);
}

}  // namespace lockstep::cli
