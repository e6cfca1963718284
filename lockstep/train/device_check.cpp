#include "lockstep/train/device_check.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <c10/core/StreamGuard.h>

#include "lockstep/comm/device/device_backends.h"
#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/snapshot/host_copy.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/devices.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

using Devices = std::vector<torch::Device>;

/// A way of training, by threads that are its ranks.
struct TriedWay {
  Parallel parallel = Parallel::kSerial;
  int ranks = 1;
  Precision precision = Precision::k32;
};

// Each throws what was not as it should be, on the device or between them.

using torch::Tensor;

constexpr std::int64_t kNumbers = std::int64_t{1} << 20;
constexpr int kSteps = 8;
constexpr std::int64_t kCheckImages = 32;
constexpr double kTolerance = 2e-3;  // GPUs add up in another order
constexpr double kHalfTolerance = 2e-2;
constexpr auto kPatience = std::chrono::seconds(60);

void expect(bool is_so, const std::string& otherwise) {
  if (!is_so) throw Error(otherwise);
}

Tensor numbers() {
  return at::rand({kNumbers}, at::make_generator<at::CPUGeneratorImpl>(1), torch::kFloat);
}

Tensor pinned(const Tensor& tensor) {
  return at::empty_like(tensor, tensor.options().pinned_memory(true)).copy_(tensor);
}

void on_ranks(const Devices& devices, const std::function<void(const ProcessGroup&)>& body) {
  run_ranks(static_cast<int>(devices.size()), [&](const ProcessGroup& world) {
    world.set_timeout(kPatience);
    body(world.with_device(devices[static_cast<std::size_t>(world.rank())]));
  });
}

// Among ranks that each have the whole net, or gather it.
bool divides_batches(Parallel parallel) {
  return parallel == Parallel::kDdp || parallel == Parallel::kFsdp;
}

TrainOptions options_of(const TriedWay& way, int places) {
  const bool is_replicated = divides_batches(way.parallel) || is_replicated_stages(way.parallel);
  TrainOptions options;
  options.model = "mnist-small";
  options.parallel = way.parallel;
  options.precision = way.precision;
  options.batch_size = kCheckImages / (is_replicated ? way.ranks : 1);
  if (places > 1) options.places = places;
  if (plan_layout(options, way.ranks).stages > 1) options.pipeline.balance = Balance::kCount;
  options.optimizer.lr = 1e-3;
  return options;
}

// The part of a replica, of the same images for all ways.
Batch batch_of(int step, const ProcessGroup& replicas) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(step));
  const Tensor images = at::rand({kCheckImages, 1, 28, 28}, generator);
  const Tensor labels = at::randint(10, {kCheckImages}, generator, torch::kLong);
  const std::int64_t share = kCheckImages / replicas.size(), first = replicas.rank() * share;
  return {images.narrow(0, first, share), labels.narrow(0, first, share)};
}

// Trains on these places, divided evenly among the ranks, and returns the mean losses of the steps.
std::vector<double> losses_of(const TriedWay& way, const Devices& devices) {
  std::vector<double> losses;
  const int each = static_cast<int>(devices.size()) / way.ranks;
  const TrainOptions options = options_of(way, each);
  run_ranks(way.ranks, [&](const ProcessGroup& world) {
    std::vector<Place> places;
    const auto first = devices.begin() + world.rank() * each;
    for (auto device = first; device != first + each; ++device) places.push_back({*device, {}});
    world.set_timeout(kPatience);
    const ProcessGroup group = world.with_devices(devices_of(places));
    const Layout layout = plan_layout(options, way.ranks);
    const RankGroups groups = make_rank_groups(group, layout);
    const auto replica = make_replica(options, layout, {{1, 28, 28}, 10}, groups, places);
    replica->set_training(true);
    for (int step = 0; step < kSteps; ++step) {
      const Tensor loss =
          replica->backward(batch_of(step, groups.replicas), {}, step).cpu().to(torch::kDouble);
      replica->update(options.optimizer.lr);
      groups.replicas.all_reduce(loss, ReduceOp::kMean).wait();
      if (world.rank() == 0) losses.push_back(loss.item<double>());
    }
  });
  return losses;
}

// What a side stream brings must be complete for the stream that computes, and the other way.
/// Copies from pinned memory and back on a side stream, beside computing.
void try_copies_and_streams(torch::Device device) {
  DeviceCopier copier(device);
  const Tensor expected = numbers() * 3 + 1;
  for (int round = 0; round < 20; ++round) {
    const Tensor there = copier(pinned(numbers())) * 3;
    const c10::Stream side = side_stream(device);
    wait_for(side, current_stream(device));
    const c10::StreamGuard scope(side);
    const Tensor back = (there + 1).cpu();
    there.record_stream(side);
    expect(back.equal(expected), "what came back is not what was sent and computed");
  }
}

