#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <signal.h>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/output/worker_output.h"

namespace lockstep::launch {

/// The way in which the nodes of a world find each other, and how many there may be.
struct RendezvousOptions {
  std::string host;  ///< of the node that serves
  int port = 0;
  int least_nodes = 1, most_nodes = 1;
  std::string secret_file;          ///< empty: LOCKSTEP_SECRET, or none
  bool insecure = false;            ///< no secret, whoever reaches the port
  std::string local_address;        ///< of this node; empty: that of the way to the server
  std::optional<bool> serves = {};  ///< nothing: who can listen at the address does
  std::chrono::milliseconds join_timeout{600'000};  ///< for the least number of nodes to come
  std::chrono::milliseconds last_call{30'000};      ///< then, at the start, for more
  std::chrono::milliseconds beat{200};              ///< how often nodes tell that they live
  std::chrono::milliseconds dead_after{5'000};      ///< of silence
  /// Names and values of what must be equal on all nodes, beside the program and the restarts.
  std::vector<std::pair<std::string, std::string>> same = {};
  /// Returns the id of the run in this node's output folder; empty if there is none. A node that
  /// has another one than those that train is refused.
  std::function<std::string()> run_here = [] { return std::string(); };
};

/// How long a rank may make no progress, unless the user says otherwise.
inline constexpr std::chrono::milliseconds kUsualHangTimeout{120'000};

/// Declares the flag for it, of all verbs that start ranks.
template <typename Options>
Flag<Options> hang_timeout_flag(typename Flag<Options>::Read read = nullptr) {
  return flag_by<Options>("--hang-timeout", "TIME",
      "a rank without progress for so long has failed; 0: never", std::move(read))
      .usually("2m");
}

/// Understands its value: a time span, or 0. Throws InvalidArgument.
std::chrono::milliseconds hang_timeout_of(const std::string& text);

/// The place of a node's ranks in a world whose nodes may have different numbers of them, and how
/// they reach the store of its rendezvous.
struct RankSpan {
  int first_rank = 0;
  int world_size = 1;
  std::string store;      ///< HOST:PORT
  std::string store_key;  ///< of this generation, in hexadecimal letters
  std::int64_t generation = 0;
  std::string node_address;  ///< of this node on the way to the others
};

/// The program to run, the number of ranks, and the options of their start and end.
struct LaunchOptions {
  std::string program;  ///< a path, or a name for PATH
  std::vector<std::string> arguments;
  int workers = 1;  ///< on this node
  int nodes = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  int master_port = 0;  ///< 0: any free port, on one node only
  std::string run_id = "none";
  std::string role = "default";
  bool oversubscribe = false;  ///< check_crowd() is left out
  bool pin = true;  ///< each worker to its share of the cores, if there is one core for each
  std::chrono::milliseconds grace_period{30000};       ///< between a passed-on signal and SIGKILL
  std::chrono::milliseconds grace_after_failure{500};  ///< for the others; 0: SIGKILL at once
  std::chrono::milliseconds hang_timeout = kUsualHangTimeout;  ///< 0: no rank is watched
  int max_restarts = 0;                                        ///< of the whole group
  bool spares = false;        ///< a process for each rank waits to take its place after a failure
  int earlier_restarts = 0;   ///< of the run, before this launcher was started
  std::int64_t death_ns = 0;  ///< when it failed before that, on the monotonic clock; 0: it did not
  bool lockstep_codes = false;  ///< the program's exit codes mean what ExitCode says
  std::vector<int> signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  std::vector<int> held_signals = {};  ///< blocked in each rank until its program lets them in
  OutputOptions output;
  bool verbose = false;
  bool quiet = false;
  std::optional<RendezvousOptions> rendezvous = {};  ///< nothing: every node knows its number
  std::optional<RankSpan> span = {};  ///< nothing: all nodes have as many ranks as this one

  int first_rank() const { return span ? span->first_rank : node_rank * workers; }
  /// Says whether the folder for logs may hold others: of an earlier run, of other nodes.
  bool continues_logs() const { return output.append || nodes > 1 || rendezvous; }

  int world_size() const { return span ? span->world_size : nodes * workers; }
};

/// A host's hardware for ranks to compute on.
struct Processors {
  int gpus = 0;
  int cores = 1;
};

/// Counts what this process may use.
Processors processors();

/// Understands `--nproc-per-node`: a number, `cpu`, `gpu`, or `auto` (GPUs, else cores). Throws
/// InvalidArgument.
int worker_count(const std::string& text, const Processors& host = processors());

/// Throws InvalidArgument, which names --oversubscribe, for more than 8 workers a core: most likely
/// a slip, and the machine would stand still.
void check_crowd(int workers, int cores);

/// Counts the NVIDIA devices that a program started here would see.
int gpu_count();

/// Throws InvalidArgument that names the flag for options that cannot work.
void check_options(const LaunchOptions& options);

/// Runs a program once per rank on this node, waits for all, and returns the run's exit code.
///
/// The first rank that fails decides: the others are ended within a second, and the group is
/// started again where the options allow it and it may help (next_attempt()); otherwise that rank's
/// code is returned (128+n for a signal n). A signal from outside is passed on; ranks that have not
/// ended after the grace period, or at a second signal, are killed. Nothing that they started is
/// left behind.
///
/// Call it from the main thread of a process that has no other children. Throws InvalidArgument and
/// std::system_error for what is wrong before the first rank has started.
int launch(const LaunchOptions& options);

/// Does what launch() does, for a node of a world that meets by LaunchOptions::rendezvous: all
/// nodes start their ranks together, again after a failure anywhere, and with other nodes when some
/// have gone or come.
///
/// Returns the run's exit code, the same on all nodes; kPeersLost where the node that serves is
/// lost or too few come; of a node that was asked to stop what its ranks say. Throws
/// InvalidArgument for a node that is refused, with what differs.
int launch_together(const LaunchOptions& options);

/// Throws InvalidArgument that names the flag for options of the rendezvous that cannot work, such
/// as no secret on a network.
void check_rendezvous(const RendezvousOptions& options);

}  // namespace lockstep::launch
