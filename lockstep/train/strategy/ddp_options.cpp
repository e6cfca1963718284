#include "lockstep/train/strategy/ddp_options.h"

#include <algorithm>
#include <cmath>

#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/ddp/power_sgd.h"

namespace lockstep {
namespace {

CommHook hook_of(const CommHookSettings& settings) {
  switch (settings.kind) {
    case CommHookKind::kNone:
      return nullptr;
    case CommHookKind::kFp16:
      return fp16_compress_hook;
    case CommHookKind::kBf16:
      return bf16_compress_hook;
    case CommHookKind::kPowerSgd:
      return PowerSgd(PowerSgdOptions().rank(settings.rank).start_step(settings.start_step));
  }
  return nullptr;
}

}  // namespace

DistributedDataParallelOptions ddp_options(const TrainOptions& options) {
  const GradientSettings& settings = options.gradients;
  auto made = DistributedDataParallelOptions()
                  .sync_batch_norm(options.sync_batch_norm)
                  .find_unused_parameters(settings.find_unused_parameters)
                  .comm_hook(hook_of(settings.comm_hook));
  constexpr double kMebibyte = 1 << 20;
  if (settings.bucket_mb)
    made.bucket_bytes(std::max<std::int64_t>(1, std::llround(*settings.bucket_mb * kMebibyte)));
  return made;
}

}  // namespace lockstep