/// Multiplies and convolves in bfloat16; returns how fast, in a half sentence.
std::string speed_text(torch::Device device) {
  const auto rounded = [](double flops) { return std::to_string(std::lround(flops / 1e9)); };
  return concat("with ", rounded(product_flops_per_second(device, torch::kBFloat16)),
      " GFLOP/s in products of bfloat16 matrices, ",
      rounded(convolution_flops_per_second(device, torch::kBFloat16)), " in convolutions");
}

/// Copies from one device to another.
void try_copies_between(torch::Device from, torch::Device to) {
  const Tensor sent = numbers().to(from);
  expect((sent * 2).to(to).cpu().equal(numbers() * 2), "a copy differs from what was sent");
}

// Training goes on while the copy is under way.
/// Takes what a snapshot would of a tensor that the device goes on to change.
void try_snapshot(torch::Device device) {
  const Tensor weight = numbers().to(device);
  nn::NamedTensors tensors;
  tensors.insert("weight", weight);
  HostCopy copy;
  for (int round = 1; round <= 4; ++round) {
    copy.begin({tensors});
    const Tensor computed_beside = weight * weight;
    copy.let_writers_wait();
    weight.mul_(2);
    const auto saved = copy.row_major().front().front().bytes;
    const Tensor expected = numbers() * std::exp2(round - 1);
    expect(std::memcmp(saved.data(), expected.const_data_ptr(), saved.size()) == 0,
        "what a snapshot holds is not what it was taken of");
  }
}

/// Reduces over the devices, and sends a message round them; returns the engine's name.
std::string try_collectives(const Devices& devices) {
  std::string engine;
  on_ranks(devices, [&](const ProcessGroup& group) {
    const int rank = group.rank(), ranks = group.size();
    if (rank == 0) engine = group.device_backend_name();
    const torch::Device device = devices[static_cast<std::size_t>(rank)];
    const Tensor sum = (numbers() + rank).to(device), sent = (numbers() * (rank + 1)).to(device);
    group.all_reduce(sum).wait();
    const Tensor expected = numbers() * ranks + ranks * (ranks - 1) / 2;
    expect(sum.cpu().allclose(expected), "all_reduce gives wrong sums");
    const Tensor received = at::empty_like(sent);
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    Work sending = group.send(sent, next);
    group.recv(received, before).wait();
    sending.wait();
    expect(received.cpu().equal(numbers() * (before + 1)), "a message differs from what was sent");
  });
  return engine;
}

/// Reduces, gathers and scatters in a world of this device alone; returns the engine's name.
std::string try_engine(torch::Device device) {
  const ProcessGroup alone(make_routed_backend(std::make_shared<SingleBackend>(), {device}));
  const Tensor tensor = numbers().to(device), gathered = at::empty_like(tensor);
  for (int round = 0; round < 20; ++round) {
    tensor.add_(1);
    alone.all_reduce(tensor, ReduceOp::kMean).wait();
    alone.broadcast(tensor, 0).wait();
    alone.all_gather(gathered, tensor).wait();
    alone.reduce_scatter(tensor, gathered).wait();
  }
  expect(tensor.cpu().allclose(numbers() + 20), "collectives of one rank change what it has");
  return alone.device_backend_name();
}

/// Trains a small net on the devices, divided evenly among the ranks; expects the losses of the
/// CPU.
void try_training(
    const TriedWay& way, const Devices& devices, const std::vector<double>& expected) {
  const bool is_half = way.precision != Precision::k32;
  const double tolerance = is_half ? kHalfTolerance : kTolerance;
  const std::vector<double> found = losses_of(way, devices);
  for (std::size_t step = 0; step < expected.size(); ++step)
    expect(std::abs(found.at(step) - expected[step]) <= tolerance,
        concat(
            "the loss of step ", step + 1, " is ", found[step], ", on the CPU ", expected[step]));
}

std::string engine_text(const std::string& engine) {
  return engine == "nccl" ? "by NCCL " + nccl::version() : "by way of the host";
}

std::string collectives(const Devices& devices) { return engine_text(try_collectives(devices)); }

// NCCL takes no two ranks on one GPU.
class NoEngine {
 public:
  explicit NoEngine(torch::DeviceType type)
      : type_(type), before_(register_device_backend(type, nullptr)) {}
  ~NoEngine() { register_device_backend(type_, before_); }
  NoEngine(const NoEngine&) = delete;
  NoEngine& operator=(const NoEngine&) = delete;

 private:
  torch::DeviceType type_;
  MakeDeviceBackend before_;
};

class Checker {
 public:
  explicit Checker(const std::function<void(const DeviceFinding&)>& report) : report_(report) {}

