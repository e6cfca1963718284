#include "lockstep/comm/host_backends.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <unistd.h>

#include "lockstep/comm/host/address_space.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using host::Exposure;

class OneProcess : public host::AddressSpace {
 public:
  std::optional<Exposure> expose(const void* memory, std::size_t) const override {
    return Exposure{Exposure::kAddress, reinterpret_cast<std::uint64_t>(memory)};
  }
  std::byte* resolve(int, const Exposure& exposure) const override {
    return reinterpret_cast<std::byte*>(exposure.offset);
  }
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options,
      const host::ExchangeText&) override {
    return torch::empty({elements}, options);
  }
};

}  // namespace

std::shared_ptr<host::SharedRegion> ThreadBackend::make_region(int size) {
  return std::make_shared<host::SharedRegion>(
      host::Mapping::anonymous(host::SharedRegion::bytes_for(size)), size);
}

ThreadBackend::ThreadBackend(std::shared_ptr<host::SharedRegion> region, int rank)
    : HostBackend(std::move(region), std::make_unique<OneProcess>(), rank) {}

// The first member makes the region and passes its address until the others have shared it.
std::shared_ptr<Backend> ThreadBackend::subgroup(const std::vector<int>& members) {
  const auto own = std::find(members.begin(), members.end(), rank());
  check(own != members.end(), "subgroup: rank ", rank(), " is not among its members");
  std::shared_ptr<host::SharedRegion> region;
  if (members.front() == rank()) region = make_region(static_cast<int>(members.size()));
  const torch::Tensor address =
      torch::tensor({reinterpret_cast<std::int64_t>(&region)}, torch::kLong);
  const torch::Tensor addresses = torch::empty({size()}, torch::kLong);
  all_gather(addresses, address).wait();
  auto* lent = reinterpret_cast<std::shared_ptr<host::SharedRegion>*>(
      addresses[members.front()].item<std::int64_t>());
  if (lent != &region) region = *lent;
  barrier().wait();
  auto group = std::make_shared<ThreadBackend>(region, static_cast<int>(own - members.begin()));
  group->set_timeout(timeout());
  return group;
}

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
std::shared_ptr<ShmBackend> ShmBackend::join(const std::vector<int>& members, int rank,
    std::chrono::milliseconds timeout, const host::ExchangeText& exchange) {
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
  check(std::find(members.begin(), members.end(), rank()) != members.end(), "subgroup: rank ",
      rank(), " is not among its members");
  return join(
      members, rank(), timeout(), [this](const std::string& text) { return exchange(text); });
}

}  // namespace lockstep
