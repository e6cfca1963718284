#include "machine_load.h"
#include "stage_machine.h"

#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/parallel/place/memory_meter.h"

namespace lockstep::benchmark {
namespace {

// Adds up a list of numbers of which each rank knows some and has 0 for the others.
std::vector<double> sum_over(const ProcessGroup& world, const std::vector<double>& own) {
  const auto sum = torch::tensor(own, torch::kDouble);
  world.all_reduce(sum).wait();
  return {sum.data_ptr<double>(), sum.data_ptr<double>() + sum.numel()};
}

class RankMachine final : public StageMachine {
 public:
  explicit RankMachine(ProcessGroup world) : world_(std::move(world)) {}

  int ranks() const override { return world_.size(); }
  int processes() const override { return world_.size(); }
  bool reports() const override { return world_.rank() == 0; }

  std::vector<StageCosts> lone_stages(
      const Work& work, const std::vector<int>& balance, int micro_batches) override {
    std::vector<StageCosts> own(balance.size());
    for (std::size_t index = 0; index < balance.size(); ++index) {
      if (static_cast<int>(index) % ranks() == world_.rank()) {
        LoneStage stage(work, balance, static_cast<int>(index), micro_batches);
        own[index] = warm_costs(stage, [] {});
      }
      world_.barrier().wait();
    }
    return exchanged(own);
  }

  std::vector<StageCosts> lone_stages_at_once(
      const Work& work, const std::vector<int>& balance, int micro_batches) override {
    std::vector<StageCosts> own(balance.size());
    LoneStage stage(work, balance, world_.rank(), micro_batches);
    own[static_cast<std::size_t>(world_.rank())] =
        warm_costs(stage, [&] { world_.barrier().wait(); });
    return exchanged(own);
  }

  std::vector<int> agreed(std::vector<int> balance) override {
    const auto numbers = torch::tensor(balance, torch::kInt);
    world_.broadcast(numbers, 0).wait();
    const int* const first = numbers.data_ptr<int>();
    return {first, first + balance.size()};
  }

  // The loss that a step ends with comes from the last stage to all: the first is done no earlier.
  StepCost step(
      const Work& work, const std::vector<int>& balance, const PipelineOptions& options) override {
    PipelineStage stage(work.layers, balance, world_, options);
    stage.step(work.input, work.target, work.loss);  // to warm up
    world_.barrier().wait();
    const double faults = page_faults(), cpu = cpu_seconds();
    const Stopwatch watch;
    stage.step(work.input, work.target, work.loss);
    world_.barrier().wait();
    const double seconds = watch.seconds();
    const auto sums = sum_over(world_, {cpu_seconds() - cpu, page_faults() - faults});
    return {seconds, sums[0], sums[1]};
  }

  std::vector<std::int64_t> peak_bytes(
      const Work& work, const std::vector<int>& balance, const PipelineOptions& options) override {
    PipelineStage stage(work.layers, balance, world_, options);
    stage.step(work.input, work.target, work.loss);
    std::vector<double> own(static_cast<std::size_t>(ranks()));
    {
      const MemoryMeter meter;
      stage.step(work.input, work.target, work.loss);
      own[static_cast<std::size_t>(world_.rank())] = static_cast<double>(meter.total().peak);
    }
    std::vector<std::int64_t> peaks;
    for (const double peak : sum_over(world_, own))
      peaks.push_back(static_cast<std::int64_t>(peak));
    return peaks;
  }

 private:
  std::vector<StageCosts> exchanged(const std::vector<StageCosts>& own) const {
    std::vector<double> numbers;
    for (const StageCosts& costs : own) {
      numbers.insert(numbers.end(),
          {costs.forward, costs.backward, costs.backward_input, costs.backward_weight, costs.cpu});
    }
    const auto all = sum_over(world_, numbers);
    std::vector<StageCosts> costs;
    for (std::size_t at = 0; at < all.size(); at += 5)
      costs.push_back({all[at], all[at + 1], all[at + 2], all[at + 3], all[at + 4]});
    return costs;
  }

  ProcessGroup world_;
};

}  // namespace

std::unique_ptr<StageMachine> make_rank_machine(const ProcessGroup& world) {
  return std::make_unique<RankMachine>(world);
}

}  // namespace lockstep::benchmark
