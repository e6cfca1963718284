#include "lockstep/cli/run/run_flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <sstream>

#include <CLI/CLI.hpp>
#include <stdlib.h>

#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/cli/run/run_flag_texts.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/exit_status.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualPort = 29500;  // torchrun's

int whole_number(const std::string& flag, const std::string& text) {
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check(
      error == std::errc() && stop == text.data() + text.size(), "run: ", flag,
      " must be a whole number: ", text);
  return number;
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) result.push_back(part);
  return result;
}

int node_count(const std::string& text) {
  check(
      text.find(':') == std::string::npos, "run: --nnodes: a range (", text,
      ") comes later; now give the number of hosts that take part");
  return whole_number("--nnodes", text);
}

std::vector<int> signals_of(const std::string& text) {
  std::vector<int> signals;
  for (const std::string& name : words(text)) {
    const auto signal = launch::signal_number(name);
    check(
        signal && *signal != SIGKILL && *signal != SIGSTOP && *signal != SIGCHLD,
        "run: --signals-to-handle: cannot pass on ", name);
    signals.push_back(*signal);
  }
  return signals;
}

void check_what_comes_later(const RunFlagTexts& texts) {
  check(
      texts.rendezvous_backend == "static" || texts.standalone, "run: --rdzv-backend ",
      texts.rendezvous_backend,
      " comes later; now every host is told its number: --node-rank, with --rdzv-backend static");
}

/// Fills in address and port: the flags, then the endpoint, then torchrun's port or a free one.
void place_master(const RunFlagTexts& texts, launch::LaunchOptions& options) {
  if (texts.standalone) return;
  std::string address = texts.master_address;
  int port = texts.master_port;
  if (!texts.endpoint.empty()) {
    const auto colon = texts.endpoint.rfind(':');
    if (address.empty()) address = texts.endpoint.substr(0, colon);
    if (port == 0 && colon != std::string::npos) {
      port = whole_number("--rdzv-endpoint: the port", texts.endpoint.substr(colon + 1));
    }
  }
  check(
      options.nodes == 1 || !address.empty(),
      "run: several hosts need --master-addr, the address of host 0, or --rdzv-endpoint");
  if (!address.empty()) options.master_address = address;
  options.master_port = port == 0 && options.nodes > 1 ? kUsualPort : port;
}

/// Makes a folder for logs that were asked for without saying where; as torchrun, it is named and
/// left.
std::string log_folder(const RunFlagTexts& texts) {
  const bool asked = texts.redirects != "0" || texts.tee != "0";
  if (!texts.log_dir.empty() || !asked) return texts.log_dir;
  std::string folder = std::filesystem::temp_directory_path() / "lockstep-logs-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw_errno("run: make a folder for logs", folder);
  std::cerr << "lockstep: logs go to " << folder << std::endl;
  return folder;
}

launch::OutputOptions output_of(const RunFlagTexts& texts) {
  launch::OutputOptions output;
  output.redirects = launch::StreamMask::parse("run: --redirects", texts.redirects);
  output.tee = launch::StreamMask::parse("run: --tee", texts.tee);
  output.prefix = texts.prefix;
  for (const std::string& rank : words(texts.shown_ranks)) {
    output.shown_ranks.push_back(whole_number("--local-ranks-filter", rank));
  }
  output.log_dir = texts.log_dir;
  return output;
}

/// Lets a launcher that `lockstep hosts` has started again count on from there.
void count_on(launch::LaunchOptions& options) {
  const std::int64_t earlier = environment_number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  options.earlier_restarts = static_cast<int>(std::clamp<std::int64_t>(earlier, 0, 1'000'000));
  options.death_ns = environment_number("LOCKSTEP_DEATH_NS").value_or(0);
}

launch::LaunchOptions options_of(const RunFlagTexts& texts) {
  check_what_comes_later(texts);
  launch::LaunchOptions options;
  options.workers = launch::worker_count(texts.workers);
  options.nodes = texts.standalone ? 1 : node_count(texts.nodes);
  options.node_rank = texts.standalone ? 0 : texts.node_rank;
  place_master(texts, options);
  options.run_id = texts.run_id;
  options.role = texts.role;
  options.pin = !texts.no_pin;
  options.grace_period = std::chrono::milliseconds(static_cast<long>(texts.grace_seconds * 1000));
  options.max_restarts = texts.max_restarts;
  options.signals = signals_of(texts.signals);
  count_on(options);
  options.output = output_of(texts);
  options.verbose = texts.verbose;
  options.quiet = texts.quiet;
  return options;
}

}  // namespace

std::string run_help() {
  CLI::App app;
  RunFlagTexts texts;
  add_run_flags(app, texts);
  return app.help();
}

std::optional<launch::LaunchOptions> parse_run(const std::vector<std::string>& arguments) {
  CLI::App app;
  RunFlagTexts texts;
  add_run_flags(app, texts);
  const SplitArguments split = split_at_program(arguments, flag_names(app));
  if (!parse_flags(app, "run", split.flags)) return std::nullopt;
  check(!split.rest.empty(), "run: say which program: lockstep run --nproc-per-node 2 PROGRAM");
  launch::LaunchOptions options = options_of(texts);
  options.program = split.rest.front();
  options.arguments.assign(split.rest.begin() + 1, split.rest.end());
  options.output.log_dir = log_folder(texts);
  return options;
}

}  // namespace lockstep::cli
