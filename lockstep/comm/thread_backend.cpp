#include "lockstep/comm/thread_backend.h"

#include <algorithm>

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
  torch::Tensor empty(
      std::int64_t elements, const torch::TensorOptions& options,
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

}  // namespace lockstep
