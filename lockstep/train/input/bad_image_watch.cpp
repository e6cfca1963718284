#include "lockstep/train/input/bad_image_watch.h"

#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep {

BadImageWatch::BadImageWatch(std::vector<std::shared_ptr<const data::FolderSamples>> folders)
    : folders_(std::move(folders)) {}

std::vector<std::string> BadImageWatch::news() {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < folders_.size(); ++i) {
    for (const auto& [index, reason] : folders_[i]->bad()) {
      if (told_.emplace(i, index).second) lines.push_back(concat("skipped: ", reason));
    }
  }
  return lines;
}

std::int64_t BadImageWatch::count(const ProcessGroup& world) const {
  std::int64_t total = 0;
  for (const auto& folder : folders_) {
    const torch::Tensor is_bad = at::zeros({folder->size()}, torch::kByte);
    for (const auto& [index, reason] : folder->bad()) is_bad[index].fill_(1);
    world.all_reduce(is_bad, ReduceOp::kMax).wait();
    total += is_bad.sum().item<std::int64_t>();
  }
  return total;
}

}  // namespace lockstep
