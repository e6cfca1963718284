#include "group_factory.h"

#include <exception>
#include <gtest/gtest.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/support/places.h"
#include "tests/support/shared_flag.h"
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/hierarchy/hierarchical_backend.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

constexpr std::chrono::seconds kTimeout{60};

// The hosts that a name such as `hosts_011` gives its first ranks.
std::vector<std::string> hosts_in(const std::string& backend, int size) {
  std::vector<std::string> hosts;
  const auto first = backend.find('_') + 1;
  for (const char host : backend.substr(first, static_cast<std::size_t>(size)))
    hosts.emplace_back(1, host);
  return hosts;
}

ProcessGroup make_group(const std::string& backend, int rank, int size, const Store& store) {
  const GlooOptions over_loopback{.hostname = "127.0.0.1", .timeout = kTimeout};
  if (backend == "gloo") return ProcessGroup(make_gloo_backend(store, rank, size, over_loopback));
  if (backend.starts_with("hosts_"))
    return ProcessGroup(
        make_hierarchical_backend(store, rank, hosts_in(backend, size), over_loopback));
  return ProcessGroup(ShmBackend::create(store, "test", rank, size, kTimeout));
}

void run_child(const std::function<ProcessGroup()>& make,
    const std::function<void(ProcessGroup)>& body, SharedText& failure) {
  try {
    ProcessGroup group = make();
    // Gloo connects pair by pair: who left at once would be missed by a rank that still connects.
    group.barrier().wait();
    body(std::move(group));
    if (::testing::Test::HasFailure()) failure.write("an expectation failed, see above");
  } catch (const std::exception& error) {
    failure.write(error.what());
  }
}

// fork() copies only the calling thread: LibTorch's thread pools must not have been started in the
// parent.
void run_processes(
    const std::string& backend, int size, const std::function<void(ProcessGroup)>& body) {
  char path[] = "/tmp/lockstep-store-XXXXXX";
  const int file = ::mkstemp(path);
  ::close(file);
  std::vector<SharedText> failures(static_cast<std::size_t>(size));
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      run_child([&] { return make_group(backend, rank, size, file_store(path, size)); }, body,
          failures[static_cast<std::size_t>(rank)]);
      ::_exit(0);
    }
    children.push_back(child);
  }
  std::string first;
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    const auto index = static_cast<std::size_t>(rank);
    ::waitpid(children[index], &status, 0);
    std::string text = failures[index].text();
    if (WIFSIGNALED(status)) text = concat("signal ", WTERMSIG(status));
    if (first.empty() && !text.empty()) first = concat("rank ", rank, ": ", text);
  }
  ::unlink(path);
  if (!first.empty()) throw std::runtime_error(first);
}

std::string backend_of_ranks() { return environment("LOCKSTEP_TEST_BACKEND").value_or("threads"); }

// As a thread of run_ranks(): what the body throws reaches the other ranks.
void run_thread(const std::function<ProcessGroup()>& make,
    const std::function<void(ProcessGroup)>& body, std::exception_ptr& failure) {
  try {
    const ProcessGroup group = make();
    try {
      body(group);
    } catch (const std::exception& error) {
      failure = std::current_exception();
      group.abort(concat("rank ", group.rank(), " failed: ", error.what()));
    }
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
}

// The failure that the others only heard of is not the one to report.
void rethrow_first(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr heard;
  for (const auto& failure : failures) {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const CommError&) {
      heard = heard ? heard : failure;
    }
  }
  if (heard) std::rethrow_exception(heard);
}

void run_threads(
    const std::string& backend, int size, const std::function<void(ProcessGroup)>& body) {
  const Store store = memory_store();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        run_thread([&] { return make_group(backend, rank, size, store); }, body,
            failures[static_cast<std::size_t>(rank)]);
      });
    }
  }
  rethrow_first(failures);
}

void finish_devices() {
  const c10::impl::VirtualGuardImpl devices(device_type());
  for (int index = 0; index < device_count(); ++index)
    devices.synchronizeDevice(static_cast<torch::DeviceIndex>(index));
}

std::vector<c10::Stream> new_streams() {
  const c10::impl::VirtualGuardImpl type(device_type());
  std::vector<c10::Stream> streams;
  for (int index = 0; index < device_count(); ++index)
    streams.push_back(type.getStreamFromGlobalPool(device(index)));
  return streams;
}

// Each rank on its own of the devices, with streams of its own on all: where one waits for a
// collective, others still get what was made there before.
void run_devices(int size, const std::function<void(ProcessGroup)>& body) {
  finish_devices();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  const auto run = [&](const ProcessGroup& world) {
    const torch::Device own = device(world.rank());
    const c10::DeviceGuard guard(own);
    const c10::MultiStreamGuard streams(new_streams());
    const ProcessGroup group = world.with_device(own);
    try {
      body(group);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(group.rank())] = std::current_exception();
      group.abort(concat("rank ", group.rank(), " failed: ", error.what()));
      throw;
    }
  };
  try {
    lockstep::run_ranks(size, run);
  } catch (...) {
    rethrow_first(failures);
    throw;
  }
  finish_devices();
}

}  // namespace

std::string as_heard(const std::string& reason) {
  return backend_of_ranks() == "gloo" ? "another rank has ended or given up" : reason;
}

std::vector<std::string> backends_to_test() { return {"threads", "shm", "gloo"}; }

void run_ranks(int size, const std::function<void(ProcessGroup)>& body) {
  if (environment("LOCKSTEP_TEST_DEVICE")) return run_devices(size, body);
  const std::string backend = backend_of_ranks();
  if (backend == "threads" || size <= 1) return lockstep::run_ranks(size, body);
  run_threads(backend, size, body);
}

void run_group(
    const std::string& backend, int size, const std::function<void(ProcessGroup)>& body) {
  if (size == 1) return body(ProcessGroup());
  if (backend == "threads") return testing::run_ranks(size, body);
  run_processes(backend, size, body);
}

}  // namespace lockstep::testing
