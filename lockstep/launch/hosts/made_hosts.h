#pragma once

#include <cstdint>
#include <signal.h>
#include <string>
#include <vector>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// The hosts that are joined, and their links.
struct NetworkOptions {
  int hosts = 2;
  std::int64_t rate = 0;  ///< bits per second of each host in each direction; 0: no limit
};

/// A network of hosts within this machine: a network namespace for each, joined by pairs of virtual
/// interfaces and a bridge that has its own namespace.
///
/// Nothing of it has a name outside: all of it goes with the last process that is in it, however
/// that ends, and no address can clash with one of the machine.
class HostNetwork {
 public:
  /// Makes it; the calling thread is then where it was. Throws std::system_error that names the
  /// step, when rights, programs or parts of the kernel are missing.
  explicit HostNetwork(const NetworkOptions& options);

  /// Returns the IPv4 address of a host, by which the others reach it.
  static std::string address(int host);

  /// The interface that each host has apart from its loopback.
  static constexpr const char* kInterface = "eth0";

  static constexpr int kMostHosts = 250;

  /// Puts the calling thread, and what it starts, into a host's network until its end.
  class Visit {
   public:
    Visit(const HostNetwork& network, int host);
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();

   private:
    friend HostNetwork;
    explicit Visit(int home) : home_(home) {}

    int home_;
  };

 private:
  void add_host(int host, std::int64_t rate);

  FileDescriptor home_;
  FileDescriptor bridge_;
  std::vector<FileDescriptor> hosts_;
};

/// Returns how many bytes may pass at once at a rate: what two milliseconds carry, at least 16 KiB.
std::int64_t burst_bytes(std::int64_t bits_per_second);

/// Finds a program of the system in PATH or where administrators' programs lie; empty if it is not
/// there.
std::string find_tool(const std::string& name);

/// Runs a program of the system, `ip` or `tc`, and waits for its end. Throws std::system_error with
/// the command and its message when it fails or is not there.
void run_tool(const std::vector<std::string>& command);

/// Gives what this process starts next its own processes, mounts and host name. Throws
/// std::system_error.
void keep_apart();

/// The signal by which a host dies, with all of its processes at once.
inline constexpr int kPowerFailure = SIGPWR;

/// Runs a command as what a host of that name does: process 1 of its own processes, with its own
/// /proc, and returns its exit code (128+n for a signal n).
///
/// All that the command started has ended then. Its processes also end when the calling process
/// does, however that happens. Signals to the caller's process group are passed on. Call it in a
/// process that has nothing else to do. Throws std::system_error, and InvalidArgument for a program
/// that is not there.
int run_as_host(const std::string& name, const std::vector<std::string>& command);

/// Returns a line that says why several hosts cannot be made within this machine, and what to do;
/// empty when they can. It tries once, in a separate process.
const std::string& hosts_missing();

}  // namespace lockstep::launch
