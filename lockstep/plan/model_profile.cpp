#include "lockstep/plan/model_profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/json_object.h"

namespace lockstep::plan {
namespace {

using Point = CostCurve::Point;

double on_line(const Point& from, const Point& to, double batch) {
  const double share = (batch - from.batch) / (to.batch - from.batch);
  return from.seconds + share * (to.seconds - from.seconds);
}

// A noisy pair of points may fall; nothing becomes faster for ever.
double beyond(const Point& from, const Point& last, double batch) {
  return std::max(last.seconds, on_line(from, last, batch));
}

double below(const Point& first, const Point& next, double batch) {
  const double share = first.seconds * batch / first.batch;
  return std::clamp(on_line(first, next, batch), share, first.seconds);
}

// More than any machine has: sums of these stay finite.
constexpr double kMostAmount = 1e24;
constexpr double kMostSeconds = 1e9;

void check_amount(
    const ModelProfile& profile, const char* what, double amount, double most = kMostAmount) {
  check(amount >= 0 && amount <= most, "plan: the profile of ", profile.model, " has ", what,
      " of ", amount, "; it must be from 0 to ", most);
}

void check_curve(const ModelProfile& profile, const char* what, const CostCurve& curve) {
  for (const auto& [batch, seconds] : curve.points())
    check_amount(profile, what, seconds / batch, kMostSeconds);
}

// Between whole numbers of busy places on a straight line.
double item_of(const std::vector<double>& slowdown, double busy) {
  if (busy <= 1) return slowdown.front();
  const auto below = static_cast<std::size_t>(busy);
  if (below >= slowdown.size()) return slowdown.back();
  const double share = busy - static_cast<double>(below);
  return slowdown[below - 1] + share * (slowdown[below] - slowdown[below - 1]);
}

double slowed(const std::vector<double>& slowdown, double busy, const Company& company) {
  const double at_once = company.cores == 0 ? busy : std::min<double>(busy, company.cores);
  return item_of(slowdown, at_once) * company.slows_by_turns(busy);
}

void check_slowdown(const std::vector<double>& slowdown) {
  check(!slowdown.empty() && slowdown.front() == 1,
      "plan: a slowdown begins with 1, of a place alone");
  for (std::size_t i = 1; i < slowdown.size(); ++i) {
    check(slowdown[i] >= slowdown[i - 1] && std::isfinite(slowdown[i]),
        "plan: more busy places never make one faster: ", slowdown[i], " after ", slowdown[i - 1]);
  }
}

constexpr int kLayers = 16;

LayerCurves equal_layer(const WholeStep& step, int number) {
  const double seconds = step.seconds / kLayers;
  const auto cost = [&](double share) { return CostCurve({{step.batch, seconds * share}}); };
  return {.name = concat("part ", number),
      .forward = cost(1.0 / 3),
      .backward = cost(2.0 / 3),
      .backward_input = cost(1.0 / 3),
      .backward_weight = cost(1.0 / 3),
      .parameters = {step.parameter_bytes / kLayers}};
}

constexpr std::size_t kMostBytes = std::size_t{1} << 26;
constexpr int kVersion = 3;  // 1 had no overheads, 2 no cost of gradients or of sharing a core

// What an image of ResNet50 takes, forward and backward, at 224 x 224: three times 2 x 4.09e9.
constexpr double kResNet50 = 24.54e9;
// What its backward needs of it, in fp32. On a device, passes over such memory take this share of
// its time and arithmetic the rest, by how ResNet34 and VGG19 compare with it on an H200.
constexpr double kResNet50Bytes = 94.1e6, kMemoryShare = 0.7;
// A sequence of 384 tokens of BERT-Large: for each token 6 for each of the 302 million weights of
// its layers, and 12 x 24 x 1024 for each other token that it looks at.
constexpr double kBertLarge = 384 * (6 * 302e6 + 12 * 24 * 1024 * 384.0);
// A sequence of 1024 tokens of GPT-2 likewise, whose scores are products with its first weight.
constexpr double kGpt2 = 1024 * (6 * 124e6 + 12 * 12 * 768 * 1024.0);
// Shares of the peak that the published trainings of V100 reach; for devices without one.
constexpr double kShare32 = 380.44 * kResNet50 / 15.7e12;
constexpr double kShareMixed = 893.09 * kResNet50 / 125e12;
constexpr double kProductShare32 = 12 * kBertLarge / 15.7e12;
constexpr double kProductShareMixed = 52 * kBertLarge / 125e12;

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

// Of a layer's kernels, from a C++ program; they overlap with what the device computes.
constexpr double kStartSeconds = 50e-6;
constexpr double kContextBytes = 0.6e9;

// Of a link's rate in the data sheet, in one direction: an assumption, as are the latencies.
constexpr double kLinkShare = 0.75;

Link pci(double gigabytes) {
  return {.latency = 15e-6, .bytes_per_second = kLinkShare * gigabytes * kGiga};
}
Link nvlink(double gigabytes) {
  return {.latency = 8e-6, .bytes_per_second = kLinkShare * gigabytes * kGiga};
}

TrainingRate images(double a_second, const char* source) {
  return {a_second * kResNet50, concat(source, ", ResNet50 on one device")};
}

// Trainings of one transformer on one device differ by more than two times: BERT-Large computes
// attention from its parts, newer code in one kernel. Where both are published, the rate is the
// (geometric) middle of theirs.
TrainingRate sequences(double a_second, const char* source) {
  return {a_second * kBertLarge, concat(source, ", BERT-Large on one device")};
}
TrainingRate gpt2(double a_second, const char* source) {
  return {a_second * kGpt2, concat(source, ", GPT-2 of 124 million parameters")};
}
TrainingRate sequences_and_gpt(double a_second, const char* source, double gpt_flops) {
  TrainingRate rate = sequences(a_second, source);
  rate.flops = std::sqrt(rate.flops * gpt_flops);
  rate.source += ", and llm-foundry's GPT of 1.3 billion parameters on eight";
  return rate;
}

TrainingRate share_of_peak(double share, double peak) {
  return {share * peak, "the share of its peak that such a net reaches on a V100", true};
}
TrainingRates shares_32(double peak) {
  return {share_of_peak(kShare32, peak), share_of_peak(kProductShare32, peak)};
}
TrainingRates shares_mixed(double peak) {
  return {share_of_peak(kShareMixed, peak), share_of_peak(kProductShareMixed, peak)};
}

constexpr const char* kNvidia = "NVIDIA's DeepLearningExamples";
constexpr const char* kLambda = "Lambda's deeplearning-benchmark";
constexpr const char* kOurs = "Lockstep's results/gpu";

TrainingRates of_k80() {
  return {images(52, "TensorFlow's benchmarks of 2017"), shares_32(4.37 * kTera).products};
}
TrainingRates of_titan_rtx_32() {
  return {images(330, "Lambda's TensorFlow benchmark of 2019"), shares_32(16.3 * kTera).products};
}

bool is_same(const std::string& one, const std::string& other) {
  return one.size() == other.size() &&
         std::equal(one.begin(), one.end(), other.begin(),
             [](unsigned char a, unsigned char b) { return std::toupper(a) == std::toupper(b); });
}

// A layer's time on the device: its slope, and the start of its kernels for small batches.
CostCurve device_curve(const CostCurve& curve, double factor) {
  if (curve.is_free()) return {};
  constexpr double kFar = 1 << 20;
  const CostCurve::Point& last = curve.points().back();
  const double slope = factor * last.seconds / last.batch;
  const double even = slope > 0 ? kStartSeconds / slope : kFar;
  if (even <= 1) return CostCurve({{1, slope}, {kFar, kFar * slope}});
  if (even >= kFar) return CostCurve({{1, kStartSeconds}, {kFar, kStartSeconds}});
  return CostCurve({{1, kStartSeconds}, {even, kStartSeconds}, {kFar, kFar * slope}});
}

double layers_a_sample(const ModelProfile& profile) {
  double seconds = 0;
  for (const LayerCurves& layer : profile.layers) {
    for (const CostCurve* const curve : {&layer.forward, &layer.backward}) {
      if (!curve->is_free())
        seconds += curve->points().back().seconds / curve->points().back().batch;
    }
  }
  return seconds;
}

}  // namespace

CostCurve::CostCurve(std::vector<Point> points) : points_(std::move(points)) {
  std::ranges::sort(
      points_, [](const Point& one, const Point& other) { return one.batch < other.batch; });
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const auto& [batch, seconds] = points_[i];
    check(batch > 0 && std::isfinite(batch), "plan: a cost has a batch of at least 1: ", batch);
    check(seconds >= 0 && std::isfinite(seconds), "plan: a cost is 0 or more seconds: ", seconds);
    check(i == 0 || batch > points_[i - 1].batch, "plan: a cost is given twice for the batch ",
        batch);
  }
}

