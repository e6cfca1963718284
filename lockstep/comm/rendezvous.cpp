#include "lockstep/comm/rendezvous.h"

#include <algorithm>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/shm_backend.h"
#include "lockstep/comm/store.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct World {
  int rank = 0;
  int size = 1;
  std::string host;
  int port = 0;
  bool store_is_served = false;  ///< by the launcher, as torchrun does
  std::string generation;        ///< tells restarts of one job apart
};

int required_number(const char* name) {
  const auto number = environment_number(name);
  check(
      number.has_value(),
      "init_process_group: RANK is set but ",
      name,
      " is not; start the program by a launcher");
  return static_cast<int>(*number);
}

World world_from_environment() {
  World world;
  world.rank = required_number("RANK");
  world.size = required_number("WORLD_SIZE");
  check(
      0 <= world.rank && world.rank < world.size,
      "init_process_group: RANK must be below WORLD_SIZE: ",
      world.rank,
      " of ",
      world.size);
  if (world.size == 1) return world;
  const auto host = environment("MASTER_ADDR");
  check(
      host.has_value(),
      "init_process_group: RANK is set but MASTER_ADDR is not; start the program by a launcher");
  world.host = *host;
  world.port = required_number("MASTER_PORT");
  check(
      0 < world.port && world.port < 65536,
      "init_process_group: MASTER_PORT is no port: ",
      world.port);
  world.store_is_served = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  world.generation = environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return world;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Is equal for two processes exactly if they can share memory through /proc: one boot, one pid
/// namespace, one user.
std::string host_identity() {
  struct stat pid_namespace {};
  ::stat("/proc/self/ns/pid", &pid_namespace);
  return concat(
      first_line("/proc/sys/kernel/random/boot_id"), " ", pid_namespace.st_ino, " ", ::getuid());
}

bool is_one_host(const Store& store, const World& world, std::chrono::milliseconds timeout) {
  const auto hosts =
      exchange_texts(store, "hosts", world.rank, world.size, host_identity(), timeout);
  return std::all_of(
      hosts.begin(), hosts.end(), [&](const std::string& host) { return host == hosts.front(); });
}

Store store_of(const World& world, std::chrono::milliseconds timeout) {
  const Store store = tcp_store(
      {.host = world.host,
       .port = world.port,
       .serve = world.rank == 0 && !world.store_is_served,
       .timeout = timeout});
  return c10::make_intrusive<c10d::PrefixStore>("lockstep-" + world.generation, store);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::shared_ptr<Backend> make_backend(
    const std::string& name, const Store& store, const World& world, const InitOptions& options) {
  if (name == "gloo") {
    const GlooOptions gloo{
        .hostname = is_loopback(world.host) ? world.host : std::string(),
        .timeout = options.timeout};
    return make_gloo_backend(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store), world.rank, world.size, gloo);
  }
  return ShmBackend::create(
      world.rank, world.size, options.timeout, [&, round = 0](const std::string& text) mutable {
        return exchange_texts(
            store, concat("shm-", ++round), world.rank, world.size, text, options.timeout);
      });
}

}  // namespace

ProcessGroup init_process_group(const InitOptions& options) {
  const std::string& wanted = options.backend;
  check(
      wanted == "auto" || wanted == "shm" || wanted == "gloo",
      "init_process_group: the backend must be auto, shm or gloo: ",
      wanted);
  if (!environment("RANK")) return ProcessGroup();
  const World world = world_from_environment();
  if (world.size == 1) return ProcessGroup();
  const Store store = store_of(world, options.timeout);
  const bool one_host = is_one_host(store, world, options.timeout);
  check(
      one_host || wanted != "shm",
      "init_process_group: the ranks are not all on one host (or not of one user), so they cannot "
      "share memory; "
      "use the backend gloo or auto");
  const std::string name = wanted == "auto" ? (one_host ? "shm" : "gloo") : wanted;
  auto backend = make_backend(name, store, world, options);
  // Rank 0 serves the store: it must not go before the others have read what they need.
  backend->barrier().wait();
  return ProcessGroup(std::move(backend));
}

}  // namespace lockstep
