// Accumulating gradients over several steps of replicated pipelines: they meet once, at the last.

#include <gtest/gtest.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"

#include "tests/parallel/pipeline/serial_reference.h"

namespace lockstep {
namespace {

using testing::Problem;

constexpr int kReplicas = 2;

// The batch is that of all replicas and parts together.
Problem whole_problem() { return testing::make_problem({5, 7, 6, 3}, 24); }

torch::nn::Sequential with_serial_gradients(const Problem& problem) {
  auto serial = problem.serial;
  testing::mean_loss(serial->forward(problem.input), problem.target).backward();
  return serial;
}

torch::Tensor half_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return testing::mean_loss(output, target) / 2;
}

// A replica's share in two parts; what the first leaves must still be its own.
template <typename AnyPipeline>
void accumulate(AnyPipeline& pipeline, const Problem& problem, const ProcessGroup& replicas) {
  const auto inputs = problem.input.chunk(2 * kReplicas),
             targets = problem.target.chunk(2 * kReplicas);
  const auto first = static_cast<std::size_t>(2 * replicas.rank());
  {
    const auto accumulation = pipeline.no_sync();
    pipeline.step(inputs[first], targets[first], half_loss);
  }
  const torch::Tensor own = pipeline.parameters().front().grad().clone();
  const torch::Tensor others = torch::empty({kReplicas * own.numel()}, torch::kDouble);
  replicas.all_gather(others, own.flatten()).wait();
  const auto each = others.chunk(kReplicas);
  EXPECT_FALSE(each[0].allclose(each[1])) << "the first part was averaged over the replicas";
  pipeline.step(inputs[first + 1], targets[first + 1], half_loss);
}

TEST(PipelineAccumulation, OverPlacesGivesTheGradientsOfAllPartsTogether) {
  const Problem problem = whole_problem();
  const auto serial = with_serial_gradients(problem);
  run_ranks(kReplicas, [&](const ProcessGroup& replicas) {
    const auto net = testing::copy_of(problem.net);
    Pipeline pipeline(layers_of(net), {3, 2}, cpu_places(2), PipelineOptions().chunks(3), replicas);
    accumulate(pipeline, problem, replicas);
    testing::expect_same_gradients(*net, *serial);
  });
}

TEST(PipelineAccumulation, OverRanksGivesTheGradientsOfAllPartsTogether) {
  const Problem problem = whole_problem();
  const auto serial = with_serial_gradients(problem);
  const auto expected = serial->named_parameters();
  run_ranks(2 * kReplicas, [&](const ProcessGroup& world) {
    const auto net = testing::copy_of(problem.net);
    const auto grid = make_pipeline_grid(world, 2);
    PipelineStage stage(
        layers_of(net), {3, 2}, grid.stages, PipelineOptions().chunks(3), grid.replicas);
    accumulate(stage, problem, grid.replicas);
    for (const auto& layer : stage.layers())
      for (const auto& parameter : layer.value().ptr()->named_parameters())
        testing::expect_close(
            parameter.value().grad(), expected[layer.key() + "." + parameter.key()].grad(), 1e-10,
            parameter.key());
  });
}

}  // namespace
}  // namespace lockstep
