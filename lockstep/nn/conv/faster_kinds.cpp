#include "lockstep/nn/conv/faster_kinds.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <ios>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/conv/depthwise.h"

namespace lockstep::nn::conv {
namespace {

/// A layer as image nets have it: 16 square images, few enough that their memory costs nothing.
struct LayerShape {
  std::int64_t side, inputs, outputs, kernel, stride, groups;
};

constexpr LayerShape kProductLayers[] = {
    {.side = 14, .inputs = 256, .outputs = 512, .kernel = 1, .stride = 1, .groups = 1},
    {.side = 14, .inputs = 112, .outputs = 672, .kernel = 1, .stride = 1, .groups = 1},
    {.side = 7, .inputs = 2048, .outputs = 512, .kernel = 1, .stride = 1, .groups = 1}};
constexpr LayerShape kStridedLayers[] = {
    {.side = 16, .inputs = 128, .outputs = 256, .kernel = 3, .stride = 2, .groups = 1},
    {.side = 28, .inputs = 256, .outputs = 512, .kernel = 1, .stride = 2, .groups = 1}};
constexpr LayerShape kDepthwiseLayers[] = {
    {.side = 28, .inputs = 96, .outputs = 96, .kernel = 3, .stride = 1, .groups = 96},
    {.side = 14, .inputs = 240, .outputs = 240, .kernel = 5, .stride = 1, .groups = 240}};

/// A layer of any numbers, whose passes are timed.
class TimedLayer {
 public:
  explicit TimedLayer(const LayerShape& layer)
      : images_(full({16, layer.inputs, layer.side, layer.side}).requires_grad_()),
        weight_(full({layer.outputs, layer.inputs / layer.groups, layer.kernel, layer.kernel})
                    .requires_grad_()),
        stride_{layer.stride},
        padding_{layer.kernel / 2},
        groups_(layer.groups) {}

  /// Returns the seconds of a core for a pass forward and back by whose kernels: ours, or
  /// LibTorch's, where of depthwise layers the gradients are ours in any case.
  double seconds(bool is_ours) const {
    const double before = process_cpu_seconds();
    const at::Tensor outputs = forward(is_ours);
    torch::autograd::grad({outputs}, {images_, weight_}, {outputs.detach()});
    return process_cpu_seconds() - before;
  }

 private:
  static at::Tensor full(at::IntArrayRef sizes) {
    return at::full(sizes, 0.5, on_host(at::kFloat)).contiguous(at::MemoryFormat::ChannelsLast);
  }

  at::Tensor forward(bool is_ours) const {
    const ConvolutionCall call{.images = images_,
        .weight = weight_,
        .bias = no_bias_,
        .stride = stride_,
        .padding = padding_,
        .dilation = dilation_,
        .groups = groups_};
    if (groups_ == 1) return conv2d(call, is_ours ? Kernels::kOwn : Kernels::kLibTorch);
    return depthwise_conv2d(call, *depthwise_kernels().back(),
        is_ours ? DepthwisePart::kAll : DepthwisePart::kGradients);
  }

