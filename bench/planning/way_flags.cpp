#include "bench/planning/way_flags.h"

#include <cmath>
#include <string>

#include "lockstep/core/enum_names.h"

namespace lockstep::bench {
namespace {

Words layout_flags(const plan::Way& way) {
  const std::string kind = kind_of(way);
  Words words = words_of("--parallel", kind);
  if (kind.starts_with("ddp")) {
    add_words(words, words_of("--nproc-per-node", way.places()));
    if (way.stages > 1) add_words(words, words_of("--stages", way.stages));
  } else if (way.places() > 1) {
    add_words(words, words_of("--places", way.places()));
  }
  return words;
}

Words pipeline_flags(const plan::Way& way) {
  if (way.stages == 1) return {};
  Words words = words_of("--balance", "time");
  if (way.schedule == ScheduleKind::kSequential) return words;
  add_words(words, words_of("--schedule", name_of(way.schedule), "--chunks", way.micro_batches));
  if (way.checkpoint != Checkpoint::kNever)
    add_words(words, words_of("--checkpoint", name_of(way.checkpoint)));
  return words;
}

Words gradient_flags(const plan::Way& way) {
  Words words;
  if (way.accumulated > 1) add_words(words, words_of("--grad-accum-steps", way.accumulated));
  if (way.is_sharded) add_words(words, words_of("--shard-optimizer"));
  if (way.sent_as != plan::SentAs::kAsTheyAre)
    add_words(words, words_of("--comm-hook", lockstep::name_of(way.sent_as)));
  const plan::Way usual;
  if (way.bucket_bytes != usual.bucket_bytes) {
    constexpr double kMebi = 1 << 20;
    add_words(words, words_of("--bucket-mb", static_cast<double>(way.bucket_bytes) / kMebi));
  }
  return words;
}

}  // namespace

Words train_flags_of(const plan::Way& way, double batch) {
  const auto own = std::lround(batch / way.replicas / way.accumulated);
  return words_of(layout_flags(way), "--batch-size", own, pipeline_flags(way), gradient_flags(way));
}

}  // namespace lockstep::bench
