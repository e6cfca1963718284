// The flags of how gradients are averaged, and that they reach what averages them.

#include "lockstep/train/strategy/ddp_options.h"

#include <gtest/gtest.h>
#include <mutex>

#include "tests/train/random_batch.h"
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

TrainOptions toy_with(const std::string& hook) {
  TrainOptions options;
  options.model = "toy";
  options.parallel = Parallel::kDdp;
  options.batch_size = 8;
  options.gradients.comm_hook = parse_comm_hook(hook);
  return options;
}

// Of two ranks with other samples each.
std::vector<torch::Tensor> averaged(const std::string& hook) {
  std::vector<torch::Tensor> gradients(2);
  const Batch batch = testing::random_batch({16, 10});
  run_ranks(2, [&](const ProcessGroup& world) {
    const TrainOptions options = toy_with(hook);
    const Layout layout = plan_layout(options, 2);
    const auto replica = make_replica(
        options, layout, {.image = {10}, .classes = 5}, make_rank_groups(world, layout), {});
    replica->set_training(true);
    const std::int64_t first = 8 * world.rank();
    replica->backward(
        {batch.input().slice(0, first, first + 8), batch.target().slice(0, first, first + 8)}, {},
        0);
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : replica->parameters()) flat.push_back(parameter.grad().flatten());
    gradients[static_cast<std::size_t>(world.rank())] = at::cat(flat);
  });
  return gradients;
}

TEST(DdpOptions, TheHookReachesTheReducer) {
  const auto exact = averaged("none");
  ASSERT_TRUE(exact[0].equal(exact[1]));
  const double most = exact[0].abs().max().item<double>();
  for (const auto& [hook, tolerance] : {std::pair("bf16", 1.0 / 128), std::pair("fp16", 1.0 / 1024),
           std::pair("powersgd:1:0", 1.0)}) {
    const auto sent = averaged(hook);
    EXPECT_TRUE(sent[0].equal(sent[1])) << hook << ": the ranks differ";
    EXPECT_FALSE(sent[0].equal(exact[0])) << hook << " changed nothing";
    EXPECT_TRUE(at::allclose(sent[0], exact[0], 0, tolerance * most)) << hook;
  }
  EXPECT_TRUE(averaged("powersgd:1:1")[0].equal(exact[0])) << "the first step is exact";
}

TEST(DdpOptions, TheBucketIsAsLargeAsAskedInMebibytes) {
  TrainOptions options = toy_with("none");
  EXPECT_EQ(ddp_options(options, nn::GradScaler()).bucket_bytes(),
      DistributedDataParallelOptions().bucket_bytes());
  options.gradients.bucket_mb = 0.5;
  EXPECT_EQ(ddp_options(options, nn::GradScaler()).bucket_bytes(), 512 * 1024);
  EXPECT_EQ(ddp_options(options, nn::GradScaler()).first_bucket_bytes(),
      DistributedDataParallelOptions().first_bucket_bytes());
}

}  // namespace
}  // namespace lockstep
