#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::plan {

/// The seconds that something takes, as a function of the batch, or of other amounts: straight
/// lines between those that were measured.
///
/// Beyond the largest batch the last line goes on. Below the smallest the first one does, but never
/// above what the smallest batch takes, nor below its share by samples. Nothing takes no time.
class CostCurve {
 public:
  struct Point {
    double batch = 0, seconds = 0;
  };

  /// A straight line, the least squares through the points: fixed + batch * per_sample.
  struct Line {
    double fixed = 0, per_sample = 0;
  };

  /// Takes no time at any batch.
  CostCurve() = default;

  /// Throws InvalidArgument unless batches are above 0 and differ, and seconds are 0 or more.
  explicit CostCurve(std::vector<Point> points);

  double operator()(double batch) const;

  /// Fits the line; one point gives a cost without a fixed part.
  Line line() const;

  CostCurve times(double factor) const;

  const std::vector<Point>& points() const { return points_; }
  bool is_free() const { return points_.empty(); }

 private:
  std::vector<Point> points_;  // by batch
};

/// A connection over which places exchange data.
struct Link {
  double latency = 0;           ///< seconds of a message of nothing
  double bytes_per_second = 0;  ///< in each direction; 0: as fast as you like
  /// The share of a transfer's time in which it keeps a place from computing: 1 where the place
  /// moves the bytes itself, as in shared memory, 0 where an engine of its own does.
  double core_share = 0;
  /// Seconds of a message by its bytes, where they were measured; then the first two only describe.
  CostCurve measured = {};

  double seconds(double bytes) const;
};

/// The slowing of busy places of one node by each other: they share caches, memory and the clock,
/// and cores where there are more places than these.
struct Company {
  /// Item k - 1: how many times as long k places take that compute at once, and k that step their
  /// optimizers, which memory limits. More places than items take as long as the last.
  std::vector<double> compute = {1};
  std::vector<double> memory = {1};
  int cores = 0;  ///< of a node, in places: more than these take turns; 0: each place has its own
  double crowded = 1;  ///< how many times as long places that take turns need, beyond their turns

  double slows_compute(double busy) const;
  double slows_memory(double busy) const;

  /// Returns how many times as long a busy place takes because others use its core.
  double slows_by_turns(double busy) const;
};

/// Throws InvalidArgument unless each list begins with 1 and never falls, and taking turns costs no
/// less than nothing.
void check_company(const Company& company);

/// The costs of one layer of a model's chain on one place: seconds of a batch, bytes of a sample.
struct LayerCurves {
  std::string name;
  CostCurve forward;
  CostCurve backward;                   ///< the gradients of input and weights in one pass
  CostCurve backward_input;             ///< those of the input alone
  CostCurve backward_weight;            ///< those of the weights alone
  double activation_bytes = 0;          ///< that forward keeps for backward, a sample
  double output_bytes = 0;              ///< a sample
  std::vector<double> parameters = {};  ///< bytes of each, in order

  double parameter_bytes() const;

  /// Returns the members that are times.
  static constexpr auto times() {
    using L = LayerCurves;
    return std::array{&L::forward, &L::backward, &L::backward_input, &L::backward_weight};
  }
};

/// The costs of ways of spreading beside computing and links, measured on two places of one node.
struct Overheads {
  CostCurve hand_over = {};  ///< of a micro-batch of so many samples, between two stages
  CostCurve threads = {};    ///< of a step of replicas in threads, by the samples of each
  double socket_core = 0;    ///< seconds of a core for each byte that goes between nodes
  double gradient_core = 0;  ///< seconds of a core for each byte of a gradient that is copied to a
                             ///< bucket, or added to that of an earlier micro-batch
  double replica_bytes = 0;  ///< of memory that ddp needs within a node
  double socket_bytes = 0;   ///< of memory that it needs between nodes
};

/// The training that a profile was measured by, beside model and precision: with its words a way
/// that the profile is asked about is trained alike.
struct MeasuredTraining {
  std::string plugin = {};  ///< shared library with the model; empty: none
  std::string data = "mock:constant";
  int cores_a_place = 1;
  std::vector<std::string> flags = {};  ///< more words
};

