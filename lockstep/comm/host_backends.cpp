#include "lockstep/comm/host_backends.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <unistd.h>

#include "lockstep/comm/host/address_space.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using host::Exposure;
using host::SharedRegion;

int place_among(const std::vector<int>& members, int rank) {
  const auto own = std::find(members.begin(), members.end(), rank);
  check(own != members.end(), "subgroup: rank ", rank, " is not among its members");
  return static_cast<int>(own - members.begin());
}

std::vector<int> processes_of(
    const std::vector<int>& members, const std::vector<std::string>& tickets) {
  std::vector<int> processes;
  for (const int member : members)
    processes.push_back(std::atoi(tickets[static_cast<std::size_t>(member)].c_str()));
  return processes;
}

class OneProcess : public host::AddressSpace {
 public:
  std::optional<Exposure> expose(const void* memory, std::size_t) const override {
    return Exposure{Exposure::kAddress, reinterpret_cast<std::uint64_t>(memory)};
  }
  // Threads hold the tensors of a failed collective in the region.
  std::shared_ptr<std::byte> resolve(int, const Exposure& exposure) const override {
    return {std::shared_ptr<void>(), reinterpret_cast<std::byte*>(exposure.offset)};
  }
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options,
      const host::ExchangeText&) override {
    return torch::empty({elements}, options);
  }
};

template <typename Step>
std::string failure_of(Step step) {
  try {
    step();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void check_all_shared(const std::vector<int>& members, const std::vector<std::string>& failures) {
  for (const int member : members) {
    const std::string& failure = failures[static_cast<std::size_t>(member)];
    if (!failure.empty()) throw MemoryNotShared(concat("shm: rank ", member, ": ", failure));
  }
}

}  // namespace

std::shared_ptr<SharedRegion> ThreadBackend::make_region(int size) {
  return std::make_shared<SharedRegion>(
      host::Mapping::anonymous(SharedRegion::bytes_for(size)), size);
}

ThreadBackend::ThreadBackend(std::shared_ptr<SharedRegion> region, int rank)
    : HostBackend(std::move(region), std::make_unique<OneProcess>(), rank) {}

// The first member makes the region and lends it until the others have it.
std::shared_ptr<Backend> ThreadBackend::subgroup(const std::vector<int>& members) {
  const int own = place_among(members, rank());
  const SharedRegion::SubgroupKey key{++subgroups_, members.front()};
  std::shared_ptr<SharedRegion> made;
  if (own == 0) {
    made = make_region(static_cast<int>(members.size()));
    made->share_alarms(shared_region(), members);
    region().lend(key, made);
  }
  barrier().wait();
  auto group = std::make_shared<ThreadBackend>(region().borrow(key), own);
  barrier().wait();
  group->join(*this);
  group->set_timeout(timeout());
  return group;
}

ShmBackend::ShmBackend(std::shared_ptr<SharedRegion> region, int rank)
    : HostBackend(std::move(region), std::make_unique<host::SymmetricMemory>(rank), rank) {}

std::shared_ptr<ShmBackend> ShmBackend::create(
    int rank, int size, std::chrono::milliseconds timeout, const host::ExchangeText& exchange) {
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  return meet(everyone, rank, timeout, exchange, nullptr);
}

std::shared_ptr<ShmBackend> ShmBackend::open(const std::vector<int>& members, int rank,
    const std::vector<std::string>& tickets, const HostBackend* parent) {
  const int size = static_cast<int>(members.size());
  const std::size_t bytes = SharedRegion::bytes_for(size);
  const auto file =
      host::open_memory_file(tickets[static_cast<std::size_t>(members.front())], bytes);
  auto region = std::make_shared<SharedRegion>(host::Mapping::shared(file, bytes), size);
  if (parent != nullptr) region->share_alarms(parent->shared_region(), members);
  std::shared_ptr<ShmBackend> backend(
      new ShmBackend(std::move(region), place_among(members, rank)));
  backend->engine().watch(processes_of(members, tickets));
  return backend;
}

// The first member makes the region; the others open it through that process, which keeps it open
// until all have. Whether it works can only be tried, so each says how its try went.
std::shared_ptr<ShmBackend> ShmBackend::meet(const std::vector<int>& members, int rank,
    std::chrono::milliseconds timeout, const host::ExchangeText& exchange,
    const HostBackend* parent) {
  host::MemoryFile file{.descriptor = {}, .ticket = concat(::getpid())};
  std::string failure = failure_of([&] {
    if (members.front() == rank)
      file = host::make_memory_file(SharedRegion::bytes_for(static_cast<int>(members.size())));
  });
  const auto tickets = exchange(file.ticket);
  std::shared_ptr<ShmBackend> backend;
  if (failure.empty())
    failure = failure_of([&] { backend = open(members, rank, tickets, parent); });
  check_all_shared(members, exchange(failure.substr(0, 200)));
  if (parent != nullptr) backend->join(*parent);
  backend->set_timeout(timeout);
  backend->barrier().wait();
  return backend;
}

std::shared_ptr<Backend> ShmBackend::subgroup(const std::vector<int>& members) {
  const auto through_group = [this](const std::string& text) { return exchange(text); };
  return meet(members, rank(), timeout(), through_group, this);
}

}  // namespace lockstep
