// Measures collectives as one rank, or with all ranks as threads; `lockstep collectives` starts as
// many of them as asked.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "bench/cli/collectives_flags.h"
#include "bench/collectives/measure.h"
#include "bench/collectives/sweep.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/process.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// Writes each result as soon as it is there, then shows them all.
class Results {
 public:
  explicit Results(const CollectivesCommand& command) : command_(command) {
    if (command.output.empty()) return;
    const fs::path path = fs::path(command.output) / bench::kSweepFile;
    check(!fs::exists(path), "collectives: --output holds results already: ", path.string(),
        "; name another folder");
    fs::create_directories(command.output);
    file_.exceptions(std::ios::failbit | std::ios::badbit);
    file_.open(path, std::ios::binary);
  }

  void add(const bench::SweepLine& line) {
    if (file_.is_open()) file_ << to_json(line) << '\n' << std::flush;
    lines_.push_back(line);
  }

  void show() const {
    std::cout << sweep_table(lines_);
    if (!command_.output.empty()) {
      std::cout << "The results are in " << command_.output << '/' << bench::kSweepFile << '\n';
    }
    if (command_.json) {
      nlohmann::ordered_json object = {{"v", 1}, {"results", nlohmann::ordered_json::array()}};
      for (const auto& line : lines_) {
        object["results"].push_back(nlohmann::ordered_json::parse(to_json(line)));
      }
      std::cout << object.dump() << '\n';
    }
    std::cout.flush();
  }

 private:
  const CollectivesCommand& command_;
  std::ofstream file_;
  std::vector<bench::SweepLine> lines_;
};

void measure_as(
    const CollectivesCommand& command, const std::vector<ProcessGroup>& groups, Results* results) {
  check_sweep(command.sweep, groups.front().size());
  measure(command.sweep, groups, [&](const bench::SweepLine& line) {
    if (results != nullptr) results->add(line);
  });
  if (results != nullptr) results->show();
}

void measure_threads(const CollectivesCommand& command) {
  check_sweep(command.sweep, command.ranks);
  Results results(command);
  run_ranks(command.ranks, [&](const ProcessGroup& world) {
    measure_as(command, {world}, world.rank() == 0 ? &results : nullptr);
  });
}

std::vector<ProcessGroup> form_groups(const bench::Sweep& sweep) {
  std::vector<ProcessGroup> groups;
  for (const std::string& backend : sweep.backends) {
    groups.push_back(init_process_group({.backend = backend}));
    // Before the next group opens a store in its place, this one's must be closed everywhere.
    groups.back().barrier().wait();
  }
  return groups;
}

// Says what failed and ends here, with the groups still open: were they closed first, the other
// ranks could end sooner than this one, and the launcher would take their loss of a peer for the
// cause.
[[noreturn]] void leave(const std::exception& error) {
  report_error("lockstep", error);
  ::_exit(static_cast<int>(exit_code_of(error)));
}

void measure_processes(const CollectivesCommand& command) {
  const bool first = environment_count("RANK").value_or(0) == 0;
  std::optional<Results> results;
  if (first) results.emplace(command);
  const auto groups = form_groups(command.sweep);
  try {
    measure_as(command, groups, first ? &*results : nullptr);
  } catch (const std::exception& error) {
    leave(error);
  }
}

int body(int count, char** values) {
  const auto command = parse_collectives({values + 1, values + count});
  if (!command) {
    std::cout << collectives_help();
  } else if (command->ranks_are_threads()) {
    check(environment_count("WORLD_SIZE", 1).value_or(1) == 1,
        "collectives: --backend threads measures within one process, and a launcher started "
        "several; give --nproc-per-node without a launcher");
    measure_threads(*command);
  } else {
    measure_processes(*command);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace
}  // namespace lockstep::cli

int main(int count, char** values) {
  return lockstep::run_program("lockstep", lockstep::cli::body, count, values);
}
