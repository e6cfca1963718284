#include "lockstep/nn/fused/squeeze_excite_kernel.h"

#include "lockstep/nn/fused/activation_vectors.h"
#include "lockstep/simd/vectors.h"

// The loops of squeeze and excitation behind a batch norm, compiled once for each instruction set.
//
// Note [Squeeze and excitation]
//
//     x -- norm -- activation -- a -------------------- a g -- y
//                                 \                     /
//                                  mean -- layers -- g       (a gate for each image and channel)
//
// By operators such a block goes over a layer's values in memory 21 times, if batch norm and its
// activation take four passes (see Note [Batch norm in four passes]); these loops, with that
// note's `collect` before them, 12 times:
//
//     squeeze        reads x, writes a          and the mean of a for each image
//     excite         reads a, writes y over it  y = a g
//     reduce         reads x, dy, writes a'     and five sums for each image and channel
//     differentiate  reads x, dy, a', writes dx over a'
//
// a' is the activation's slope. The gradient of a is dy g + e, where e comes by way of the mean. As
// g and e belong to an image, what the norm's gradient sums of it can be told from sums that know
// neither: sum of a' (dy g + e) = g sum of a' dy + e sum of a'. So g's gradient, the sum of dy a,
// is found in the same pass, and each exponential is computed once a pass forward and backward.
//
// A block of an image's pixels is read a vector of channels after the other: sums of a block stay
// in registers, and so does what belongs to a channel.

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::Floats;
using simd::load;
using simd::store;

/// A vector of channels in a block of an image's pixels.
struct Column {
  std::int64_t first, end;         ///< places of its values, every `channels`
  std::int64_t channel, of_image;  ///< the places of what belongs to a channel, or to an image too
  std::int64_t room;               ///< channels from there on
};

/// Calls body with each column of the images.
template <typename Body>
inline void each_column(const ExcitedLayer& layer, Range images, const Body& body) {
  constexpr std::int64_t kPixels = 16;
  for (std::int64_t image = images.begin; image < images.end; ++image) {
    for (std::int64_t pixel = 0; pixel < layer.pixels; pixel += kPixels) {
      const std::int64_t left = layer.pixels - pixel, row = image * layer.pixels + pixel;
      each_vector(layer.channels, [&](std::int64_t channel, std::int64_t room) {
        body(Column{.first = row * layer.channels + channel,
            .end = (row + (left < kPixels ? left : kPixels)) * layer.channels,
            .channel = channel,
            .of_image = image * layer.channels + channel,
            .room = room});
      });
    }
  }
}

inline void add(float* to, Floats sum, std::int64_t room) { store(to, load(to, room) + sum, room); }

inline void clear(float* values, const ExcitedLayer& layer, Range images) {
  for (std::int64_t i = images.begin * layer.channels; i < images.end * layer.channels; ++i)
    values[i] = 0;
}

template <Activation kActivation>
inline void squeeze_of(const SqueezeJob& shared, Range images) {
  // A copy: the means could be the original, for all that the compiler knows. So below.
  const SqueezeJob job = shared;
  const ExcitedLayer& layer = job.layer;
  const float share = 1.0F / static_cast<float>(layer.pixels);
  clear(job.means, layer, images);
  each_column(layer, images, [&](const Column& column) {
    const Floats scale = load(job.scale + column.channel, column.room),
                 shift = load(job.shift + column.channel, column.room);
    Floats sum{};
    for (std::int64_t place = column.first; place < column.end; place += layer.channels) {
      const Floats value =
          activated<kActivation>(load(job.inputs + place, column.room) * scale + shift);
      store(job.values + place, value, column.room);
      sum += value;
    }
    add(job.means + column.of_image, sum * share, column.room);
  });
}

inline void excite(const ExciteJob& shared, Range images) {
  const ExciteJob job = shared;
  each_column(job.layer, images, [&](const Column& column) {
    const Floats gate = load(job.gates + column.of_image, column.room);
    for (std::int64_t place = column.first; place < column.end; place += job.layer.channels)
      store(job.values + place, load(job.values + place, column.room) * gate, column.room);
  });
}

template <Activation kActivation>
inline void reduce_column(const ExciteReduceJob& job, const Column& column) {
  const Floats scale = load(job.scale + column.channel, column.room),
               shift = load(job.shift + column.channel, column.room),
               mean = load(job.mean + column.channel, column.room);
  Floats values{}, passed{}, passed_products{}, slopes{}, slope_products{};
  for (std::int64_t place = column.first; place < column.end; place += job.layer.channels) {
    const Floats input = load(job.inputs + place, column.room), seen = input * scale + shift;
    const Floats gradient = load(job.gradients + place, column.room);
    const Floats slope = passed_back<kActivation>(seen, simd::all(1));
    const Floats product = slope * (input - mean);
    store(job.slopes + place, slope, column.room);
    values += gradient * activated<kActivation>(seen);
    passed += gradient * slope;
    passed_products += gradient * product;
    slopes += slope;
    slope_products += product;
  }
  const ExcitationSums& sums = job.sums;
  add(sums.values + column.of_image, values, column.room);
  add(sums.passed + column.of_image, passed, column.room);
  add(sums.passed_products + column.of_image, passed_products, column.room);
  add(sums.slopes + column.of_image, slopes, column.room);
  add(sums.slope_products + column.of_image, slope_products, column.room);
}

template <Activation kActivation>
inline void reduce_of(const ExciteReduceJob& shared, Range images) {
  const ExciteReduceJob job = shared;
  const ExcitationSums& sums = job.sums;
  float* const all[] = {
      sums.values, sums.passed, sums.passed_products, sums.slopes, sums.slope_products};
  for (float* const each : all) clear(each, job.layer, images);
  each_column(
      job.layer, images, [&](const Column& column) { reduce_column<kActivation>(job, column); });
}

inline void differentiate_column(const ExciteGradientJob& job, const Column& column) {
  const auto of_channel = [&](const float* values) {
    return load(values + column.channel, column.room);
  };
  const Floats mean = of_channel(job.mean), of_gradient = of_channel(job.of_gradient),
               of_input = of_channel(job.of_input), constant = of_channel(job.constant),
               gate = load(job.gates + column.of_image, column.room),
               share = load(job.shares + column.of_image, column.room);
  for (std::int64_t place = column.first; place < column.end; place += job.layer.channels) {
    const Floats gradient = load(job.gradients + place, column.room) * gate + share;
    const Floats passed = load(job.slopes + place, column.room) * gradient;
    const Floats deviation = load(job.inputs + place, column.room) - mean;
    store(job.slopes + place, passed * of_gradient + deviation * of_input + constant, column.room);
  }
}

inline void differentiate(const ExciteGradientJob& shared, Range images) {
  const ExciteGradientJob job = shared;
  each_column(job.layer, images, [&](const Column& column) { differentiate_column(job, column); });
}

inline void squeeze(const SqueezeJob& job, Range images) {
  with_activation(
      job.activation, [&](auto activation) { squeeze_of<activation.kValue>(job, images); });
}

inline void reduce(const ExciteReduceJob& job, Range images) {
  with_activation(
      job.activation, [&](auto activation) { reduce_of<activation.kValue>(job, images); });
}

}  // namespace

const SqueezeExciteKernel& LOCKSTEP_BUILD(squeeze_excite)() {
  static constexpr SqueezeExciteKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .squeeze = squeeze,
      .excite = excite,
      .reduce = reduce,
      .differentiate = differentiate};
  return kKernel;
}

}  // namespace lockstep::nn::fused
