#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFew = 5;

// Counts on a device without waiting for it; all ranks' counts are added by one collective.
class Counts {
 public:
  void add(const torch::Tensor& scores, const torch::Tensor& labels) {
    if (sums_.device() != scores.device()) begin_on(scores.device());
    loss_.add_(at::cross_entropy_loss(scores, labels, {}, at::Reduction::Sum, kIgnoredTarget));
    const torch::Tensor counted = labels.ne(kIgnoredTarget).sum();
    samples_.add_(counted);
    hits_.add_(scores.argmax(1).eq(labels).sum());
    if (scores.size(1) <= kFew) return;
    few_samples_.add_(counted);
    const torch::Tensor highest = std::get<1>(scores.topk(kFew, 1));
    few_hits_.add_(highest.eq(labels.unsqueeze(1)).sum());
  }

  Evaluation over_all(const ProcessGroup& world) const {
    const torch::Tensor sums = sums_.cpu();
    world.all_reduce(sums).wait();
    std::array<double, 5> numbers{};
    std::copy_n(sums.const_data_ptr<double>(), numbers.size(), numbers.begin());
    const auto [loss, samples, hits, few_samples, few_hits] = numbers;
    Evaluation result{.scores = {.loss = loss / samples, .top1 = hits / samples},
        .samples = static_cast<std::int64_t>(samples)};
    if (few_samples > 0) result.scores.top5 = few_hits / few_samples;
    return result;
  }

 private:
  void begin_on(torch::Device device) {
    sums_ = at::zeros({5}, at::TensorOptions(torch::kDouble).device(device));
    loss_ = sums_[0], samples_ = sums_[1], hits_ = sums_[2];
    few_samples_ = sums_[3], few_hits_ = sums_[4];
  }

  torch::Tensor sums_ = at::zeros({5}, on_host(torch::kDouble));
  torch::Tensor loss_ = sums_[0], samples_ = sums_[1], hits_ = sums_[2], few_samples_ = sums_[3],
                few_hits_ = sums_[4];
};

}  // namespace

std::optional<Evaluation> evaluate(const Forward& forward, const Loader& share,
    const ProcessGroup& world, const std::function<bool()>& leaves) {
  const at::NoGradGuard no_gradients;
  Counts counts;
  for (auto batch = share.begin(); batch != share.end(); ++batch) {
    const torch::Tensor scores = forward(batch->data);
    counts.add(scores, batch->target.to(scores.device(), /*non_blocking=*/true));
    if (leaves && leaves()) return std::nullopt;
  }
  return counts.over_all(world);
}

double value_of(const Scores& scores, EvalMetric metric) {
  if (metric == EvalMetric::kLoss) return scores.loss.value();
  if (metric == EvalMetric::kTop1) return scores.top1.value();
  return scores.top5.value_or(scores.top1.value());
}

}  // namespace lockstep
