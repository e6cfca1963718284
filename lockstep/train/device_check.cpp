#include "lockstep/train/device_check.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <c10/core/StreamGuard.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/train/strategy/devices.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

using torch::Tensor;

constexpr std::int64_t kNumbers = std::int64_t{1} << 20;
constexpr int kSteps = 8;
constexpr std::int64_t kCheckImages = 32;
constexpr double kTolerance = 2e-3;  // GPUs add up in another order
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

// What a side stream brings must be complete for the stream that computes, and the other way.
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

void try_copies_between(torch::Device from, torch::Device to) {
  const Tensor sent = numbers().to(from);
  expect((sent * 2).to(to).cpu().equal(numbers() * 2), "a copy differs from what was sent");
}

using Devices = std::vector<torch::Device>;

void on_ranks(const Devices& devices, const std::function<void(const ProcessGroup&)>& body) {
  run_ranks(static_cast<int>(devices.size()), [&](const ProcessGroup& world) {
    world.set_timeout(kPatience);
    body(world.with_device(devices[static_cast<std::size_t>(world.rank())]));
  });
}

void try_collectives(const Devices& devices) {
  on_ranks(devices, [&](const ProcessGroup& group) {
    const int rank = group.rank(), ranks = group.size();
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
}

TrainOptions options_of(Parallel way, int places, int ranks) {
  TrainOptions options;
  options.model = "mnist-small";
  options.parallel = way;
  options.batch_size = kCheckImages / (way == Parallel::kDdp ? ranks : 1);
  if (places > 1) options.places = places;
  if (way == Parallel::kPp || way == Parallel::kMp) options.pipeline.balance = Balance::kCount;
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
std::vector<double> losses_of(Parallel way, const Devices& devices, int ranks) {
  std::vector<double> losses;
  const int each = static_cast<int>(devices.size()) / ranks;
  const TrainOptions options = options_of(way, each, ranks);
  run_ranks(ranks, [&](const ProcessGroup& world) {
    std::vector<Place> places;
    const auto first = devices.begin() + world.rank() * each;
    for (auto device = first; device != first + each; ++device) places.push_back({*device, {}});
    world.set_timeout(kPatience);
    const ProcessGroup group = world.with_devices(devices_of(places));
    const Layout layout = plan_layout(options, ranks);
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

void try_training(Parallel way, const Devices& devices, int ranks) {
  const std::vector<double> expected = losses_of(Parallel::kSerial, {torch::kCPU}, 1);
  const std::vector<double> found = losses_of(way, devices, ranks);
  for (std::size_t step = 0; step < expected.size(); ++step)
    expect(std::abs(found.at(step) - expected[step]) <= kTolerance,
        concat(
            "the loss of step ", step + 1, " is ", found[step], ", on the CPU ", expected[step]));
}

class Checker {
 public:
  explicit Checker(const std::function<void(const DeviceFinding&)>& report) : report_(report) {}

  void attempt(const std::string& what, const std::function<void()>& trial) {
    DeviceFinding finding{.what = what, .failure = {}};
    const Stopwatch watch;
    try {
      trial();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      finding.failure = text.substr(0, text.find('\n'));
    }
    finding.seconds = watch.seconds();
    report_(finding);
    findings_.push_back(std::move(finding));
  }

  std::vector<DeviceFinding> take() { return std::move(findings_); }

 private:
  const std::function<void(const DeviceFinding&)>& report_;
  std::vector<DeviceFinding> findings_;
};

void check_alone(Checker& checker, const Devices& devices) {
  for (const torch::Device& device : devices) {
    const std::string name = device.str() + ": ";
    checker.attempt(name + "copies and streams", [&] { try_copies_and_streams(device); });
    checker.attempt(name + "training", [&] { try_training(Parallel::kSerial, {device}, 1); });
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
      checker.attempt(names + "collectives", [&] { try_collectives({devices[a], devices[b]}); });
    }
  }
}

void check_ways(Checker& checker, const Devices& all) {
  const Devices two(all.begin(), all.begin() + 2);
  const int count = static_cast<int>(all.size());
  if (count > 2) checker.attempt("all: collectives", [&] { try_collectives(all); });
  checker.attempt("dp", [&] { try_training(Parallel::kDp, two, 1); });
  checker.attempt("ddp", [&] { try_training(Parallel::kDdp, two, 2); });
  checker.attempt("mp", [&] { try_training(Parallel::kMp, two, 1); });
  checker.attempt("pp in one process", [&] { try_training(Parallel::kPp, two, 1); });
  checker.attempt("pp over ranks", [&] { try_training(Parallel::kPp, two, 2); });
}

}  // namespace

std::vector<DeviceFinding> check_devices(
    torch::DeviceType type, const std::function<void(const DeviceFinding&)>& report) {
  Devices devices;
  for (int index = 0; index < device_count(type); ++index)
    devices.emplace_back(type, static_cast<torch::DeviceIndex>(index));
  check(!devices.empty(), "check_devices: there is no device of type ", device_type_name(type));
  Checker checker(report);
  check_alone(checker, devices);
  check_pairs(checker, devices);
  if (devices.size() >= 2) check_ways(checker, devices);
  return checker.take();
}

}  // namespace lockstep