/// The costs of training a model on one place of a device, measured there or taken from elsewhere.
struct ModelProfile {
  std::string model;
  std::string precision;  ///< as --precision takes it
  std::string device;     ///< `Intel Xeon, 1 core`
  std::string source;     ///< the command that measured it, or who published it
  bool is_measured = false;
  bool is_estimated = false;    ///< moved to a device with a TrainingRate that is
  bool is_of_products = false;  ///< moved to a device where matrix products take most of its time
  std::vector<LayerCurves> layers;
  CostCurve input = {};      ///< waiting for a batch
  CostCurve rest = {};       ///< of a step, that belongs to no layer: the loss, the bookkeeping
  double optimizer = 0;      ///< seconds a step, for all parameters
  double state_copies = 0;   ///< of the parameters, that the optimizer keeps: 2 for Adam
  double process_bytes = 0;  ///< that a process has before its first step
  double noise = 0;          ///< relative standard deviation of equal steps
  double flops = 0;          ///< of forward and backward, a sample; 0: not known
  double product_flops = 0;  ///< those of them in matrix products, and not in convolutions
  Company company = {};      ///< of places of this device in one node
  Link within = {};          ///< between these places
  bool knows_within = true;  ///< else one place alone was measured
  Overheads overheads = {};
  std::optional<MeasuredTraining> training = {};  ///< none: not known

  double parameter_bytes() const;
  double activation_bytes() const;

  /// Returns the seconds of a step in one place, with nothing else on the machine.
  double step_seconds(double batch) const;

  /// Returns the same costs on a device whose step of this batch takes so long.
  ModelProfile scaled_to(double batch, double seconds) const;
};

/// Throws InvalidArgument for a profile without layers, or a number that cannot be.
void check_profile(const ModelProfile& profile);

/// Writes a profile as JSON, and reads it. What a profile cannot hold is a DataError that names the
/// file.
std::string profile_text(const ModelProfile& profile);
ModelProfile parse_profile(const std::string& text, const std::string& file);

/// A step that was measured as a whole.
struct WholeStep {
  std::string model;
  double batch = 1;
  double seconds = 0;          ///< of a step with this batch on one place
  double parameter_bytes = 0;  ///< spread evenly over the layers
};

/// Makes a profile of equal layers, a third of whose time is forward. It tells how much of an
/// exchange hides behind backward, and nothing about cuts or other batches: time is taken to grow
/// with the samples. Throws InvalidArgument for a step that takes no time.
ModelProfile coarse_profile(const WholeStep& step);

/// The rate that the training of a net reaches on a device.
struct TrainingRate {
  double flops = 0;    ///< FLOP/s
  std::string source;  ///< whose training it was
  /// Nobody has published such a training: the share of the data sheet's peak that a V100 reaches.
  bool is_estimated = false;
};

/// The rates of nets of convolutions, and of transformers, which are matrix products.
struct TrainingRates {
  TrainingRate convolutions = {};
  TrainingRate products = {};
};

/// An accelerator as data sheets and published trainings describe it; an H200 as we measured it.
struct Device {
  std::string name;  ///< as --device takes it: `V100`
  double memory_bytes = 0;
  double bytes_per_second = 0;  ///< of its memory
  Link within = {};             ///< between such devices of one node
  TrainingRates rates_32 = {};
  TrainingRates rates_mixed = {};  ///< those of fp32 where it has no mixed precision
};

/// Returns the devices that are known: K80, V100, TITAN-RTX, T4, A100, H100, H200, L4.
const std::vector<Device>& known_devices();

/// Finds a device, in any case of its letters. Throws InvalidArgument that lists the names.
const Device& device_of(const std::string& name);

/// Returns the profile in another precision, which no measurement confirms: half types halve the
/// bytes of activations. For on_device(), which knows how fast that is.
ModelProfile in_precision(ModelProfile profile, const std::string& precision);

/// Returns the profile that this model may have on such a device.
///
/// The whole step takes the model's FLOP at the rates that the device reaches in convolutions and
/// in matrix products, shared among the layers as on the device of the profile; but no layer takes
/// less than its kernels need to be started, so small batches gain nothing. The optimizer is bound
/// by the device's memory. Throws InvalidArgument for a profile that does not say how many FLOP a
/// sample takes.
ModelProfile on_device(const ModelProfile& profile, const Device& device);

}  // namespace lockstep::plan
