#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep {

/// A small key-value store through which ranks find one another before they have a process group.
using Store = c10::intrusive_ptr<c10d::Store>;

/// Makes a store for the threads of this process.
Store memory_store();

/// Opens a store in a file that all ranks can lock; the last of `users` to close it removes it.
/// Throws std::system_error that names the path if it cannot be made or written.
Store file_store(const std::string& path, int users);

/// The options to reach, or to serve, a store over TCP.
struct TcpStoreOptions {
  std::string host;
  int port = 0;        ///< a server with port 0 takes a free one
  bool serve = false;  ///< whether this process serves; it listens on `host` only
  /// Others reach it by `host`, so that here this name must not stand for the loopback, as Debian's
  /// /etc/hosts has it.
  bool for_other_hosts = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Opens a store over TCP. Throws std::system_error if the port is taken, CommError if nobody
/// answers in time.
Store tcp_store(const TcpStoreOptions& options);

/// The store that a rank's launcher, or that of another node, serves it.
struct LauncherStoreOptions {
  std::string place;            ///< HOST:PORT
  std::string key;              ///< of the generation, 64 hexadecimal letters
  std::int64_t generation = 0;  ///< of the world
  std::string run;              ///< its id
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Finds it in the variables that `lockstep run` sets where nodes find each other; nothing
/// elsewhere.
std::optional<LauncherStoreOptions> launcher_store_from_environment();

/// Opens it; both ends show that they know the key. Throws InvalidArgument for another key,
/// CommError for a generation that is over, and when the server does not answer in time.
Store launcher_store(const LauncherStoreOptions& options);

/// Returns the port that a store from tcp_store() uses.
int port_of(const Store& store);

/// Ends the exchange_texts() of all who have not met yet: they throw InvalidArgument with this
/// text, as this does.
[[noreturn]] void refuse(const Store& store, const std::string& text);

/// Waits until `size` processes have refused or read why, and no other has for half a second: the
/// store's server must not leave before the others have, of whom there may be more than it knows.
/// Three seconds at most.
void await_readers_of_refusal(const Store& store, int size);

/// Waits for a text that another writes. Throws TimeoutError that names it, and as refuse() says.
std::string await_text(const Store& store, const std::string& key, const std::string& whose,
    std::chrono::milliseconds timeout);

/// Shares a short text with all ranks and returns those of all, in rank order. A `topic` serves
/// once. Throws TimeoutError that names the ranks that did not come.
std::vector<std::string> exchange_texts(const Store& store, const std::string& topic, int rank,
    int size, const std::string& text, std::chrono::milliseconds timeout);

/// A rank that joins a world at a store, as the others see it.
struct Member {
  int rank = 0;
  int size = 1;
  std::string run = {};      ///< the same for all of a run, and another for another run
  std::string process = {};  ///< other for each process; messages show the first line
  std::string place = {};    ///< where they meet, for messages
};

/// Describes this process, for Member::process.
std::string this_process();

/// Makes sure that all who come to a store are of one world: of one run and size, each rank once.
/// Rank 0 decides what world that is.
///
/// Throws InvalidArgument that says what differs; then exchange_texts() throws the same on the
/// other ranks, unless the stranger is of another run. Throws TimeoutError when rank 0 does not
/// come.
void check_one_world(const Store& store, const Member& member, std::chrono::milliseconds timeout);

/// Where the ranks of a world meet.
struct InitMethod {
  enum class Kind {
    kEnvironment,  ///< at MASTER_ADDR and MASTER_PORT
    kTcp,
    kFile
  };

  Kind kind = Kind::kEnvironment;
  std::string host = {};  ///< of kTcp; rank 0 listens there
  int port = 0;           ///< of kTcp
  std::string path = {};  ///< of kFile, absolute
};

/// Reads `env://` (or nothing), `tcp://HOST:PORT` or `file:///PATH`; an IPv6 address stands in
/// brackets. Throws InvalidArgument that says what is wrong.
InitMethod parse_init_method(const std::string& url);

}  // namespace lockstep
