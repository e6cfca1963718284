#include "lockstep/train/strategy/ddp_options.h"

#include <algorithm>
#include <cmath>

#include "lockstep/parallel/ddp/comm_hook.h"

namespace lockstep {
namespace {

PowerSgdOptions power_sgd_options(const CommHookSettings& settings, const nn::GradScaler& scaler) {
  auto options = PowerSgdOptions().rank(settings.rank).start_step(settings.start_step);
  if (scaler.is_enabled()) {
    options.loss_scale([&scaler](const torch::Device& device) { return scaler.scale_on(device); });
  }
  return options;
}

CommHook hook_of(const CommHookSettings& settings, const nn::GradScaler& scaler) {
  switch (settings.kind) {
    case CommHookKind::kNone:
      return nullptr;
    case CommHookKind::kFp16:
      return fp16_compress_hook;
    case CommHookKind::kBf16:
      return bf16_compress_hook;
    case CommHookKind::kPowerSgd:
      return PowerSgd(power_sgd_options(settings, scaler));
  }
  return nullptr;
}

}  // namespace

DistributedDataParallelOptions ddp_options(
    const TrainOptions& options, const nn::GradScaler& scaler) {
  const GradientSettings& settings = options.gradients;
  auto made = DistributedDataParallelOptions()
                  .sync_batch_norm(options.sync_batch_norm)
                  .find_unused_parameters(settings.find_unused_parameters)
                  .comm_hook(hook_of(settings.comm_hook, scaler));
  constexpr double kMebibyte = 1 << 20;
  if (settings.bucket_mb)
    made.bucket_bytes(std::max<std::int64_t>(1, std::llround(*settings.bucket_mb * kMebibyte)));
  return made;
}

}  // namespace lockstep