double CostCurve::operator()(double batch) const {
  if (points_.empty() || batch <= 0) return 0;
  if (points_.size() == 1) return points_[0].seconds * batch / points_[0].batch;
  if (batch < points_[0].batch) return below(points_[0], points_[1], batch);
  const auto next =
      std::ranges::find_if(points_, [&](const Point& point) { return batch <= point.batch; });
  if (next == points_.begin()) return next->seconds;
  if (next == points_.end()) return beyond(points_.end()[-2], points_.back(), batch);
  return on_line(next[-1], *next, batch);
}

CostCurve::Line CostCurve::line() const {
  if (points_.empty()) return {};
  if (points_.size() == 1) return {.per_sample = points_[0].seconds / points_[0].batch};
  const auto count = static_cast<double>(points_.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [batch, seconds] : points_) {
    x += batch / count;
    y += seconds / count;
    xx += batch * batch / count;
    xy += batch * seconds / count;
  }
  Line line{.per_sample = (xy - x * y) / (xx - x * x)};
  line.fixed = y - line.per_sample * x;
  return line;
}

CostCurve CostCurve::times(double factor) const {
  std::vector<Point> points = points_;
  for (Point& point : points) point.seconds *= factor;
  return CostCurve(std::move(points));
}

double Link::seconds(double bytes) const {
  if (!measured.is_free()) return measured(bytes);
  return latency + (bytes_per_second > 0 ? bytes / bytes_per_second : 0);
}

