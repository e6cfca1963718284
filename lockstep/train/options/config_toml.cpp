#include <charconv>
#include <cstdio>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/train/options/snapshot_interval.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (code < 0x20 || code == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", code);
      result += escape;
    } else {
      result += letter;
    }
  }
  return result + '"';
}

std::string shortest(double value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  return {text, written.ptr};
}

// TOML tells 1 from 1.0: a real number has a point or an exponent.
std::string real(double value) {
  const std::string number = shortest(value);
  return number.find_first_of(".e") == std::string::npos ? number + ".0" : number;
}

// As the flag takes them.
std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

class Lines {
 public:
  void add(const char* key, const std::string& value) { put(key, quoted(value)); }
  void add(const char* key, const char* value) { put(key, quoted(value)); }
  void add(const char* key, std::int64_t value) { put(key, std::to_string(value)); }
  void add(const char* key, bool value) { put(key, value ? "true" : "false"); }
  void add(const char* key, double value) { put(key, real(value)); }
  template <typename Value>
  void add(const char* key, const std::optional<Value>& value) {
    if (value) add(key, *value);
  }
  std::string text() const { return text_.str(); }

 private:
  void put(const char* key, const std::string& value) { text_ << key << " = " << value << '\n'; }
  std::ostringstream text_;
};

void add_pipeline(Lines& lines, const TrainOptions& options) {
  const PipelineSettings& pipeline = options.pipeline;
  const auto add = [&](const char* key, const std::optional<int>& number) {
    if (number) lines.add(key, std::int64_t{*number});
  };
  add("stages", pipeline.stages);
  add("stages-per-place", pipeline.stages_a_worker);
  add("chunks", pipeline.chunks);
  if (pipeline.schedule) lines.add("schedule", name_of(*pipeline.schedule));
  if (pipeline.balance != Balance::kTime) lines.add("balance", name_of(pipeline.balance));
  if (pipeline.checkpoint != Checkpoint::kNever)
    lines.add("checkpoint", name_of(pipeline.checkpoint));
  if (pipeline.deferred_batch_norm) lines.add("deferred-batch-norm", true);
}

void add_loading(Lines& lines, const LoadingSettings& loading) {
  lines.add("augment", name_of(loading.augment));
  if (loading.image_size) lines.add("image-size", std::int64_t{*loading.image_size});
  if (loading.workers) lines.add("workers", std::int64_t{*loading.workers});
  lines.add("bad-images", name_of(loading.bad_images));
  lines.add("val-split", loading.val_split);
}

void add_lr_schedule(Lines& lines, const LrSettings& schedule) {
  lines.add("sched", name_of(schedule.kind));
  if (schedule.on_updates) lines.add("sched-on-updates", true);
  lines.add("warmup-epochs", schedule.warmup_epochs);
  lines.add("warmup-steps", schedule.warmup_steps);
  lines.add("warmup-lr", schedule.warmup_lr);
  lines.add("min-lr", schedule.min_lr);
  lines.add("decay-epochs", schedule.decay_epochs);
  std::string milestones;
  for (const std::int64_t epoch : schedule.decay_milestones)
    milestones += concat(milestones.empty() ? "" : ",", epoch);
  if (!milestones.empty()) lines.add("decay-milestones", milestones);
  lines.add("decay-rate", schedule.decay_rate);
  lines.add("poly-power", schedule.power);
  lines.add("patience-epochs", schedule.patience_epochs);
  lines.add("cooldown-epochs", schedule.cooldown_epochs);
  lines.add("pct-start", schedule.pct_start);
  lines.add("div-factor", schedule.div_factor);
  lines.add("final-div-factor", schedule.final_div_factor);
}

void add_optimizer(Lines& lines, const OptimizerSettings& settings) {
  lines.add("opt", name_of(settings.kind));
  lines.add("lr", settings.lr);
  lines.add("momentum", settings.momentum);
  lines.add("weight-decay", settings.weight_decay);
  lines.add("weight-decay-on", name_of(settings.weight_decay_on));
  lines.add("lr-scale", name_of(settings.lr_scale));
  add_lr_schedule(lines, settings.schedule);
  lines.add("clip-grad", settings.clip_grad);
  if (settings.sharded) lines.add("shard-optimizer", true);
}

void add_ema(Lines& lines, const std::optional<EmaSettings>& ema) {
  if (!ema) return;
  lines.add("model-ema", true);
  lines.add("model-ema-decay", ema->decay);
  if (ema->warmup) lines.add("model-ema-warmup", true);
}

void add_snapshots(Lines& lines, const SnapshotSettings& settings) {
  if (settings.unit == SnapshotUnit::kOverhead) {
    lines.add("snapshot-overhead", shortest(100 * settings.count) + "%");
  } else {
    lines.add("snapshot-interval", snapshot_interval_text({settings.unit, settings.count}));
  }
  lines.add("keep", std::int64_t{settings.keep});
  if (settings.required) lines.add("snapshot-required", true);
}

// As the flag takes it.
std::string resume_text(const ResumeSettings& settings) {
  if (settings.kind == Resume::kFrom) return settings.from;
  return settings.kind == Resume::kAuto ? "auto" : "never";
}

}  // namespace

std::string config_toml(const TrainOptions& options) {
  Lines lines;
  const DataSource& data = options.data;
  lines.add("model", options.model);
  if (!options.pretrained.empty()) lines.add("pretrained", options.pretrained);
  if (!options.freeze.empty()) lines.add("freeze", joined(options.freeze));
  lines.add("data", data.directory.empty() ? data.name : data.name + ":" + data.directory);
  lines.add("repeat", options.repeat);
  lines.add("num-classes", options.classes);
  add_loading(lines, options.loading);
  lines.add("parallel", name_of(options.parallel));
  if (options.places) lines.add("places", std::int64_t{*options.places});
  add_pipeline(lines, options);
  if (options.sync_batch_norm) lines.add("sync-batch-norm", true);
  lines.add("backend", options.backend);
  lines.add("batch-size", options.batch_size);
  lines.add("epochs", options.limits.epochs);
  lines.add("max-steps", options.limits.steps);
  // The flag takes seconds with or without a unit, so a string reads back whatever the value.
  if (options.limits.seconds) lines.add("max-time", shortest(*options.limits.seconds) + "s");
  lines.add("limit-train-batches", options.limit_train_batches);
  lines.add("precision", name_of(options.precision));
  add_optimizer(lines, options.optimizer);
  lines.add("grad-accum-steps", options.grad_accum_steps);
  lines.add("smoothing", options.smoothing);
  add_ema(lines, options.ema);
  lines.add("eval-metric", name_of(options.eval_metric));
  lines.add("seed", options.seed);
  if (options.val_interval < 0) {
    lines.add("val-interval", "never");
  } else {
    lines.add("val-interval", options.val_interval);
  }
  lines.add("log-interval", options.log_interval);
  lines.add("progress", name_of(options.progress));
  lines.add("output", options.output);
  lines.add("resume", resume_text(options.resume));
  add_snapshots(lines, options.snapshots);
  return lines.text();
}

}  // namespace lockstep
