#include "lockstep/train/state/run_part.h"

#include <unordered_set>

#include "lockstep/snapshot/optimizer_state.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {
namespace {

// Between two steps, forward changes buffers alone: what they are now is kept on their device.
nn::NamedTensors what_stays(const TrainRun& run, const nn::NamedTensors& state) {
  std::unordered_set<const void*> parameters;
  for (const torch::Tensor& parameter : run.replica->parameters())
    parameters.insert(parameter.unsafeGetTensorImpl());
  nn::NamedTensors kept("Tensor");
  for (const auto& item : state) {
    const torch::Tensor& tensor = item.value();
    const bool stays = tensor.is_cpu() || parameters.contains(tensor.unsafeGetTensorImpl());
    kept.insert(item.key(), stays ? tensor : tensor.clone());
  }
  return kept;
}

// With float16 the scaler knows whether a loss will recover.
void look_later(
    SnapshotPart& part, const TrainRun& run, const nn::NamedTensors& state, torch::Tensor meter) {
  part.overflows = nn::overflows_of(state.values());
  if (run.options.precision != Precision::k16Mixed)
    part.overflows.push_back(nn::overflows_of({std::move(meter)}).front());
  part.divergence = run.divergence("the loss or weights became infinite or NaN");
}

// What clocks and tensors know better.
void bring_up_to_date(TrainRun& run) {
  RunState& state = run.state;
  state.seconds = run.clock.read();
  if (state.position.samples == 0) state.seconds.epoch = 0;
  state.scaler = run.replica->scaler();
  state.skipped_steps += run.replica->take_skipped_steps();
  if (run.ema) state.ema_updates = run.ema->updates();
}

}  // namespace

SnapshotRole role_in(const TrainRun& run) {
  const RankGroups& groups = run.groups;
  return {.rank = groups.world.rank(),
      .replica = groups.replicas.rank(),
      .stage = groups.stages.rank(),
      .stages = groups.stages.size(),
      .ranks = groups.world.size(),
      .sharded_optimizer = run.options.optimizer.sharded};
}

SnapshotPart run_part(TrainRun& run, const SnapshotRole& role, bool looks_later) {
  const SnapshotFileNames names = snapshot_file_names(role);
  const nn::NamedTensors state = run.replica->state();
  SnapshotPart part;
  if (!names.model.empty()) part.files[names.model].tensors = what_stays(run, state);
  if (run.ema && !names.model_ema.empty())
    part.files[names.model_ema].tensors = named_averages(*run.ema, state);
  if (!names.optimizer.empty())
    part.files[names.optimizer] = content_of(optimizer_state(run.replica->optimizer(), state));
  nn::NamedTensors own = random_state(run.devices);
  own.insert("meter", looks_later ? run.meter.packed_part() : packed(run.meter.part()));
  part.files[names.rank].tensors = own;
  if (looks_later) look_later(part, run, state, own["meter"]);
  bring_up_to_date(run);
  if (role.rank == 0) part.state = to_json(run.state);
  return part;
}

}  // namespace lockstep
