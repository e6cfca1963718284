#include "lockstep/comm/rendezvous.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/cluster/place.h"
#include "lockstep/comm/ask_store.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/hierarchy/hierarchical_backend.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/store.h"
#include "lockstep/core/backend_names.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/liveness/spare.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {
namespace {

struct World {
  int rank = 0;
  int size = 1;
  InitMethod meeting;
  bool store_is_served = false;                         ///< by the launcher, as torchrun does
  std::optional<LauncherStoreOptions> launchers_store;  ///< of several nodes
  bool spans_hosts = false;                             ///< or may do so
  std::string generation;                               ///< differs between restarts of one job
  std::string job;  ///< in which a cluster has started the ranks; or empty
};

int number_of(const std::optional<int>& given, const char* variable, const char* option) {
  if (given) return *given;
  const auto number = environment_count(variable);
  check(number.has_value(), "init_process_group: ", variable,
      " is not set; start the program by a launcher, or give InitOptions::", option);
  return *number;
}

InitMethod master_from_environment() {
  const auto host = environment("MASTER_ADDR");
  check(host.has_value(),
      "init_process_group: MASTER_ADDR is not set; start the program by a launcher, or give "
      "InitOptions::init_method");
  const int port = number_of({}, "MASTER_PORT", "init_method");
  check(0 < port && port < 65536, "init_process_group: MASTER_PORT is not a port: ", port);
  return {.host = *host, .port = port};
}

// srun or mpirun has started it as a rank, and no launcher is between.
World world_of(const cluster::Place& place) {
  World world{.rank = place.rank, .size = place.size};
  world.meeting = {.host = place.master_address, .port = place.master_port};
  world.spans_hosts = place.local_size < place.size;
  world.generation = environment("TORCHELASTIC_RESTART_COUNT").value_or(concat(place.restarts));
  world.job = place.job;
  return world;
}

// Of a program without a rank. Tasks that were not started are worth a word.
World alone(const cluster::Surroundings& here) {
  const int others = environment_count("WORLD_SIZE", 1).value_or(1) - 1;
  check(others == 0, "init_process_group: WORLD_SIZE implies ", others,
      " other ranks, but RANK is not set; start the program by a launcher, or unset both");
  const std::string note = cluster::tasks_left_out(here);
  if (!note.empty()) std::fprintf(stderr, "lockstep: %s\n", note.c_str());
  return {};
}

World world_of(const InitOptions& options) {
  World world;
  world.meeting = parse_init_method(options.init_method);
  const bool by_environment = world.meeting.kind == InitMethod::Kind::kEnvironment;
  if (by_environment && !options.rank) {
    const auto here = cluster::surroundings_of_this_process();
    if (const auto place = cluster::rank_place(here)) return world_of(*place);
    if (!environment("RANK")) return alone(here);
  }
  world.rank = number_of(options.rank, "RANK", "rank");
  world.size = number_of(options.world_size, "WORLD_SIZE", "world_size");
  check(0 <= world.rank && world.rank < world.size,
      "init_process_group: RANK must be below WORLD_SIZE: ", world.rank, " of ", world.size);
  if (world.size == 1) return world;
  if (by_environment) {
    world.meeting = master_from_environment();
    world.store_is_served = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
    world.launchers_store = launcher_store_from_environment();
  }
  world.spans_hosts = environment_count("LOCAL_WORLD_SIZE", 1).value_or(1) < world.size;
  world.generation = environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return world;
}

bool meets_in_file(const World& world) { return world.meeting.kind == InitMethod::Kind::kFile; }

// Ranks that wait by different backends would wait in vain.
void check_same_backend(const Store& store, const World& world, const InitOptions& options) {
  const auto asked =
      exchange_texts(store, "backend", world.rank, world.size, options.backend, options.timeout);
  const auto other =
      std::ranges::find_if(asked, [&](const auto& name) { return name != asked[0]; });
  if (other == asked.end()) return;
  refuse(store, concat("init_process_group: the ranks ask for different backends: ", asked[0],
                    " on rank 0, ", *other, " on rank ", other - asked.begin()));
}

// A file left by an earlier run still holds that run's values.
void check_is_first(const Store& store, const World& world) {
  check(store->add(concat("joined-", world.rank), 1) == 1, "init_process_group: rank ", world.rank,
      " is already in the file: an earlier run left it behind, or two processes have the same "
      "rank; remove it, or name another: ",
      world.meeting.path);
}

Store open_store(const World& world, std::chrono::milliseconds timeout) {
  if (meets_in_file(world)) return file_store(world.meeting.path, world.size);
  if (world.launchers_store) {
    LauncherStoreOptions options = *world.launchers_store;
    options.timeout = timeout;
    return launcher_store(options);
  }
  return tcp_store({.host = world.meeting.host,
      .port = world.meeting.port,
      .serve = world.rank == 0 && !world.store_is_served,
      .for_other_hosts = world.spans_hosts,
      .timeout = timeout});
}

// One launcher's ranks have its guardian's mark; several launchers of one run share the name alone.
std::string run_of(const World& world) {
  const std::string name = environment("TORCHELASTIC_RUN_ID").value_or(world.job);
  const bool one_launcher = environment("GROUP_WORLD_SIZE") == "1";
  return concat(name, " ", one_launcher ? environment("LOCKSTEP_GUARDIAN").value_or("") : "");
}

std::string place_of(const InitMethod& meeting) {
  return meeting.path.empty() ? concat(meeting.host, ":", meeting.port) : meeting.path;
}

Store store_of(const World& world, std::chrono::milliseconds timeout) {
  const Store store = c10::make_intrusive<c10d::PrefixStore>(
      "lockstep-" + world.generation, open_store(world, timeout));
  if (meets_in_file(world)) check_is_first(store, world);
  return store;
}

// Whoever waits for a rank without a network would wait in vain.
void check_interfaces(const Store& store, const World& world, const InitOptions& options) {
  const auto interface = environment(kInterfaceVariable);
  const std::string own = interface ? obstacle_of_interface(*interface) : "";
  const auto obstacles = exchange_texts(store, "interfaces", world.rank, world.size,
      own.empty() ? own : concat(kInterfaceVariable, "=", *interface, " ", own), options.timeout);
  const auto found =
      std::ranges::find_if(obstacles, [](const auto& text) { return !text.empty(); });
  if (found == obstacles.end()) return;
  refuse(store, concat("init_process_group: rank ", found - obstacles.begin(), ": ", *found));
}

bool uses_gloo(const std::vector<std::string>& hosts, const InitOptions& options) {
  return options.backend == "gloo" || hierarchy::Nodes(hosts).count() > 1;
}

/// Returns which host each rank is on.
std::vector<std::string> check_world(
    const Store& store, const World& world, const InitOptions& options) {
  const Member member{.rank = world.rank,
      .size = world.size,
      .run = run_of(world),
      .process = this_process(),
      .place = place_of(world.meeting)};
  try {
    check_one_world(store, member, options.timeout);
    check_same_backend(store, world, options);
    auto hosts =
        exchange_texts(store, "hosts", world.rank, world.size, host_identity(), options.timeout);
    if (uses_gloo(hosts, options)) check_interfaces(store, world, options);
    return hosts;
  } catch (const InvalidArgument&) {
    if (world.rank == 0) await_readers_of_refusal(store, world.size);
    throw;
  }
}

// The address by which the others reach this rank: that of the interface towards rank 0. The host's
// own name may stand for its loopback. Empty: Gloo takes the address of the host's name.
std::string gloo_hostname(const World& world, bool one_host) {
  if (meets_in_file(world)) return one_host ? "127.0.0.1" : address_outwards();
  // By the way to the node that serves: a host's name may stand for another interface, or for none.
  const auto by_way = environment("LOCKSTEP_NODE_ADDRESS");
  if (world.launchers_store && by_way) return *by_way;
  const std::string& host = world.meeting.host;
  if (names_loopback(host)) return host;
  return address_towards(world.spans_hosts ? reachable_name(host) : host);
}

std::shared_ptr<Backend> gloo_of(
    const Store& store, const World& world, bool one_host, std::chrono::milliseconds timeout) {
  const QuietLog quiet;
  return make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>("gloo", store), world.rank,
      world.size, {.hostname = gloo_hostname(world, one_host), .timeout = timeout});
}