  /// Of a trial that says how it was made.
  void attempt_by(const std::string& what, const std::function<std::string()>& trial) {
    DeviceFinding finding{.what = what};
    const Stopwatch watch;
    try {
      finding.detail = trial();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      finding.failure = text.substr(0, text.find('\n'));
    }
    finding.seconds = watch.seconds();
    report_(finding);
    findings_.push_back(std::move(finding));
  }

  void attempt(const std::string& what, const std::function<void()>& trial) {
    attempt_by(what, [&] {
      trial();
      return std::string();
    });
  }

  void train(const std::string& what, const TriedWay& way, const Devices& devices) {
    attempt(what, [&] { try_training(way, devices, losses_of_cpu(way.precision)); });
  }

  std::vector<DeviceFinding> take() { return std::move(findings_); }

 private:
  // Computed once for all ways: in 16 bits the CPU is slow.
  const std::vector<double>& losses_of_cpu(Precision precision) {
    std::vector<double>& losses = losses_of_cpu_[precision];
    if (losses.empty()) losses = losses_of({.precision = precision}, {torch::kCPU});
    return losses;
  }

  const std::function<void(const DeviceFinding&)>& report_;
  std::vector<DeviceFinding> findings_;
  std::map<Precision, std::vector<double>> losses_of_cpu_;
};

void check_alone(Checker& checker, const Devices& devices) {
  for (const torch::Device& device : devices) {
    const std::string name = device.str() + ": ";
    checker.attempt(name + "copies and streams", [&] { try_copies_and_streams(device); });
    checker.attempt_by(name + "arithmetic", [&] { return speed_text(device); });
    checker.train(name + "training", {}, {device});
    checker.train(name + "training in 16-mixed", {.precision = Precision::k16Mixed}, {device});
    checker.attempt(name + "snapshot", [&] { try_snapshot(device); });
  }
}

void check_pairs(Checker& checker, const Devices& devices) {
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      const std::string names = concat(devices[a].str(), " and ", devices[b].str(), ": ");
      checker.attempt(names + "copies", [&] {
        try_copies_between(devices[a], devices[b]);
        try_copies_between(devices[b], devices[a]);
      });
      checker.attempt_by(names + "collectives", [&] {
        return collectives({devices[a], devices[b]});
      });
    }
  }
}

struct NamedWay {
  const char* name;
  TriedWay way;
};
const NamedWay kOnTwo[] = {{"dp", {Parallel::kDp}}, {"ddp", {Parallel::kDdp, 2}},
    {"ddp in 16-mixed", {Parallel::kDdp, 2, Precision::k16Mixed}}, {"fsdp", {Parallel::kFsdp, 2}},
    {"mp", {Parallel::kMp}}, {"pp in one process", {Parallel::kPp}},
    {"pp over ranks", {Parallel::kPp, 2}}};

void check_ways(Checker& checker, const Devices& all) {
  if (all.size() > 2) checker.attempt_by("all: collectives", [&] { return collectives(all); });
  for (const auto& [name, way] : kOnTwo) checker.train(name, way, {all[0], all[1]});
  if (all.size() >= 4)
    checker.train("ddp+pp", {Parallel::kDdpPp, 2}, Devices(all.begin(), all.begin() + 4));
}

// Without ddp and fsdp, whose ranks are threads here: LibTorch computes all backward of a device on
// one thread, and in it each of two ranks would wait for the other.
void check_twice(Checker& checker, const torch::Device& device) {
  checker.attempt_by(
      device.str() + ": collectives of one rank", [&] { return engine_text(try_engine(device)); });
  const NoEngine by_way_of_the_host(device.type());
  const std::string prefix = device.str() + " twice: ";
  const Devices two{device, device};
  checker.attempt_by(prefix + "collectives", [&] { return collectives(two); });
  for (const auto& [name, way] : kOnTwo)
    if (!divides_batches(way.parallel)) checker.train(prefix + name, way, two);
}

}  // namespace

Devices devices_of_type(torch::DeviceType type) {
  Devices devices;
  for (int index = 0; index < device_count(type); ++index)
    devices.emplace_back(type, static_cast<torch::DeviceIndex>(index));
  return devices;
}

std::vector<DeviceFinding> check_devices(
    const Devices& devices, const std::function<void(const DeviceFinding&)>& report) {
  check(!devices.empty(), "check_devices: there is no device to check");
  const ExactFloat32 exact;
  Checker checker(report);
  check_alone(checker, devices);
  check_pairs(checker, devices);
  if (devices.size() == 1) check_twice(checker, devices.front());
  if (devices.size() >= 2) check_ways(checker, devices);
  return checker.take();
}

std::string not_tried_on(int devices) {
  if (devices < 2)
    return "one device cannot show copies and collectives (NCCL) between devices, ddp, fsdp and "
           "ddp+pp; dp, mp and pp ran on it twice";
  return devices < 4 ? "less than four devices cannot show ddp+pp" : "";
}

}  // namespace lockstep
