#include "lockstep/train/validator.h"

#include <exception>
#include <system_error>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/nn/weights.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/snapshot/tensor_group.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/state/whole_model.h"

namespace lockstep {

namespace {

// Without it transformers refuses a file.
constexpr std::pair<const char*, const char*> kFormat{"format", "pt"};

nn::NamedTensors copied(const nn::NamedTensors& tensors) {
  nn::NamedTensors copies;
  for (const auto& item : tensors) copies.insert(item.key(), item.value().detach().clone());
  return copies;
}

}  // namespace

Validator::Validator(TrainRun& run, Checkpointer& checkpointer)
    : run_(run), checkpointer_(checkpointer) {
  if (run.log.recorder() != nullptr)
    best_weights_.emplace(run.log.recorder()->file("best.safetensors"));
  if (!run.start.snapshot) return;
  const auto restore = [&] {
    if (best_weights_) restore_best(*run.start.snapshot);
  };
  work_patiently(restore, run.groups.world);
}

// A start that was lost may have written the weights of a better epoch, which this one does not
// know; and a new folder has none yet.
void Validator::restore_best(const SnapshotReader& snapshot) {
  const std::filesystem::path& file = best_weights_->file();
  if (!run_.state.best) {
    std::filesystem::remove(file);
    return;
  }
  if (best_weights_->holds(best_metadata())) return;
  try {
    const std::filesystem::path best = snapshot.path().parent_path() / run_.state.best_snapshot;
    const SnapshotGroups groups = groups_of(verify_snapshot(best), best);
    write_whole(
        open_group(best, groups.at(run_.ema ? "model-ema" : "model")), file, best_metadata());
  } catch (const std::exception& error) {
    run_.log.warn(
        concat("best.safetensors may belong to a later epoch than the best one: ", error.what()));
  }
}

bool Validator::is_due(bool is_last_epoch) const {
  const std::int64_t interval = run_.options.val_interval;
  if (interval < 0) return false;  // never
  return is_last_epoch || (interval > 0 && run_.state.position.epoch % interval == 0);
}

bool Validator::evaluate(EpochSummary& epoch) {
  evaluated_ = {};
  epoch.validated = run_.data.validation != nullptr;
  const data::SamplesPointer& samples = epoch.validated ? run_.data.validation : run_.data.test;
  if (!measure(samples, "val", epoch.epoch, epoch.val)) return false;
  bool is_best = false;
  if (!run_.ema) {
    is_best = compare(epoch.epoch, epoch.val);
  } else {
    run_.ema->with_averages([&] {
      is_best =
          measure(samples, "val-ema", epoch.epoch, epoch.ema) && compare(epoch.epoch, epoch.ema);
    });
  }
  epoch.val_seconds = evaluated_.seconds;
  epoch.val_samples = evaluated_.samples;
  record_measured();
  return is_best;
}

TestScores Validator::test(const EpochSummary& last) {
  if (run_.data.test == run_.data.validation) return {};  // they chose the best epoch
  if (!last.validated) return {.last = last.val, .best = best_of_epochs()};
  TestScores scores;
  Scores averaged;
  const data::SamplesPointer& samples = run_.data.test;
  bool is_whole = measure(samples, "test", last.epoch, scores.last);
  if (is_whole && run_.ema)
    run_.ema->with_averages([&] { is_whole = measure(samples, "test-ema", last.epoch, averaged); });
  const std::optional<BestEpoch>& best = run_.state.best;
  if (best && best->epoch == last.epoch) {
    scores.best = run_.ema ? averaged : scores.last;
  } else if (is_whole && best) {
    with_best_weights([&] { is_whole = measure(samples, "test-best", best->epoch, scores.best); });
  }
  record_measured();
  return is_whole ? scores : TestScores();
}

// Where the test chooses the best epoch, it was measured then.
Scores Validator::best_of_epochs() const {
  if (!run_.state.best) return {};
  for (const EpochSummary& epoch : run_.state.epochs)
    if (epoch.epoch == run_.state.best->epoch) return run_.ema ? epoch.ema : epoch.val;
  return {};
}

// Not at all, on all ranks, where rank 0 has lost them: the run itself is whole without.
void Validator::with_best_weights(const std::function<void()>& body) {
  const nn::NamedTensors own = run_.replica->state();
  const nn::NamedTensors last = copied(own);
  const TensorRanges ranges = run_.replica->ranges();
  nn::NamedTensors best;
  if (ranges.empty() && run_.groups.replicas.rank() == 0)
    best = copied(gathered_state(own, run_.groups.stages));
  if (!load_best(best)) return;
  const auto put_back = [&] { restore_tensors(own, last, "the last weights"); };
  try {
    if (ranges.empty())
      scatter_state(best, own, run_.groups.stages, run_.groups.replicas);
    else
      load_shared_weights(own, ranges, run_.groups.replicas, best_file());
    body();
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

// Returns whether rank 0 could, or can where the ranks share the weights. A collective.
bool Validator::load_best(const nn::NamedTensors& into) {
  double failures = 0;
  const bool is_shared = !run_.replica->ranges().empty();
  const auto load = [&] {
    try {
      if (best_weights_ && is_shared) best_weights_->require(best_metadata());
      if (best_weights_ && !is_shared) best_weights_->load(into, best_metadata());
    } catch (const std::exception& error) {
      run_.log.warn(concat("no test with the weights of the best epoch: ", error.what()));
      failures = 1;
    }
  };
  work_patiently(load, run_.groups.world);
  maximize({&failures}, run_.groups.world);
  return failures == 0;
}

// Returns whether it came to its end.
bool Validator::measure(const data::SamplesPointer& samples, const std::string& split,
    std::int64_t epoch, Scores& scores) {
  const Stopwatch watch;
  run_.log.progress().wait_for("lockstep: evaluating " + split);
  Replica& replica = *run_.replica;
  replica.share_buffers();
  replica.set_training(false);
  const auto forward = [&](const Batch& batch) { return replica.output(batch); };
  const ProcessGroup& replicas = run_.groups.replicas;
  const std::int64_t batch = run_.batch_size();
  const std::int64_t batches_of_every_rank =
      (samples->size() / replicas.size() + batch - 1) / batch;
  std::int64_t own = 0;
  const auto count = [&](const torch::Tensor&, const torch::Tensor&) { ++own; };
  const std::int64_t largest_share = (samples->size() + replicas.size() - 1) / replicas.size();
  const auto join_others = [&] {
    for (; own * batch < largest_share; ++own) replica.join_output();
  };
  const auto result = lockstep::evaluate(forward,
      evaluation_loader(samples, replicas, replica, run_.resident,
          {.batch_size = batch, .workers = run_.workers}),
      replicas, *replica.task(), checkpointer_.interruption(batches_of_every_rank), count,
      join_others);
  if (!result) return false;
  const double seconds = watch.seconds();
  evaluated_.seconds += seconds;
  evaluated_.samples += result->samples;
  run_.log.progress().evaluated(seconds);
  run_.log.warn_of_bad_images();
  measured_.push_back({.elapsed = run_.clock.read().elapsed,
      .epoch = epoch,
      .step = run_.state.step,
      .split = split,
      .scores = result->scores,
      .samples_per_s = static_cast<double>(result->samples) / seconds});
  scores = result->scores;
  return true;
}

// Together, and only of a whole evaluation: the next start writes all lines of one that a signal
// interrupted.
void Validator::record_measured() {
  if (checkpointer_.course() != Course::kInterrupted)
    for (const MetricRecord& record : measured_) run_.log.record(record);
  measured_.clear();
}

// Saves the weights that the replica has now, which may be averages.
bool Validator::compare(std::int64_t epoch, const Scores& scores) {
  RunState& state = run_.state;
  const std::string& metric = run_.options.eval_metric;
  const double value = value_of(scores, metric);
  state.plateau = run_.scheduler.evaluated(state.plateau, state.schedule_step, value);
  if (!is_better(value, state.best, is_larger_better(metric))) return false;
  state.best = BestEpoch{epoch, value};
  save_best();
  return true;
}

// The stages of the first replica bring together what they hold.
nn::NamedTensors Validator::weights_to_save() const {
  const RankGroups& groups = run_.groups;
  return groups.replicas.rank() == 0 ? gathered_state(run_.replica->state(), groups.stages)
                                     : nn::NamedTensors();
}

std::filesystem::path Validator::best_file() const {
  return best_weights_ ? best_weights_->file() : std::filesystem::path();
}

// No rank has the memory to keep what the disk does not take.
void Validator::save_shared_best(const TensorRanges& ranges) {
  try {
    save_shared_weights(
        run_.replica->state(), ranges, run_.groups.replicas, best_file(), best_metadata());
  } catch (const std::system_error& error) {
    run_.log.warn(concat(
        error.what(), "; training continues, and best.safetensors is that of an earlier epoch"));
  }
}

void Validator::save_best() {
  if (const TensorRanges ranges = run_.replica->ranges(); !ranges.empty())
    return save_shared_best(ranges);
  const nn::NamedTensors weights = weights_to_save();
  std::string warning;
  const auto save = [&] {
    if (best_weights_) warning = best_weights_->save(weights, best_metadata());
  };
  work_patiently(save, run_.groups.world);
  if (!warning.empty()) run_.log.warn(warning);
}

std::map<std::string, std::string> Validator::best_metadata() const {
  const BestEpoch& best = *run_.state.best;
  return {{kFormat.first, kFormat.second}, {"epoch", concat(best.epoch)},
      {run_.options.eval_metric, concat(best.value)}};
}

void Validator::save_last() {
  save("model.safetensors");
  if (run_.ema) run_.ema->with_averages([this] { save("model-ema.safetensors"); });
}

void Validator::save(const std::string& name) {
  const RunRecorder* const recorder = run_.log.recorder();
  const std::filesystem::path file = recorder != nullptr ? recorder->file(name) : "";
  const std::map<std::string, std::string> metadata{
      {kFormat.first, kFormat.second}, {"step", concat(run_.state.step)}};
  if (const TensorRanges ranges = run_.replica->ranges(); !ranges.empty())
    return save_shared_weights(run_.replica->state(), ranges, run_.groups.replicas, file, metadata);
  const nn::NamedTensors weights = weights_to_save();
  const auto write = [&] {
    if (recorder != nullptr) nn::save_weights(weights, file, metadata);
  };
  work_patiently(write, run_.groups.world);
}

void Validator::finish() {
  if (best_weights_) best_weights_->finish();
}

namespace {

// Training goes on and changes the tensors.
nn::NamedTensors copy_of(const nn::NamedTensors& weights) {
  nn::NamedTensors copies("Tensor");
  for (const auto& item : weights)
    copies.insert(item.key(), item.value().detach().to(torch::kCPU, /*non_blocking=*/false, true));
  return copies;
}

}  // namespace

std::string BestWeights::save(const nn::NamedTensors& weights, const Metadata& metadata) {
  kept_.reset();  // is the best no more
  try {
    nn::save_weights(weights, file_, metadata);
    return "";
  } catch (const std::system_error& error) {
    kept_ = Kept{.weights = copy_of(weights), .metadata = metadata};
    return concat(
        error.what(), "; training continues, and the weights of the best epoch wait in memory");
  }
}

bool BestWeights::holds(const Metadata& metadata) const {
  if (kept_) return kept_->metadata == metadata;
  try {
    return read_safetensors(file_).metadata() == metadata;
  } catch (const std::exception&) {
    return false;
  }
}

void BestWeights::require(const Metadata& metadata) const {
  if (!holds(metadata))
    throw DataError(concat(file_.string(), " is missing, or not of the best epoch"));
}

void BestWeights::load(const nn::NamedTensors& into, const Metadata& metadata) const {
  require(metadata);
  if (kept_) return restore_tensors(into, kept_->weights, "the best weights");
  nn::load_weights(into, file_);
}

void BestWeights::finish() {
  if (!kept_) return;
  nn::save_weights(kept_->weights, file_, kept_->metadata);
  kept_.reset();
}

}  // namespace lockstep