double LayerCurves::parameter_bytes() const {
  return std::accumulate(parameters.begin(), parameters.end(), 0.0);
}

double ModelProfile::parameter_bytes() const {
  double bytes = 0;
  for (const LayerCurves& layer : layers) bytes += layer.parameter_bytes();
  return bytes;
}

double ModelProfile::activation_bytes() const {
  double bytes = 0;
  for (const LayerCurves& layer : layers) bytes += layer.activation_bytes;
  return bytes;
}

double ModelProfile::step_seconds(double batch) const {
  double seconds = input(batch) + rest(batch) + optimizer;
  for (const LayerCurves& layer : layers) seconds += layer.forward(batch) + layer.backward(batch);
  return seconds;
}

ModelProfile ModelProfile::scaled_to(double batch, double seconds) const {
  check(seconds > 0, "plan: a step takes more than 0 seconds: ", seconds);
  const double factor = seconds / step_seconds(batch);
  ModelProfile scaled = *this;
  for (LayerCurves& layer : scaled.layers) {
    for (const auto time : LayerCurves::times()) layer.*time = (layer.*time).times(factor);
  }
  scaled.input = input.times(factor);
  scaled.rest = rest.times(factor);
  scaled.optimizer *= factor;
  scaled.overheads.hand_over = overheads.hand_over.times(factor);
  scaled.overheads.threads = overheads.threads.times(factor);
  scaled.overheads.gradient_core *= factor;
  return scaled;
}

