#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

namespace lockstep {

/// The place in LibTorch's dispatcher where our rules for operators stand: above autograd, so a
/// rule sees the calls of unmodified modules and may compute them by differentiable operators.
///
/// Note [Operator rules]
/// C++ modules hold their layers by type; a layer inside a user's block cannot be replaced, as
/// Python does for SyncBatchNorm and torchgpipe for its deferred batch norm. What can be replaced
/// is the operator that the layer calls. A rule is installed for a thread and a scope; without one,
/// LibTorch runs as if this file did not exist, and operators without a rule are not affected.
inline constexpr c10::DispatchKey kOperatorRules = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Turns the rules of this thread on while it exists.
class [[nodiscard]] OperatorRulesOn {
 public:
  OperatorRulesOn();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

/// Hides the rules while it exists: for a rule that calls the operator itself.
class [[nodiscard]] OperatorRulesOff {
 public:
  OperatorRulesOff() : guard_(kOperatorRules) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

/// Lets the random operators of this thread (dropout, randn, ...) draw from the given generator
/// while it exists, unless a call names one.
///
/// LibTorch has one generator a device for all threads, so replicas and stages that are threads
/// would draw in a random order. With a stream each, a run repeats bit for bit, and a forward that
/// is computed again for its activations sees the same dropout.
///
///     auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
///     const RandomStream stream(generator);
///
/// Operators on other devices than the generator's draw from generators of those devices, made with
/// the same seed when they first do.
class [[nodiscard]] RandomStream {
 public:
  explicit RandomStream(at::Generator generator);
  /// Takes the generators of several devices, the CPU's first.
  explicit RandomStream(std::vector<at::Generator> generators);
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

  /// Returns the stream's generator for a device.
  at::Generator on(c10::Device device) const;
  const std::vector<at::Generator>& generators() const { return generators_; }

 private:
  mutable std::vector<at::Generator>
      generators_;  //< the given one first, then one for each other device
  const RandomStream* before_;
  OperatorRulesOn on_;
};

/// Returns the generators that random operators of this thread draw from: those of its stream, else
/// LibTorch's of the CPU and the device.
std::vector<at::Generator> generators_of_thread(c10::Device device);

/// Copies generators in their states: a RandomStream of the copies draws what one of the originals
/// draws next.
std::vector<at::Generator> copies_of(const std::vector<at::Generator>& generators);

/// Draws a seed for streams: from this thread's stream, else from LibTorch's generator of the CPU,
/// which manual_seed() sets.
std::uint64_t draw_stream_seed();

/// Returns the seed of one of the many streams of a seed, numbered by two indices.
std::uint64_t stream_seed(std::uint64_t seed, std::size_t row, std::size_t column);

/// Makes the generator of that stream.
at::Generator make_stream_generator(std::uint64_t seed, std::size_t row, std::size_t column);

/// The call of LibTorch by a batch norm or instance norm layer in training. Tensors that the layer
/// lacks are undefined.
struct BatchNormCall {
  const torch::Tensor& input;  ///< [N, C, ...]
  torch::Tensor weight;        ///< [C]
  torch::Tensor bias;          ///< [C]
  torch::Tensor running_mean;  ///< [C], updated in place by the usual rule
  torch::Tensor running_var;   ///< [C]
  double momentum;
  double eps;
};

/// A rule for how batch norm layers compute in training.
class BatchNormRule {
 public:
  virtual ~BatchNormRule() = default;
  /// Returns the layer's output, differentiable.
  virtual torch::Tensor batch_norm(const BatchNormCall& call) = 0;

  /// The same for an instance norm layer with running statistics. It normalises each sample by
  /// itself, so a rule may decide on these statistics alone: unless it does, LibTorch computes.
  virtual torch::Tensor instance_norm(const BatchNormCall& call);
};

/// Computes as LibTorch does, by the batch's statistics, and leaves the running ones alone.
torch::Tensor batch_norm_without_running_statistics(const BatchNormCall& call);
torch::Tensor instance_norm_without_running_statistics(const BatchNormCall& call);

/// Applies a rule to the batch norm layers of this thread while it exists (see Note [Operator
/// rules]). Evaluation is not affected, nor are outputs of instance norm layers.
class [[nodiscard]] BatchNormScope {
 public:
  explicit BatchNormScope(BatchNormRule& rule);
  ~BatchNormScope();
  BatchNormScope(const BatchNormScope&) = delete;
  BatchNormScope& operator=(const BatchNormScope&) = delete;

 private:
  BatchNormRule* before_;
  OperatorRulesOn on_;
};

/// A rule by which running statistics follow the whole batch although it passes in micro-batches.
///
/// Each micro-batch is normalised by its own statistics; the running ones are updated once, by
/// commit(), with mean and unbiased variance of all samples together. Statistics are merged by
/// Chan's formulas, in the order of the micro-batches. Those of instance norm layers are the means
/// over the samples.
class DeferredBatchNorm final : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override;
  torch::Tensor instance_norm(const BatchNormCall& call) override;

  /// Updates the running statistics of all layers that were called since the last time.
  void commit();

  /// Forgets what came since the last time: a step that did not end has no statistics.
  void discard() { layers_.clear(); }

 private:
  // The unit that each value describes: a channel of the whole batch, or of one sample.
  enum class Unit { kBatch, kSample };
  struct Layer {
    torch::Tensor running_mean, running_var;
    Unit unit = Unit::kBatch;
    double momentum = 0;
    double count = 0;    ///< values a channel, or samples
    torch::Tensor mean;  ///< double [C]
    /// Sum of squared deviations, or of the samples' unbiased variances; double [C].
    torch::Tensor squares;
  };
  Layer& layer_of(const BatchNormCall& call, Unit unit);
  void add(const BatchNormCall& call);
  void add_samples(const BatchNormCall& call);

  std::vector<Layer> layers_;
};

/// Returns whether a rule for batch norms is in force in this thread.
bool has_batch_norm_rule();

/// A rule that leaves running statistics alone: for a forward that is computed a second time.
class FrozenStatistics final : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override {
    return batch_norm_without_running_statistics(call);
  }
  torch::Tensor instance_norm(const BatchNormCall& call) override {
    return instance_norm_without_running_statistics(call);
  }
};

}  // namespace lockstep
