#include "lockstep/parallel/ddp/join.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kEnded = -1;

}  // namespace

Join::Join(ProcessGroup group, const JoinOptions& options, torch::Device device)
    : group_(std::move(group)), options_(options), device_(device) {}

std::size_t Join::add(std::string name, Shadow shadow) {
  kinds_.push_back({std::move(name), std::move(shadow)});
  return kinds_.size() - 1;
}

Join::Participants Join::announce(std::size_t collective) {
  check(collective < kinds_.size(), "Join::announce: there is no collective ", collective, "; ",
      kinds_.size(), " were added");
  return participants(exchange(static_cast<std::int64_t>(collective)));
}

int Join::finish() {
  bool was_last = true;
  for (;;) {
    const std::vector<std::int64_t> announced = exchange(kEnded);
    const Participants active = participants(announced);
    if (active.empty()) break;
    was_last = false;
    const auto kind = announced[static_cast<std::size_t>(active.front())];
    kinds_[static_cast<std::size_t>(kind)].shadow(active);
  }
  const auto candidates = exchange(was_last ? group_.rank() : kEnded);
  return static_cast<int>(*std::max_element(candidates.begin(), candidates.end()));
}

std::vector<std::int64_t> Join::exchange(std::int64_t own) const {
  const auto type = torch::TensorOptions(torch::kLong).device(device_);
  const torch::Tensor on_device = torch::empty({group_.size()}, type);
  group_.all_gather(on_device, torch::full({1}, own, type)).wait();
  const torch::Tensor all = on_device.cpu();
  const auto* first = all.data_ptr<std::int64_t>();
  return {first, first + all.numel()};
}

// All ranks see the same numbers, so they throw alike.
Join::Participants Join::participants(const std::vector<std::int64_t>& announced) const {
  Participants active;
  std::vector<std::string> ended;
  for (std::size_t rank = 0; rank < announced.size(); ++rank) {
    if (announced[rank] == kEnded) {
      ended.push_back(std::to_string(rank));
      continue;
    }
    active.push_back(static_cast<int>(rank));
    const auto first = static_cast<std::size_t>(active.front());
    if (announced[rank] == announced[first]) continue;
    throw Error(concat("Join: rank ", first, " announces ",
        kinds_[static_cast<std::size_t>(announced[first])].name, " and rank ", rank, " announces ",
        kinds_[static_cast<std::size_t>(announced[rank])].name,
        "; all ranks that still have inputs must do the same"));
  }
  if (options_.throw_on_early_termination() && !ended.empty() && !active.empty())
    throw UnevenInputs(
        concat("Join: no inputs are left on rank ", joined(ended), "; all ranks stop here"));
  return active;
}

}  // namespace lockstep