void check_profile(const ModelProfile& profile) {
  check(!profile.layers.empty(), "plan: the profile of ", profile.model, " has no layers");
  check_amount(profile, "an optimizer's time", profile.optimizer, kMostSeconds);
  check_curve(profile, "an input's time", profile.input);
  check_curve(profile, "other time", profile.rest);
  check_curve(profile, "a time to hand over", profile.overheads.hand_over);
  check_curve(profile, "a time of threads", profile.overheads.threads);
  check_amount(profile, "copies of the parameters", profile.state_copies);
  check_amount(profile, "memory of a process", profile.process_bytes);
  check_amount(profile, "noise", profile.noise);
  check_amount(profile, "arithmetic", profile.flops);
  check_amount(profile, "matrix products' arithmetic", profile.product_flops, profile.flops);
  check_amount(profile, "a cost of sockets", profile.overheads.socket_core);
  check_amount(profile, "a cost of gradients", profile.overheads.gradient_core);
  check_amount(profile, "memory of replicas", profile.overheads.replica_bytes);
  check_amount(profile, "memory of sockets", profile.overheads.socket_bytes);
  check_company(profile.company);
  for (const LayerCurves& layer : profile.layers) {
    for (const auto time : LayerCurves::times())
      check_curve(profile, "a layer's time a sample", layer.*time);
    check_amount(profile, "activations", layer.activation_bytes);
    check_amount(profile, "an output", layer.output_bytes);
    for (const double bytes : layer.parameters) check_amount(profile, "a parameter", bytes);
  }
  check(profile.step_seconds(1) > 0, "plan: the profile of ", profile.model, " takes no time");
}

double Company::slows_compute(double busy) const { return slowed(compute, busy, *this); }
double Company::slows_memory(double busy) const { return slowed(memory, busy, *this); }

double Company::slows_by_turns(double busy) const {
  return cores == 0 || busy <= cores ? 1 : crowded * busy / cores;
}

void check_company(const Company& company) {
  check_slowdown(company.compute);
  check_slowdown(company.memory);
  check(company.cores >= 0, "plan: a node has no ", company.cores, " cores");
  check(company.crowded >= 1 && std::isfinite(company.crowded),
      "plan: places that take turns are never faster for it: ", company.crowded);
}

ModelProfile coarse_profile(const WholeStep& step) {
  check(step.seconds > 0 && step.batch >= 1, "plan: a step of ", step.batch, " samples takes ",
      step.seconds, " seconds");
  ModelProfile profile{.model = step.model,
      .precision = "32",
      .device = "one place",
      .source = "its whole step",
      .layers = {}};
  for (int i = 0; i < kLayers; ++i) profile.layers.push_back(equal_layer(step, i));
  return profile;
}

const std::vector<Device>& known_devices() {
  static const std::vector<Device> kDevices{
      {"K80", 12 * kGiga, 240 * kGiga, pci(15.75), of_k80(), of_k80()},
      {"V100", 16 * kGiga, 900 * kGiga, nvlink(150),
          {images(380.44, kNvidia), sequences(12, kNvidia)},
          {images(893.09, kNvidia), sequences(52, kNvidia)}},
      {"TITAN-RTX", 24 * kGiga, 672 * kGiga, pci(15.75), of_titan_rtx_32(),
          shares_mixed(130 * kTera)},
      {"T4", 16 * kGiga, 320 * kGiga, pci(15.75), shares_32(8.1 * kTera), shares_mixed(65 * kTera)},
      {"A100", 40 * kGiga, 1555 * kGiga, nvlink(300),
          {images(909, kNvidia), sequences(61.5, kNvidia)},
          {images(2375, kNvidia), sequences_and_gpt(110.5, kNvidia, 175 * kTera)}},
      {"H100", 80 * kGiga, 3350 * kGiga, nvlink(450),
          {images(1895, kLambda), sequences(145, kLambda)},
          {images(2791, kLambda), sequences_and_gpt(311, kLambda, 413 * kTera)}},
      // Of fp32 convolutions are in TF32, as by default, and products are not.
      {"H200", 141 * kGiga, 4800 * kGiga, nvlink(450), {images(2996, kOurs), gpt2(49.8, kOurs)},
          {images(4303, kOurs), gpt2(283.7, kOurs)}},
      {"L4", 24 * kGiga, 300 * kGiga, pci(31.5), shares_32(30.3 * kTera),
          shares_mixed(121 * kTera)}};
  return kDevices;
}

