// What passes between stages of a pipeline does so beside what they compute: shown by kernels that
// do not end.

#include <chrono>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <latch>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/accelerator/ways/on_devices.h"
#include <ATen/ops/rand.h>
#include <c10/core/StreamGuard.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/device/accelerator.h"
#include "lockstep/nn/grad_scaler.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep::emulated {
namespace {

using ::testing::Each;

/// A kernel on a stream that does not end before somebody opens the gate: what the stream is given
/// later, and what waits for that, cannot run. So a test shows what does not wait for it.
class Gate {
 public:
  explicit Gate(const c10::Stream& stream) : end_(streams().make_open()) {
    streams().wait(Runtime::get().number_of(stream), end_);
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { streams().close(end_.stream); }

 private:
  Mark end_;
};

/// Runs what is on the stream, and what that needs, up to gates; returns whether all of it has run.
bool can_run(const c10::Stream& stream) {
  constexpr int kPieces = 100'000;  // more than a test gives to all streams
  const Mark end = streams().mark(Runtime::get().number_of(stream));
  for (int piece = 0; piece < kPieces && !streams().query(end); ++piece) {
  }
  return streams().is_reached(end);
}

/// The same where other threads, as those of an engine, have yet to give what is needed: waits for
/// them, half a minute at most.
bool can_run_in_time(const c10::Stream& stream) {
  constexpr std::chrono::milliseconds kPause{1}, kPatience{30'000};
  for (auto waited = kPause; waited < kPatience && !can_run(stream); waited += kPause)
    std::this_thread::sleep_for(kPause);
  return can_run(stream);
}

const torch::Device kUpper = device_at(0), kLower = device_at(1);

Payload payload_of(const at::Tensor& tensor) { return {ValueForm::kTensor, {tensor}, 0}; }

/// Two stages of one process, for whose threads the test does what they do.
class CopiesBetweenPlaces : public ::testing::Test {
 protected:
  CopiesBetweenPlaces() { install(); }

  void send(const Address& address, double value, torch::Device from) {
    links_.send(address, payload_of(filled(from, value)));
  }
  at::Tensor receive(const Address& address) { return links_.receive(address).values.at(0); }

 private:
  const std::vector<Place> places_ = {{kUpper, {}}, {kLower, {}}};
  Exchange exchange_;
  LocalLinks links_{exchange_, places_};
};

constexpr Address kActivation{Direction::kForward, 1, 0}, kNext{Direction::kForward, 1, 1};

// Somebody looks on by a stream of his own, since the one that computes is not done.
TEST_F(CopiesBetweenPlaces, WaitForNoOtherComputing) {
  for (const bool up : {false, true}) {
    const torch::Device from = up ? kLower : kUpper, to = up ? kUpper : kLower;
    const Address address = up ? Address{Direction::kBackward, 0, 0} : kActivation;
    const Gate before(current_stream(to));
    send(address, 3, from);
    const Gate after(current_stream(from));
    const c10::StreamGuard own(Runtime::get().make_stream(to.index()));
    const at::Tensor come = receive(address);
    ASSERT_EQ(come.device(), to);
    ASSERT_TRUE(can_run(current_stream(to)));
    EXPECT_THAT(values_of(come), Each(3));
  }
}

TEST_F(CopiesBetweenPlaces, AreNoPartOfWhatTheSenderComputes) {
  send(kActivation, 3, kUpper);
  ASSERT_TRUE(can_run(current_stream(kUpper)));
  const at::Tensor come = receive(kActivation);
  const void* const memory = Runtime::get().memory(kLower.index()).inside(come.const_data_ptr());
  EXPECT_TRUE(std::isnan(*static_cast<const float*>(memory))) << "it has been copied already";
  EXPECT_THAT(values_of(come), Each(3));
}

TEST_F(CopiesBetweenPlaces, WaitForWhatIsSent) {
  Gate computing(current_stream(kUpper));
  send(kActivation, 3, kUpper);
  const at::Tensor come = receive(kActivation);
  EXPECT_FALSE(can_run(current_stream(kLower)));
  computing.open();
  EXPECT_THAT(values_of(come), Each(3));
}

TEST_F(CopiesBetweenPlaces, LaterOnesAreNotWaitedFor) {
  send(kActivation, 3, kUpper);
  const Gate next(current_stream(kUpper));
  send(kNext, 5, kUpper);
  const at::Tensor come = receive(kActivation);
  EXPECT_TRUE(can_run(current_stream(kLower)));
}

TEST_F(CopiesBetweenPlaces, WhatIsSentMayBeGivenAwayAtOnce) {
  send(kActivation, 3, kUpper);
  const at::Tensor next = filled(kUpper, 99);  // where it was, if that is free
  ASSERT_TRUE(can_run(current_stream(kUpper)));
  EXPECT_THAT(values_of(receive(kActivation)), Each(3));
}

TEST_F(CopiesBetweenPlaces, WhatHasComeStaysWhileItIsComputedWith) {
  send(kActivation, 3, kUpper);
  const at::Tensor sum = receive(kActivation) + 1;  // computed when somebody asks for it
  send(kNext, 99, kUpper);
  const c10::StreamGuard own(Runtime::get().make_stream(kLower.index()));
  EXPECT_THAT(values_of(receive(kNext)), Each(99));
  wait_for(current_stream(kLower), c10::Stream(c10::Stream::DEFAULT, kLower));
  EXPECT_THAT(values_of(sum), Each(4));
}

// The last stage scales the loss while the first one goes on, and the other way round.
TEST(ScaleOfTheLoss, IsWhereTheLossIsBeforeTheStep) {
  install();
  nn::GradScaler scaler(nn::GradScalerOptions().init_scale(2), ProcessGroup(), kUpper);
  EXPECT_THAT(values_of(scaler.scale(filled(kLower, 3))), Each(6));
  scaler.update(4);
  Gate upper(current_stream(kUpper));
  const at::Tensor scaled = scaler.scale(filled(kLower, 3));
  EXPECT_TRUE(can_run(current_stream(kLower)));
  upper.open();
  const Gate lower(current_stream(kLower));
  const at::Tensor next = scaler.scale(filled(kLower, 5));
  EXPECT_TRUE(can_run(current_stream(kUpper)));
  const c10::StreamGuard own(Runtime::get().make_stream(kLower.index()));
  EXPECT_THAT(values_of(scaled), Each(12));
}

/// A layer that calls a function with the number of the micro-batch.
torch::nn::Functional calling(std::function<void(int)> call) {
  return torch::nn::Functional(
      [call = std::move(call), micro_batch = 0](const torch::Tensor& input) mutable {
        call(micro_batch++);
        return input;
      });
}

// In stage 0, while it computes the third micro-batch, a kernel does not end: stage 1 computes the
// second one. Then one of stage 1 does not end: stage 0 computes the third.
TEST(PipelineOnDevices, AStageNeedsOfTheOtherOnlyWhatItTakes) {
  install();
  std::optional<Gate> first, second;
  std::latch sent_two(1);
  torch::nn::Linear upper(4, 4), lower(4, 2);
  torch::nn::Sequential net(calling([&](int micro_batch) {
    if (micro_batch != 2) return;
    first.emplace(current_stream(kUpper));
    sent_two.count_down();
  }),
      upper, calling([&](int micro_batch) {
        if (micro_batch == 0) sent_two.wait();
        if (micro_batch == 1) {
          EXPECT_TRUE(can_run(current_stream(kLower)));
          second.emplace(current_stream(kLower));
          first->open();
        }
        if (micro_batch == 2) {
          EXPECT_TRUE(can_run(current_stream(kUpper)));
          second->open();
        }
      }),
      lower);
  const at::Tensor input = at::rand({6, 4}), target = at::rand({6, 2});
  const double expected = (lower(upper(input)) - target).square().mean().item<double>();
  Pipeline pipeline(layers_of(net), {2, 2}, {{kUpper, {}}, {kLower, {}}},
      PipelineOptions().chunks(3).schedule(ScheduleKind::kGPipe));
  const at::Tensor loss = pipeline.step(
      input.to(kUpper), target.to(kUpper), [](const at::Tensor& output, const at::Tensor& labels) {
        return (output - labels).square().mean();
      });
  EXPECT_NEAR(loss.item<double>(), expected, 1e-5);
}

using MessagesOfStages = OverEngines;

constexpr Address kToMiddle{Direction::kForward, 1, 0}, kNextToMiddle{Direction::kForward, 1, 1},
    kToLast{Direction::kForward, 2, 0};

// One message on each way: ranks wait for each other where they meet for the first time.
void connect_stages(GroupLinks& links, int rank, torch::Device device) {
  if (rank == 0) links.send(kToMiddle, payload_of(filled(device, 0)));
  if (rank == 1) links.send(kToLast, links.receive(kToMiddle));
  if (rank == 2) links.receive(kToLast);
  links.flush();
}

// The middle one of three stages computes with a micro-batch, by a kernel that does not end, and
// will then send it on: the next one comes meanwhile, and not into the memory of the first.
TEST_P(MessagesOfStages, WaitForNoOtherComputing) {
  on_devices(3, [](const ProcessGroup& group) {
    const int rank = group.rank();
    const torch::Device device = device_of(group);
    GroupLinks links(group, device);
    connect_stages(links, rank, device);
    std::optional<Gate> computing;
    at::Tensor next;
    if (rank == 0) {
      links.send(kToMiddle, payload_of(filled(device, 3)));
      links.send(kNextToMiddle, payload_of(filled(device, 99)));
      links.flush();
    } else if (rank == 1) {
      at::Tensor come = links.receive(kToMiddle).values.at(0);
      computing.emplace(current_stream(device));
      links.send(kToLast, payload_of(come + 1));
      come.reset();
      next = links.receive(kNextToMiddle).values.at(0);
    }
    group.barrier().wait();
    if (rank == 0)
      EXPECT_TRUE(can_run_in_time(current_stream(device))) << "what it has sent has come";
    group.barrier().wait();
    if (rank == 1) {
      computing->open();
      links.flush();
      EXPECT_THAT(values_of(next), Each(99));
    }
    if (rank == 2) EXPECT_THAT(values_of(links.receive(kToLast).values.at(0)), Each(4));
    group.barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, MessagesOfStages, kEngines, name_of_engine);

}  // namespace
}  // namespace lockstep::emulated
