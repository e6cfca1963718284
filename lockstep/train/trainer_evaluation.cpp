// The half of Trainer that measures and judges what it trains.

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/state/gathered_state.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Without padding no image counts twice, so the accuracy is that of the whole set.
Loader Trainer::evaluation_loader(const data::SamplesPointer& samples) const {
  const DistributedSampler sampler(
      samples->size(), groups_.replicas, {.shuffle = false, .padding = false});
  return {
      samples,
      sampler.epoch(0),
      batch_size(),
      {.dtype = replica_->image_type(), .workers = workers_}};
}

Evaluation Trainer::measure(
    const data::SamplesPointer& samples, const std::string& split, std::int64_t epoch) {
  const Stopwatch watch;
  replica_->share_buffers();
  replica_->set_training(false);
  const auto scores = [this](const torch::Tensor& images) { return replica_->scores(images); };
  const Evaluation result = evaluate(scores, evaluation_loader(samples), groups_.replicas);
  const double seconds = watch.seconds();
  progress_.evaluated(seconds);
  tell_of_bad_images();
  record(
      {.elapsed = elapsed(),
       .epoch = epoch,
       .step = step_,
       .split = split,
       .loss = result.loss,
       .accuracy = result.accuracy,
       .accuracy5 = result.accuracy5,
       .samples_per_s = static_cast<double>(result.samples) / seconds});
  return result;
}

void Trainer::record(const MetricRecord& record) {
  if (!recorder_) return;
  recorder_->append(record);
  const std::string warning = recorder_->take_warning();
  if (!warning.empty()) progress_.warn(warning);
}

bool Trainer::evaluation_due() const {
  if (options_.val_interval < 0) return false;  // never
  if (!summary_.stopped_by.empty()) return true;
  return options_.val_interval > 0 && position_.epoch % options_.val_interval == 0;
}

// Tells whether it was the best so far.
bool Trainer::evaluate_epoch(EpochSummary& epoch) {
  epoch.validated = data_.validation != nullptr;
  const data::SamplesPointer& samples = epoch.validated ? data_.validation : data_.test;
  Evaluation result = measure(samples, "val", epoch.epoch);
  epoch.val_loss = result.loss;
  epoch.val_accuracy = result.accuracy;
  epoch.val_accuracy5 = result.accuracy5;
  if (!ema_) return judge(epoch.epoch, value_of(result, options_.eval_metric));
  bool is_better = false;
  ema_->with_averages([&] {
    result = measure(samples, "val-ema", epoch.epoch);
    epoch.ema_loss = result.loss;
    epoch.ema_accuracy = result.accuracy;
    epoch.ema_accuracy5 = result.accuracy5;
    is_better = judge(epoch.epoch, value_of(result, options_.eval_metric));
  });
  return is_better;
}

// Of the weights that the replica has now, which may be averages.
bool Trainer::judge(std::int64_t epoch, double value) {
  scheduler_.evaluated(schedule_step_, value);
  if (!is_better(value, summary_.best, options_.eval_metric)) return false;
  summary_.best = BestEpoch{epoch, value};
  save_best();
  return true;
}

void Trainer::save_best() {
  if (groups_.replicas.rank() != 0) return;
  const nn::NamedTensors state = gathered_state(replica_->state(), groups_.stages);
  if (!best_weights_) return;
  const std::string warning = best_weights_->save(state, best_metadata());
  if (!warning.empty()) progress_.warn(warning);
}

std::map<std::string, std::string> Trainer::best_metadata() const {
  return {
      {"epoch", concat(summary_.best->epoch)},
      {summary_.eval_metric, concat(summary_.best->value)}};
}

void Trainer::save_last() {
  const std::map<std::string, std::string> metadata = {{"step", concat(step_)}};
  save_model("model.safetensors", metadata);
  if (ema_) ema_->with_averages([&] { save_model("model-ema.safetensors", metadata); });
}

// The stages of the first replica bring together what they hold.
void Trainer::save_model(
    const std::string& name, const std::map<std::string, std::string>& metadata) {
  if (groups_.replicas.rank() != 0) return;
  const nn::NamedTensors state = gathered_state(replica_->state(), groups_.stages);
  if (recorder_) nn::save_weights(state, recorder_->file(name), metadata);
}

void Trainer::test() {
  const EpochSummary& last = summary_.epochs.back();
  summary_.test_loss = last.val_loss;
  summary_.test_accuracy = last.val_accuracy;
  summary_.test_accuracy5 = last.val_accuracy5;
  if (!last.validated) return;
  const Evaluation result = measure(data_.test, "test", last.epoch);
  summary_.test_loss = result.loss;
  summary_.test_accuracy = result.accuracy;
  summary_.test_accuracy5 = result.accuracy5;
  if (ema_) ema_->with_averages([&] { measure(data_.test, "test-ema", last.epoch); });
}

}  // namespace lockstep