const Device& device_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : known_devices()) {
    if (is_same(device.name, name)) return device;
    names.push_back(device.name);
  }
  throw InvalidArgument(concat("plan: there is no device ", printable(name), "; known are ",
      joined(names), did_you_mean(name, names)));
}

ModelProfile in_precision(ModelProfile profile, const std::string& precision) {
  if (profile.precision == precision) return profile;
  const double factor = precision == "32" ? 2 : profile.precision == "32" ? 0.5 : 1;
  for (LayerCurves& layer : profile.layers) {
    layer.activation_bytes *= factor;
    layer.output_bytes *= factor;
  }
  profile.precision = precision;
  profile.is_measured = false;
  return profile;
}

namespace {

// Of a sample's convolutions, by a device's time of ResNet50.
double seconds_in_convolutions(const ModelProfile& profile, const TrainingRate& rate) {
  const double flops = profile.flops - profile.product_flops;
  const double bytes = profile.activation_bytes() * flops / profile.flops;
  const double of_resnet50 = profile.precision == "32" ? kResNet50Bytes : kResNet50Bytes / 2;
  const double share = bytes > 0 ? kMemoryShare : 0;  // a profile may not know them
  return kResNet50 / rate.flops * (share * bytes / of_resnet50 + (1 - share) * flops / kResNet50);
}

}  // namespace

ModelProfile on_device(const ModelProfile& profile, const Device& device) {
  check(profile.flops > 0, "plan: the profile of ", profile.model,
      " does not say what a sample takes (flops), so it cannot be moved to a ", device.name);
  const TrainingRates& rates = profile.precision == "32" ? device.rates_32 : device.rates_mixed;
  const double in_products = profile.product_flops / rates.products.flops;
  const double in_convolutions = seconds_in_convolutions(profile, rates.convolutions);
  const bool is_of_products = in_products > in_convolutions;
  const TrainingRate& rate = is_of_products ? rates.products : rates.convolutions;
  const double factor = (in_products + in_convolutions) / layers_a_sample(profile);
  ModelProfile moved = profile;
  for (LayerCurves& layer : moved.layers) {
    for (const auto time : LayerCurves::times()) layer.*time = device_curve(layer.*time, factor);
  }
  // Each parameter, its gradient and what is kept of it are read, and all but the gradient written.
  moved.optimizer =
      profile.parameter_bytes() * (3 + 2 * profile.state_copies) / device.bytes_per_second;
  moved.rest = {};
  moved.device = device.name;
  moved.source =
      concat(rate.source, ", and the data sheet; the layers' shares are those on ", profile.device);
  moved.is_measured = false;
  moved.is_estimated = rate.is_estimated;
  moved.is_of_products = is_of_products;
  moved.process_bytes = kContextBytes;
  moved.company = {};
  moved.within = device.within;
  moved.knows_within = true;
  moved.overheads = {};
  return moved;
}

template <typename Object>
void list_fields(Object& object, CostCurve::Point& point) {
  object.number("batch", point.batch);
  object("seconds", point.seconds);
}

static void curve(JsonWriter& object, const char* key, const CostCurve& curve) {
  object(key, curve.points());
}

