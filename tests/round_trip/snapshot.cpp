// Saves a run for snapshot_round_trip.py:
//
//     round_trip_snapshot RUN
//
// RUN/snapshots/best is a resnet18 with Adam, in channels-last memory, whole; LATEST is the same in
// two parts, as two stages save it. RUN/expected.safetensors are its weights, written by another
// way.

#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/weights.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep {
namespace {

// The tensors that belong to one of `parts` equal parts, by their order.
nn::NamedTensors part_of(const nn::NamedTensors& state, int part, int parts) {
  nn::NamedTensors own("Tensor");
  const auto size = state.size(), count = static_cast<std::size_t>(parts);
  for (std::size_t i = 0; i < size; ++i) {
    if (i * count / size == static_cast<std::size_t>(part))
      own.insert(state[i].key(), state[i].value());
  }
  return own;
}

void save_whole(const std::string& run, const nn::NamedTensors& named, OptimizerState state) {
  SnapshotSaver saver({.run = run, .required = true}, ProcessGroup());
  SnapshotPart part{.state = "{}", .best = true};
  part.files["model.safetensors"] = {.tensors = named};
  part.files["optimizer.safetensors"] = content_of(std::move(state));
  saver.save(1, part);
  saver.finish();
}

void save_stages(const std::string& run, const nn::NamedTensors& named) {
  run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run, .required = true}, world);
    const auto names =
        snapshot_file_names({.rank = world.rank(), .stage = world.rank(), .stages = 2, .ranks = 2});
    SnapshotPart part{.state = world.rank() == 0 ? "{}" : ""};
    part.files[names.model] = {.tensors = part_of(named, world.rank(), 2)};
    saver.save(2, part);
    saver.finish();
  });
}

int body(int count, char** values) {
  check(count == 2, "round_trip_snapshot: RUN");
  const std::string run = values[1];
  torch::manual_seed(1);
  const nn::Model model = nn::make_model("resnet18", 7);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.125));
  for (torch::Tensor& parameter : model->parameters()) {
    parameter.mutable_grad() = at::full(parameter.sizes(), 0.5);
  }
  optimizer.step();
  const auto named = nn::named_state(*model);
  nn::save_weights(named, run + "/expected.safetensors");
  save_whole(run, named, optimizer_state(optimizer, named));
  save_stages(run, named);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_program("round_trip_snapshot", lockstep::body, argc, argv);
}