  at::Tensor images_, weight_, no_bias_;
  std::array<std::int64_t, 1> stride_, padding_, dilation_{1};
  std::int64_t groups_;
};

// The quickest of some passes, in turn; the first one pays for memory.
double time_of(std::span<const LayerShape> layers) {
  constexpr int kPasses = 4;
  double ours = 0, theirs = 0;
  for (const LayerShape& layer : layers) {
    const TimedLayer timed(layer);
    double own = std::numeric_limits<double>::infinity(), other = own;
    for (int pass = 0; pass < kPasses; ++pass) {
      own = std::min(own, timed.seconds(/*is_ours=*/true));
      other = std::min(other, timed.seconds(/*is_ours=*/false));
    }
    ours += own;
    theirs += other;
  }
  return ours / theirs;
}

/// The times in a file, and the processor that took them.
struct KindRecord {
  std::string processor;
  KindTimes times;
};

template <typename Object>
void list_fields(Object& object, KindRecord& record) {
  object("processor", record.processor);
  object("products", record.times.products);
  object("window_products", record.times.window_products);
  object("depthwise_outputs", record.times.depthwise_outputs);
}

std::optional<KindTimes> times_in(const std::filesystem::path& file, const std::string& processor) {
  try {
    const auto json = nlohmann::json::parse(text_in(file), nullptr, /*allow_exceptions=*/false);
    const auto record = JsonReader::read<KindRecord>(JsonFields(json, file.string()));
    return record.processor == processor ? std::optional(record.times) : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;  // of another version, or damaged
  }
}

// Of processes that measure at the same time the first one's file stays, for all of them.
void leave(const KindRecord& record, const std::filesystem::path& file) {
  const std::filesystem::path aside = concat(file.string(), ".", ::getpid());
  std::filesystem::create_directories(file.parent_path());
  replace_file(aside, JsonWriter::json_of(record).dump() + "\n");
  static_cast<void>(::link(aside.c_str(), file.c_str()));
  std::filesystem::remove(aside);
}

std::filesystem::path folder_for_caches() {
  const std::string folder = system_variable("XDG_CACHE_HOME"), home = system_variable("HOME");
  if (!folder.empty()) return std::filesystem::path(folder) / "lockstep";
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache/lockstep";
}

// All that decides how fast either side is.
std::string processor_here(simd::InstructionSet ours) {
  return concat(simd::processor_name(), "; ", simd::processor_features(), "; ",
      static_cast<int>(ours), "; ", system_variable("ONEDNN_MAX_CPU_ISA"), "; ", TORCH_VERSION,
      "; ", LOCKSTEP_VERSION);
}

/// A scope of one thread: threads that wait for each other count as busy, so that what other
/// programs take of the cores would decide. LibTorch is left alike whether there is a file or not.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

FasterKinds kinds_here() {
  const simd::InstructionSet ours = simd::instructions_in_use();
  const auto known = known_kinds(ours, simd::processor_features());
  if (known) return *known;
  const OneThread alone;
  return faster_by(remembered_times(folder_for_caches(), processor_here(ours), measured_times));
}

}  // namespace

std::optional<FasterKinds> known_kinds(simd::InstructionSet ours, const std::string& features) {
  if (ours == simd::InstructionSet::kPlain) return FasterKinds{};
  // Only AMD's and Hygon's have SSE4a.
  const bool is_known = ours == simd::InstructionSet::kAvx2 &&
                        simd::has_feature(features, "sse4a") &&
                        !simd::has_feature(features, "avx512f");
  return is_known ? std::optional(FasterKinds{true, true, true}) : std::nullopt;
}

KindTimes measured_times() {
  const c10::InferenceMode no_inference(false);
  const at::AutoGradMode with_gradients(true);
  return {.products = time_of(kProductLayers),
      .window_products = time_of(kStridedLayers),
      .depthwise_outputs = time_of(kDepthwiseLayers)};
}

FasterKinds faster_by(const KindTimes& times) {
  constexpr double kClearly = 0.95;
  return {.products = times.products < kClearly,
      .window_products = times.window_products < kClearly,
      .depthwise_outputs = times.depthwise_outputs < kClearly};
}

KindTimes remembered_times(const std::filesystem::path& folder, const std::string& processor,
    const std::function<KindTimes()>& measure) {
  if (folder.empty()) return measure();
  const auto hash = std::hash<std::string>()(processor);
  const std::filesystem::path file = folder / concat("convolutions-", std::hex, hash, ".json");
  if (const auto times = times_in(file, processor)) return *times;
  const KindTimes own = measure();
  try {
    if (!times_in(file, processor)) {
      std::filesystem::remove(file);
      leave({processor, own}, file);
    }
  } catch (const std::exception&) {
    return own;  // a folder that cannot be written to, or a full disk
  }
  return times_in(file, processor).value_or(own);
}

const FasterKinds& faster_kinds() {
  static const FasterKinds kHere = kinds_here();
  return kHere;
}

}  // namespace lockstep::nn::conv