static void curve(JsonReader& object, const char* key, CostCurve& curve) {
  std::vector<CostCurve::Point> points;
  object(key, points);
  try {
    curve = CostCurve(std::move(points));
  } catch (const InvalidArgument& error) {
    object.fields().refuse(key, concat("be a cost (", error.what(), ")"));
  }
}

template <typename Object>
void list_fields(Object& object, LayerCurves& layer) {
  object("name", layer.name);
  curve(object, "forward", layer.forward);
  curve(object, "backward", layer.backward);
  curve(object, "backward_input", layer.backward_input);
  curve(object, "backward_weight", layer.backward_weight);
  object("activation_bytes", layer.activation_bytes);
  object("output_bytes", layer.output_bytes);
  object("parameters", layer.parameters);
}

template <typename Object>
void list_fields(Object& object, Company& company) {
  object("compute", company.compute);
  object("memory", company.memory);
  object("cores", company.cores);
  object.number("crowded", company.crowded);
}

template <typename Object>
void list_fields(Object& object, Link& link) {
  object("latency", link.latency);
  object("bytes_per_second", link.bytes_per_second);
  object("core_share", link.core_share);
}

template <typename Object>
void list_fields(Object& object, Overheads& overheads) {
  curve(object, "hand_over", overheads.hand_over);
  curve(object, "threads", overheads.threads);
  object("socket_core", overheads.socket_core);
  object("gradient_core", overheads.gradient_core);
  object("replica_bytes", overheads.replica_bytes);
  object("socket_bytes", overheads.socket_bytes);
}

template <typename Object>
void list_fields(Object& object, MeasuredTraining& training) {
  object("plugin", training.plugin);
  object("data", training.data);
  object("cores_a_place", training.cores_a_place, 1);
  object("flags", training.flags);
}

// A link that costs nothing stands in files of one place alone that older programs wrote.
static bool is_free(const Link& link) { return link.latency == 0 && link.bytes_per_second == 0; }

template <typename Object>
void list_fields(Object& object, ModelProfile& profile) {
  object("model", profile.model);
  object("precision", profile.precision);
  object("device", profile.device);
  object("source", profile.source);
  object("measured", profile.is_measured);
  curve(object, "input", profile.input);
  curve(object, "rest", profile.rest);
  object("optimizer", profile.optimizer);
  object("state_copies", profile.state_copies);
  object("process_bytes", profile.process_bytes);
  object("noise", profile.noise);
  object("flops", profile.flops);
  std::optional<double> product_flops = profile.product_flops;  // older files have none
  object("product_flops", product_flops);
  object("company", profile.company);
  std::optional<Link> link;
  if (!Object::kReads && profile.knows_within) link = profile.within;
  object("within", link);
  if constexpr (Object::kReads) {
    profile.product_flops = product_flops.value_or(0);
    profile.knows_within = link.has_value() && !is_free(*link);
    profile.within = profile.knows_within ? *link : Link{};
    if (object.fields().has("training")) object("training", profile.training);
  } else if (profile.training) {
    object("training", *profile.training);
  }
  object("overheads", profile.overheads);
  object("layers", profile.layers);
}

std::string profile_text(const ModelProfile& profile) {
  JsonWriter::Json object = {{"v", kVersion}};
  object.update(JsonWriter::json_of(profile));
  return object.dump(1, ' ', false, JsonWriter::Json::error_handler_t::replace) + "\n";
}

ModelProfile parse_profile(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_strict_json(text, file, {.bytes = kMostBytes});
  const JsonFields fields(object, file);
  fields.count("v", kVersion, kVersion);
  auto profile = JsonReader::read<ModelProfile>(fields);
  try {
    check_profile(profile);
  } catch (const InvalidArgument& error) {
    throw DataError(concat(file, ": ", error.what()));
  }
  return profile;
}

}  // namespace lockstep::plan