std::shared_ptr<Backend> hierarchical_of(const Store& store, const World& world,
    const std::vector<std::string>& hosts, std::chrono::milliseconds timeout) {
  const QuietLog quiet;
  return make_hierarchical_backend(c10::make_intrusive<c10d::PrefixStore>("hierarchical", store),
      world.rank, hosts, {.hostname = gloo_hostname(world, false), .timeout = timeout});
}

// Ranks that look as if they were on one host may still be kept from sharing memory: by a filter of
// system calls, by namespaces, or because one virtual machine is a copy of the other.
std::shared_ptr<Backend> make_backend(const Store& store, const World& world,
    const std::vector<std::string>& hosts, const InitOptions& options) {
  const std::string& wanted = options.backend;
  const int nodes = hierarchy::Nodes(hosts).count();
  const bool one_host = nodes == 1;
  check(one_host || wanted != "shm",
      "init_process_group: the ranks are not all on one host (or not of one user), so they cannot "
      "share memory; use the backend hierarchical, gloo or auto");
  if (wanted == "gloo" || nodes == world.size)
    return gloo_of(store, world, one_host, options.timeout);
  try {
    if (one_host) return ShmBackend::create(store, "shm", world.rank, world.size, options.timeout);
    return hierarchical_of(store, world, hosts, options.timeout);
  } catch (const MemoryNotShared& error) {
    check(wanted == "auto", "init_process_group: ", error.what(), "; use the backend gloo or auto");
    return gloo_of(store, world, false, options.timeout);
  }
}

// Whoever waits here does so for the others, as in a collective.
std::shared_ptr<Backend> meet(const World& world, const InitOptions& options) {
  GroupRecord record(own_slot(), kWorldGroup, world.rank, world.size);
  const CallWait wait(record.begin_alone(Operation::kMeeting, 0));
  const Store store = store_of(world, options.timeout);
  const auto hosts = check_world(store, world, options);
  auto backend = make_backend(store, world, hosts, options);
  // Rank 0 serves the store and must not exit before the others have read what they need.
  backend->barrier().wait();
  return backend;
}

}  // namespace

ProcessGroup init_process_group(const InitOptions& options) {
  open_standard_streams();  // before there is a socket or a region that could take their numbers
  wait_if_spare();
  keep_host_memory();
  const auto backends = backend_names();
  check(std::ranges::find(backends, options.backend) != backends.end(),
      "init_process_group: the backend must be one of ", joined(backends), ": ", options.backend);
  const World world = world_of(options);
  note_init();
  if (world.size == 1) return ProcessGroup(std::make_shared<SingleBackend>());
  return ProcessGroup(recorded_world(meet(world, options)));
}

}  // namespace lockstep
