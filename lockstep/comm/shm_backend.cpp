#include "lockstep/comm/shm_backend.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include <unistd.h>

#include "lockstep/comm/host/address_space.h"
#include "lockstep/core/error.h"

namespace lockstep {

using host::Mapping;
using host::SharedRegion;

ShmBackend::ShmBackend(std::shared_ptr<SharedRegion> region, int rank, int size)
    : HostBackend(std::move(region), std::make_unique<host::SymmetricMemory>(rank, size), rank) {}

std::shared_ptr<ShmBackend> ShmBackend::create(
    int rank, int size, std::chrono::milliseconds timeout, const host::ExchangeText& exchange) {
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  return join(everyone, rank, timeout, exchange);
}

// The first member makes the region; the others open it through that process, which keeps it open
// until all have met.
std::shared_ptr<ShmBackend> ShmBackend::join(
    const std::vector<int>& members, int rank, std::chrono::milliseconds timeout,
    const host::ExchangeText& exchange) {
  const int size = static_cast<int>(members.size());
  const std::size_t bytes = SharedRegion::bytes_for(size);
  FileDescriptor file;
  if (members.front() == rank) file = host::make_memory_file(bytes);
  const auto names = exchange(concat(::getpid(), " ", file.get()));
  if (!file) {
    std::istringstream name(names[static_cast<std::size_t>(members.front())]);
    int process = 0, descriptor = -1;
    name >> process >> descriptor;
    file = host::open_memory_file(process, descriptor);
  }
  const auto own = std::find(members.begin(), members.end(), rank) - members.begin();
  auto region = std::make_shared<SharedRegion>(Mapping::shared(file, bytes), size);
  std::shared_ptr<ShmBackend> backend(
      new ShmBackend(std::move(region), static_cast<int>(own), size));
  backend->set_timeout(timeout);
  backend->engine().attach(::getpid());
  return backend;
}

std::shared_ptr<Backend> ShmBackend::subgroup(const std::vector<int>& members) {
  check(
      std::find(members.begin(), members.end(), rank()) != members.end(), "subgroup: rank ", rank(),
      " is not among its members");
  return join(
      members, rank(), timeout(), [this](const std::string& text) { return exchange(text); });
}

}  // namespace lockstep
