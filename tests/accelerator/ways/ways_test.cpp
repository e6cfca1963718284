// Every way of training, on devices as on the CPU.

#include <gmock/gmock.h>
#include <vector>

#include "tests/accelerator/ways/trained_way.h"
#include "tests/support/temporary_folder.h"

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

class TrainedWays : public ::testing::TestWithParam<TrainedWay> {};

TEST_P(TrainedWays, GiveTheLossesOfTheCpu) {
  const testing::TemporaryFolder folder;
  const auto losses_on = [&](torch::DeviceType type, const char* run) {
    const auto options = run_options(GetParam(), "mnist-small", folder.str() + run);
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
    return run_options(GetParam(), "mnist-small", folder.str() + run);
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

}  // namespace
}  // namespace lockstep::emulated
