#include "lockstep/train/profile/step_profiler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ops/full.h>

#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"
#include "lockstep/parallel/balance/layer_costs.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/snapshot/group_values.h"

namespace lockstep {
namespace {

constexpr int kTimedPasses = 5;

// A chain that lacks parameters is a function around a net that cannot be cut.
nn::Layers chain_of(const nn::Model& model) {
  nn::Layers layers = model->layers();
  if (parameters_of(layers).size() == parameters_of(*model).size()) return layers;
  nn::Layers whole;
  whole.insert("net", torch::nn::AnyModule(model));
  return whole;
}

// As --precision names them.
const char* name_of_type(torch::ScalarType type) {
  if (type == torch::kFloat) return "float32";
  return type == torch::kBFloat16 ? "bfloat16" : "float16";
}

// Without an index: the current one of the thread that asks.
torch::Device device_of(const std::vector<Place>& places) {
  return places.empty() ? torch::kCPU : torch::Device(places.front().device.type());
}

}  // namespace

std::vector<LayerCosts> chain_costs(const nn::Model& model, const torch::Tensor& images) {
  return layer_costs(chain_of(model), images, kTimedPasses);
}

StepProfiler::StepProfiler(const nn::NamedTensors& state, ProcessGroup world,
    std::vector<Place> places, torch::ScalarType type)
    : state_(state),
      world_(std::move(world)),
      places_(std::move(places)),
      type_(type),
      device_(device_of(places_)),
      is_recorder_(world_.backend_name() != "threads" || world_.rank() == 0) {}

// All ranks are here at once: so their clocks, which are of several machines, begin together.
void StepProfiler::begin_measuring() {
  world_.barrier().wait();
  start_ = SpanRecorder::now();
  if (!is_recorder_) return;
  SpanRecorder::set_graph(OperatorRecorder::graph());
  operators_.emplace(state_, device_.is_cpu() ? std::nullopt : std::optional(device_.type()));
}

// Those between warm-up and measuring.
void StepProfiler::time_unwaited_steps() {
  const bool begins = step_ == kWarmUp + 1, has_ended = step_ == steps_before() + 1;
  if (!begins && !has_ended) return;
  synchronize(device_);
  const std::int64_t now = SpanRecorder::now();
  if (begins) timed_from_ = now;
  if (has_ended) unwaited_step_ = static_cast<double>(now - timed_from_) / 1e6 / kMeasured;
}

void StepProfiler::begin_step() {
  ++step_;
  if (!device_.is_cpu()) time_unwaited_steps();
  if (!records()) return;
  if (start_ == 0) begin_measuring();
  begin_ = SpanRecorder::now();
  if (is_recorder_) SpanRecorder::start();
}

void StepProfiler::end_step(const torch::Tensor& images) {
  if (!records()) return;
  ++measured_;
  if (!images_.defined() || images_.size(0) < images.size(0)) images_ = images;
  if (!is_recorder_) return;
  synchronize(device_);
  SpanRecorder::stop();
  SpanRecorder::add({.name = concat("step ", step_),
      .activity = Activity::kStep,
      .begin = begin_,
      .end = SpanRecorder::now()});
  if (measured_ == kMeasured) operators_.reset();
}

// In all places at once, as the steps are: they share memory and the processor's clock.
double StepProfiler::peak() const {
  world_.barrier().wait();
  if (places_.size() < 2)
    return product_flops_per_second(places_.empty() ? torch::kCPU : places_.front().device, type_);
  std::vector<std::unique_ptr<PlaceWorker>> workers;
  std::vector<double> rates(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    workers.push_back(std::make_unique<PlaceWorker>(places_[i], "peak"));
    workers.back()->begin(
        [&, i] { rates[i] = product_flops_per_second(places_[i].device, type_); });
  }
  double sum = 0;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    workers[i]->wait();
    sum += rates[i];
  }
  return sum;
}

// The arithmetic of ranks that are threads is in the profile of the first.
double StepProfiler::peak_of_process() const {
  const torch::Tensor sum = at::full({1}, peak(), on_host(torch::kDouble));
  if (world_.backend_name() == "threads") world_.all_reduce(sum).wait();
  return sum.item<double>();
}

std::optional<ProfileFiles> StepProfiler::finish(const ChainMeasurement& chain) {
  SpanRecorder::stop();
  operators_.reset();
  if (measured_ == 0) return std::nullopt;
  RunProfile own{.precision = name_of_type(type_)};
  std::string events;
  if (is_recorder_) {
    const std::vector<SpanLane> lanes = SpanRecorder::take();
    events = trace_events(world_.rank(), lanes, start_);
    own.ranks.push_back(profile_of(lanes));
    own.ranks.front().rank = world_.rank();
    own.ranks.front().unwaited_step = unwaited_step_;
  }
  const double peak_here = peak_of_process();
  world_.barrier().wait();
  const std::vector<LayerCosts> layers = chain(images_);
  if (is_recorder_) {
    RankProfile& rank = own.ranks.front();
    rank.peak = peak_here;
    rank.chain = layers;
    if (!layers.empty()) rank.batch = images_.size(0);
  }
  const auto profiles = gather_texts(is_recorder_ ? profile_json(own) : "", 0, world_);
  const auto traces = gather_texts(events, 0, world_);
  if (world_.rank() != 0) return std::nullopt;
  ProfileFiles files{.profile = {.precision = own.precision}, .trace = trace_file(traces)};
  for (const std::string& text : profiles) {
    if (text.empty()) continue;
    for (RankProfile& rank : read_profile(text, "profile").ranks)
      files.profile.ranks.push_back(std::move(rank));
  }
  return files;
}

}  // namespace lockstep
