#include "lockstep/comm/backend.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "lockstep/cluster/place.h"
#include "lockstep/comm/host/collective.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/text.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

std::atomic<bool> init_is_settled = false;  // by a call of init_process_group(), or a warning

/// Returns the name of the launcher that started this process as one of several ranks; empty if
/// none.
std::string starter_of_ranks() {
  const std::string size = system_variable("WORLD_SIZE");
  if (parse_number<int>(size).value_or(1) > 1) return concat("WORLD_SIZE is ", size);
  try {
    const auto place = cluster::rank_place(cluster::surroundings_of_this_process());
    if (place) return concat(place->source, " has started ", place->size, " ranks");
  } catch (const InvalidArgument&) {  // init_process_group() would say it
  }
  return "";
}

void warn_if_init_is_forgotten() {
  if (init_is_settled || init_is_settled.exchange(true)) return;
  const std::string starter = starter_of_ranks();
  if (starter.empty()) return;
  std::fprintf(stderr,
      "lockstep: %s, but this process uses a group of one: every rank works alone. "
      "Write `auto world = lockstep::init_process_group();` in place of a default-constructed "
      "ProcessGroup, or start one process.\n",
      starter.c_str());
}

}  // namespace

// The types of the host's kernels.
std::optional<at::ScalarType> Backend::reduced_as(
    torch::Device, at::ScalarType type, ReduceOp) const {
  if (!host::reduce_element(type)) return std::nullopt;
  return type;
}

Work Backend::run(const CollectiveCall& call) {
  if (!record_) return begin(call);
  const torch::Tensor& tensor = call.kind == Operation::kScatter ? call.output : call.tensor();
  const std::int64_t bytes = tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  const CallTicket ticket =
      call.is_message() ? record_->begin_alone(call.kind, bytes) : record_->begin(call.kind, bytes);
  const CallWait wait(ticket);  // a backend may do it all before it returns, and so wait here
  return begin(call).with(ticket);
}

std::shared_ptr<Backend> Backend::subgroup(const std::vector<int>& members) {
  if (!record_) return make_subgroup(members);
  const CallWait wait(record_->begin(Operation::kSplit, 0));
  auto made = make_subgroup(members);
  made->record(record_->part(own_slot(), ++recorded_subgroups_, members.front(), made->rank(),
      static_cast<int>(members.size())));
  return made;
}

torch::Tensor Backend::empty(std::int64_t elements, const torch::TensorOptions& options) {
  const CallWait wait(record_ ? record_->begin(Operation::kEmpty, 0) : CallTicket());
  return make_empty(elements, options);
}

int place_among(const std::vector<int>& members, int rank) {
  const auto own = std::find(members.begin(), members.end(), rank);
  check(own != members.end(), "subgroup: rank ", rank, " is not among its members");
  return static_cast<int>(own - members.begin());
}

std::shared_ptr<Backend> recorded_world(std::shared_ptr<Backend> backend) {
  backend->record(GroupRecord(own_slot(), kWorldGroup, backend->rank(), backend->size()));
  return backend;
}

int SingleBackend::size() const {
  if (!asked_for_) warn_if_init_is_forgotten();
  return size_;
}

Work SingleBackend::begin(const CollectiveCall& call) {
  check(!call.is_message(), call.name(), ": a group of one has no other rank");
  if (!call.has_one_tensor()) call.output.view(-1).copy_(call.input.view(-1));
  return {};
}

void note_init() { init_is_settled = true; }

}  // namespace lockstep
