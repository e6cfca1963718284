#include "lockstep/comm/roll_call.h"

#include <random>
#include <unistd.h>

#include "lockstep/comm/ask_store.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

constexpr const char* kRollCall = "init_process_group: ";

/// Writes a value unless there is one, and returns what is there then.
std::string first_of(const Store& store, const std::string& key, const std::string& value) {
  return store->compareSet(key, "", value);
}

[[noreturn]] void refuse_for_all(const Store& store, const std::string& text) {
  refuse(store, text);
  throw InvalidArgument(text);
}

/// Returns what a message shows of a process.
std::string shown(const std::string& process) { return process.substr(0, process.find('\n')); }

void check_size(const Store& store, const Member& member, const std::string& size) {
  if (size == std::to_string(member.size)) return;
  refuse_for_all(store,
      concat(kRollCall, "rank ", member.rank, " (", shown(member.process), ") has a world of ",
          member.size, " ranks, rank 0 at ", member.place, " has one of ", size,
          "; start all with the same number of hosts and of ranks a host (WORLD_SIZE)"));
}

void check_alone(const Store& store, const Member& member) {
  const std::string first = first_of(store, concat("member-", member.rank), member.process);
  if (first == member.process) return;
  refuse_for_all(
      store, concat(kRollCall, "two processes are rank ", member.rank, " of the world at ",
                 member.place, ": ", shown(first), " and ", shown(member.process),
                 "; give each host a --node-rank, and each run a --master-port, of its own"));
}

// Rank 0 says which world it is.
void call_roll(const Store& store, const Member& member, std::chrono::milliseconds timeout) {
  const std::string own_run = member.run + ".";  // never empty
  const bool decides = member.rank == 0;
  const std::string run =
      decides ? first_of(store, "run", own_run) : await_text(store, "run", "rank 0", timeout);
  check(run == own_run, kRollCall, "rank ", member.rank, " (", shown(member.process),
      ") has met another run at ", member.place, "; give each run a --master-port of its own");
  const std::string size = decides ? first_of(store, "size", std::to_string(member.size))
                                   : await_text(store, "size", "rank 0", timeout);
  check_size(store, member, size);
  check_alone(store, member);
}

}  // namespace

std::string this_process() {
  static const std::string kProcess = [] {
    std::random_device random;
    // Containers may share a host's name and have processes of the same number.
    return concat("host ", host_name(), ", pid ", ::getpid(), "\n", random());
  }();
  return kProcess;
}

void check_one_world(const Store& store, const Member& member, std::chrono::milliseconds timeout) {
  ask_store("init_process_group", timeout, [=] {
    call_roll(store, member, timeout);
    return true;
  });
}

}  // namespace lockstep
