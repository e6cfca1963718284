#include <barrier>

#include "machine_load.h"
#include "stage_machine.h"

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/place/memory_meter.h"

namespace lockstep::benchmark {
namespace {

class PlaceMachine final : public StageMachine {
 public:
  explicit PlaceMachine(int places) : places_(cpu_places(places)) {
    check(!oversubscribed(places_), "there are fewer cores than places: ", places);
  }

  int ranks() const override { return static_cast<int>(places_.size()); }
  int processes() const override { return 1; }
  bool reports() const override { return true; }

  std::vector<StageCosts> lone_stages(
      const Work& work, const std::vector<int>& balance, int micro_batches) override {
    std::vector<StageCosts> costs(balance.size());
    for (std::size_t index = 0; index < balance.size(); ++index) {
      PlaceWorker worker(places_[index % places_.size()], "lone");
      worker.begin([&] {
        LoneStage stage(work, balance, static_cast<int>(index), micro_batches);
        costs[index] = warm_costs(stage, [] {});
      });
      worker.wait();
    }
    return costs;
  }

  std::vector<StageCosts> lone_stages_at_once(
      const Work& work, const std::vector<int>& balance, int micro_batches) override {
    std::vector<StageCosts> costs(balance.size());
    std::vector<std::unique_ptr<PlaceWorker>> workers;
    std::barrier together(ranks());
    for (std::size_t index = 0; index < balance.size(); ++index) {
      workers.push_back(std::make_unique<PlaceWorker>(places_[index], "lone"));
      workers.back()->begin([&, index] {
        LoneStage stage(work, balance, static_cast<int>(index), micro_batches);
        costs[index] = warm_costs(stage, [&] { together.arrive_and_wait(); });
      });
    }
    for (const auto& worker : workers) worker->wait();
    return costs;
  }

  std::vector<int> agreed(std::vector<int> balance) override { return balance; }

  StepCost step(
      const Work& work, const std::vector<int>& balance, const PipelineOptions& options) override {
    Pipeline pipeline(work.layers, balance, places_, options);
    pipeline.step(work.input, work.target, work.loss);  // to warm up
    const double faults = page_faults(), cpu = cpu_seconds();
    const Stopwatch watch;
    pipeline.step(work.input, work.target, work.loss);
    return {watch.seconds(), cpu_seconds() - cpu, page_faults() - faults};
  }

  std::vector<std::int64_t> peak_bytes(
      const Work& work, const std::vector<int>& balance, const PipelineOptions& options) override {
    Pipeline pipeline(work.layers, balance, places_, options);
    pipeline.step(work.input, work.target, work.loss);
    const MemoryMeter meter;
    pipeline.step(work.input, work.target, work.loss);
    std::vector<std::int64_t> peaks;
    for (int rank = 0; rank < ranks(); ++rank)
      peaks.push_back(meter.by_thread()[concat("stage ", rank)].peak);
    return peaks;
  }

 private:
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<StageMachine> make_place_machine(int places) {
  return std::make_unique<PlaceMachine>(places);
}

StageCosts warm_costs(LoneStage& stage, const std::function<void()>& before_measuring) {
  stage.run_whole();
  before_measuring();
  StageCosts costs = stage.run_whole();
  const StageCosts split = stage.run_split();
  costs.backward_input = split.backward_input;
  costs.backward_weight = split.backward_weight;
  return costs;
}

}  // namespace lockstep::benchmark
