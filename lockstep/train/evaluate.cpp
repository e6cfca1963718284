#include "lockstep/train/evaluate.h"

#include <iterator>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

// A score that counts whether the right class is among the highest ones; with as many classes or
// fewer it always is, and there is no score.
struct AmongHighest {
  std::int64_t highest;
  std::optional<double> Scores::*score;
};
constexpr AmongHighest kAmong[] = {{5, &Scores::top5}};

// Sums on a device without waiting for it; all ranks' sums are added by one collective. They are
// loss, samples and hits; then for each of kAmong the samples that it counts, and its hits.
class Sums {
 public:
  void add(const torch::Tensor& scores, const torch::Tensor& labels, const Loss& loss) {
    if (all_.device() != scores.device()) begin_on(scores.device());
    const torch::Tensor counted = labels.ne(kIgnoredTarget).sum();
    sums_[0].add_(loss.sum(scores, labels));
    sums_[1].add_(counted);
    sums_[2].add_(scores.argmax(1).eq(labels).sum());
    for (std::size_t i = 0; i < std::size(kAmong); ++i) {
      if (scores.size(1) <= kAmong[i].highest) continue;
      const torch::Tensor highest = std::get<1>(scores.topk(kAmong[i].highest, 1));
      sums_[3 + 2 * i].add_(counted);
      sums_[4 + 2 * i].add_(highest.eq(labels.unsqueeze(1)).sum());
    }
  }

  Evaluation over_all(const ProcessGroup& world) const {
    const torch::Tensor sums = all_.cpu();
    world.all_reduce(sums).wait();
    const auto* const sum = sums.const_data_ptr<double>();
    Evaluation result{.scores = {.loss = sum[0] / sum[1], .top1 = sum[2] / sum[1]},
        .samples = static_cast<std::int64_t>(sum[1])};
    for (std::size_t i = 0; i < std::size(kAmong); ++i)
      if (sum[3 + 2 * i] > 0) result.scores.*kAmong[i].score = sum[4 + 2 * i] / sum[3 + 2 * i];
    return result;
  }

 private:
  static constexpr std::int64_t kSize = 3 + 2 * std::ssize(kAmong);

  void begin_on(torch::Device device) {
    all_ = at::zeros({kSize}, at::TensorOptions(torch::kDouble).device(device));
    sums_ = all_.unbind();
  }

  torch::Tensor all_ = at::zeros({kSize}, on_host(torch::kDouble));
  std::vector<torch::Tensor> sums_ = all_.unbind();
};

}  // namespace

std::optional<Evaluation> evaluate(const Forward& forward, const Loader& share,
    const ProcessGroup& world, const Loss& loss, const std::function<bool()>& leaves,
    const OnBatch& on_batch) {
  const at::NoGradGuard no_gradients;
  Sums sums;
  for (auto batch = share.begin(); batch != share.end(); ++batch) {
    const torch::Tensor scores = forward(*batch);
    const torch::Tensor labels = batch->target().to(scores.device(), /*non_blocking=*/true);
    sums.add(scores, labels, loss);
    sign_of_life();
    if (on_batch) on_batch(scores, labels);
    if (leaves && leaves()) return std::nullopt;
  }
  return sums.over_all(world);
}

double value_of(const Scores& scores, EvalMetric metric) {
  if (metric == EvalMetric::kLoss) return scores.loss.value();
  if (metric == EvalMetric::kTop1) return scores.top1.value();
  return scores.top5.value_or(scores.top1.value());
}

}  // namespace lockstep
