// Every way of training, on devices as on the CPU.

#include <gmock/gmock.h>
#include <vector>

#include "tests/accelerator/runtime.h"
#include "tests/accelerator/ways/trained_way.h"
#include "tests/support/temporary_folder.h"
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

namespace lockstep::emulated {
namespace {

std::vector<double> losses_of(const RunSummary& summary) {
  std::vector<double> losses;
  for (const EpochSummary& epoch : summary.epochs) {
    losses.push_back(epoch.train_loss);
    losses.push_back(*epoch.val.loss);
  }
  return losses;
}

// The CPU's layers keep gradients in float32 where autocast rounds them to bf16, and Adam makes
// much of the sign of small ones.
double tolerance_of(const TrainedWay& way) {
  return way.precision == Precision::kBf16Mixed ? 5e-3 : 1e-4;
}

// A CPU without instructions for float16 takes seconds for a step of convolutions, which
// DeviceCheck makes.
const char* model_of(const TrainedWay& way) {
  return way.precision == Precision::k16Mixed ? "toy" : "mnist-small";
}

class TrainedWays : public ::testing::TestWithParam<TrainedWay> {};

TEST_P(TrainedWays, GiveTheLossesOfTheCpu) {
  const testing::TemporaryFolder folder;
  const auto losses_on = [&](torch::DeviceType type, const char* run) {
    const auto options = run_options(GetParam(), model_of(GetParam()), folder.str() + run);
    return losses_of(train_on(type, GetParam(), options));
  };
  EXPECT_THAT(losses_on(torch::kPrivateUse1, "/device"),
      ::testing::Pointwise(
          ::testing::DoubleNear(tolerance_of(GetParam())), losses_on(torch::kCPU, "/cpu")));
}

INSTANTIATE_TEST_SUITE_P(All, TrainedWays,
    ::testing::Values(TrainedWay{"serial"}, TrainedWay{"dp", Parallel::kDp, 1, 2},
        TrainedWay{"mp", Parallel::kMp, 1, 2}, TrainedWay{"pp", Parallel::kPp, 1, 2},
        TrainedWay{"ddp", Parallel::kDdp, 2}, TrainedWay{"pp_over_ranks", Parallel::kPp, 2},
        TrainedWay{"ddp_pp", Parallel::kDdpPp, 2, 2},
        TrainedWay{"ddp_nccl", Parallel::kDdp, 2, 1, true},
        TrainedWay{"pp_over_ranks_nccl", Parallel::kPp, 2, 1, true},
        TrainedWay{"ddp_pp_nccl", Parallel::kDdpPp, 2, 2, true},
        TrainedWay{"serial_bf16", Parallel::kSerial, 1, 1, false, Precision::kBf16Mixed},
        TrainedWay{"serial_half", Parallel::kSerial, 1, 1, false, Precision::k16Mixed},
        TrainedWay{"ddp_half_nccl", Parallel::kDdp, 2, 1, true, Precision::k16Mixed},
        TrainedWay{"pp_half_over_ranks_nccl", Parallel::kPp, 2, 1, true, Precision::k16Mixed}),
    name_of_way);

class ResumedWays : public TrainedWays {};

// The second of two epochs, each on another kind of device.
TEST_P(ResumedWays, GoOnFromWhatTheOtherKindSaved) {
  const testing::TemporaryFolder folder;
  const auto options_in = [&](const std::string& run) {
    return run_options(GetParam(), model_of(GetParam()), folder.str() + run);
  };
  const auto whole = losses_of(train_on(torch::kCPU, GetParam(), options_in("/whole")));
  for (const auto& [first, second] :
      {std::pair(torch::kPrivateUse1, torch::kCPU), std::pair(torch::kCPU, torch::kPrivateUse1)}) {
    const std::string name = first == torch::kCPU ? "/host" : "/device";
    TrainOptions options = options_in(name);
    options.limits.epochs = 1;
    train_on(first, GetParam(), options);
    const std::string saved = options.output;
    options = options_in(name + "-goes-on");
    options.resume = {.kind = Resume::kFrom, .from = saved};
    const RunSummary summary = train_on(second, GetParam(), options);
    EXPECT_NE(summary.resumed_from, "");
    EXPECT_THAT(losses_of(summary), ::testing::Pointwise(::testing::DoubleNear(2e-4), whole));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResumedWays,
    ::testing::Values(TrainedWay{"serial"}, TrainedWay{"dp", Parallel::kDp, 1, 2},
        TrainedWay{"pp", Parallel::kPp, 1, 2}, TrainedWay{"ddp_nccl", Parallel::kDdp, 2, 1, true},
        TrainedWay{"ddp_half_nccl", Parallel::kDdp, 2, 1, true, Precision::k16Mixed}),
    name_of_way);

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)),
      torch::nn::BatchNorm2d(4), torch::nn::ReLU(), torch::nn::MaxPool2d(2), torch::nn::Flatten(),
      torch::nn::Linear(4 * 3 * 3, 10));
}

std::vector<double> losses_on(const torch::Device& device, std::uint64_t seed) {
  install();
  Runtime::get().streams().set_seed(seed);
  torch::manual_seed(1);
  torch::nn::Sequential net = small_net();
  const torch::Tensor images = torch::rand({6, 1, 8, 8}), labels = torch::arange(6);
  net->to(device);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  torch::Tensor all = torch::zeros({5}, device);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(net->forward(images.to(device)), labels.to(device));
    loss.backward();
    optimizer.step();
    all[step] = loss.detach();
  }
  const torch::Tensor host = all.cpu().to(torch::kDouble);
  Runtime::get().streams().set_seed(0);
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + 5};
}

TEST(EmulatedTraining, GivesTheLossesOfTheCpu) {
  const std::vector<double> expected = losses_on(torch::kCPU, 0);
  for (const std::uint64_t seed : {0U, 1U, 2U})
    EXPECT_THAT(losses_on(torch::Device(c10::kPrivateUse1, 1), seed),
        ::testing::Pointwise(::testing::DoubleNear(1e-6), expected));
}

}  // namespace
}  // namespace lockstep::emulated
