// Communication hooks: cases J6 and J7 of the conformance list, restated from PyTorch's
// test_ddp_hooks.py and test_c10d_gloo.py; PowerSGD against PyTorch's powerSGD_hook
// (tests/conformance/ddp.py) and by its properties.

#include "lockstep/parallel/ddp/comm_hook.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using testing::complaint_of;
using testing::constant;
using testing::expect_same_gradients;
using testing::expect_same_on_all_ranks;
using testing::message_of;
using testing::one_each;
using torch::nn::Linear;
using torch::nn::LinearOptions;

/// The model of HOOKS: a parameter of 40 x 20 times x to the power 1 + rank.
struct PowerImpl : torch::nn::Module {
  PowerImpl() {
    weight = register_parameter(
        "weight", torch::linspace(-1, 1, 800, torch::kFloat).view({40, 20}).clone());
  }
  torch::Tensor forward(const torch::Tensor& input, int rank) {
    return (weight * input.pow(1 + rank)).sum();
  }
  torch::Tensor weight;
};
TORCH_MODULE(Power);

torch::Tensor gradient_with(const CommHook& hook, const ProcessGroup& group) {
  Power net;
  DistributedDataParallel model(net, group, Options().comm_hook(hook));
  const torch::Tensor input = torch::linspace(0.1, 2, 800, torch::kFloat).view({40, 20});
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    model(input, group.rank()).backward();
  }
  expect_same_on_all_ranks(net->weight.grad(), group);
  return net->weight.grad().clone();
}

// By all-reduce, and by hand in a second step.
TEST(CommHook, J6AveragesEqualThoseWithoutAHook) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const auto by_hand = [](const GradientBucket& bucket) -> CommStep {
      const torch::Tensor all = torch::empty({bucket.group.size(), bucket.memory.numel()});
      return {bucket.group.all_gather(all, bucket.memory), [memory = bucket.memory, all] {
                memory.copy_(all.mean(0));
                return CommStep{};
              }};
    };
    const torch::Tensor expected = gradient_with(nullptr, group);
    EXPECT_TRUE(torch::allclose(gradient_with(all_reduce_hook, group), expected, 1e-5, 0));
    EXPECT_TRUE(torch::allclose(gradient_with(by_hand, group), expected, 1e-5, 0));
  });
}

TEST(CommHook, J6HalfTypesAreCloseToNoHook) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const torch::Tensor exact = gradient_with(nullptr, group);
    const torch::Tensor fp16 = gradient_with(fp16_compress_hook, group);
    const torch::Tensor bf16 = gradient_with(bf16_compress_hook, group);
    EXPECT_TRUE(torch::allclose(fp16, exact, 1e-3, 1e-4));
    EXPECT_TRUE(torch::allclose(bf16, exact, 1e-2, 1e-4));
    EXPECT_FALSE(torch::equal(fp16, exact)) << "nothing was compressed";
    EXPECT_FALSE(torch::equal(bf16, exact)) << "nothing was compressed";
  });
}

TEST(CommHook, Fp16DividesBeforeItNarrowsAndSums) {
  for (const double of_the_others : {60000.0, 0.0}) {
    const double of_rank_zero = of_the_others == 0 ? 131072 : of_the_others;
    testing::run_ranks(4, [&](ProcessGroup group) {
      Linear net = testing::scalar_layer();
      DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
      model(constant({1, 1}, group.rank() == 0 ? of_rank_zero : of_the_others)).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), (of_rank_zero + 3 * of_the_others) / 4);
    });
  }
}

// PyTorch narrows first, then divides: with 2 ranks the same bits, unless the quotient is subnormal
// in fp16. Then it rounds twice, and ours is the nearer one.
TEST(CommHook, Fp16DiffersFromPyTorchInSubnormalNumbersOnly) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const torch::Tensor exact = torch::logspace(-8, 4, 4000, 10, torch::kFloat);
    const torch::Tensor theirs = exact.to(torch::kHalf).div(2).mul(2).to(torch::kFloat);
    Linear net(LinearOptions(4000, 1).bias(false));
    DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
    model(exact.view({1, 4000})).sum().backward();
    const torch::Tensor ours = net->weight.grad().flatten();
    const torch::Tensor is_normal = exact.div(2).ge(std::ldexp(1.0, -14));
    EXPECT_TRUE(torch::equal(ours.masked_select(is_normal), theirs.masked_select(is_normal)));
    EXPECT_FALSE(torch::equal(ours, theirs));
    EXPECT_TRUE((ours - exact).abs().le((theirs - exact).abs()).all().item<bool>());
  });
}

TEST(CommHook, WhatIsNarrowAlreadyIsNotCompressedAgain) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = testing::scalar_layer();
    net->to(torch::kBFloat16);
    DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
    model(torch::full({1, 1}, 1e20, torch::kBFloat16)).sum().backward();
    EXPECT_TRUE(net->weight.grad().isfinite().all().item<bool>());
  });
}

torch::nn::Sequential wide_layers(int count) {
  torch::nn::Sequential net;
  for (int layer = 0; layer < count; ++layer)
    net->push_back(Linear(LinearOptions(50, 50).bias(false)));
  return net;
}

TEST(CommHook, J7TheLastBucketIsMarkedAndBucketsComeInOrder) {
  testing::run_ranks(2, [](ProcessGroup group) {
    auto net = wide_layers(11);
    auto seen = std::make_shared<std::vector<GradientBucket>>();
    DistributedDataParallel model(
        net, group, Options().first_bucket_bytes(10'000).bucket_bytes(20'000));
    model.register_comm_hook([seen](const GradientBucket& bucket) {
      seen->push_back(bucket);
      return all_reduce_hook(bucket);
    });
    for (int step = 0; step < 3; ++step) {
      seen->clear();
      model(torch::ones({1, 50})).sum().backward();
      ASSERT_EQ(seen->size(), 6u);
      std::size_t parameters = 0;
      for (std::size_t index = 0; index < seen->size(); ++index) {
        const GradientBucket& bucket = (*seen)[index];
        EXPECT_EQ(bucket.index, index);
        EXPECT_EQ(bucket.is_last, index == 5);
        parameters += bucket.parameters.size();
        const float* memory = bucket.memory.data_ptr<float>();
        for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
          EXPECT_EQ(bucket.gradients[i].sizes(), bucket.parameters[i].sizes());
          EXPECT_EQ(bucket.gradients[i].data_ptr<float>(), memory);
          memory += 2512;  // 50 x 50, up to a multiple of 64 bytes
          EXPECT_TRUE(torch::equal(bucket.gradients[i], bucket.parameters[i].grad()));
        }
      }
      EXPECT_EQ(parameters, 11u);
    }
  });
}

TEST(CommHook, J7ASecondHookIsAnError) {
  testing::run_ranks(2, [](ProcessGroup group) {
    auto net = wide_layers(1);
    DistributedDataParallel model(net, group, Options().comm_hook(all_reduce_hook));
    EXPECT_THAT(message_of<std::exception>([&] { model.register_comm_hook(fp16_compress_hook); }),
        HasSubstr("there is a communication hook already"));
    EXPECT_THROW(model.register_comm_hook(nullptr), InvalidArgument);
  });
}

TEST(CommHook, AnErrorOfAHookReachesTheCallerOfBackward) {
  EXPECT_THROW(testing::run_ranks(2,
                   [](ProcessGroup group) {
                     Linear net(1, 1);
                     DistributedDataParallel model(
                         net, group, Options().comm_hook([](const GradientBucket&) -> CommStep {
                           throw std::domain_error("hook");
                         }));
                     model(torch::ones({1, 1})).sum().backward();
                   }),
      std::domain_error);
}

// The others have made a step that this rank lacks, even if its caller goes on.
TEST(CommHook, AnErrorOfALaterStepIsToldAtTheNextForward) {
  for (const Options& options : {Options(), one_each(), Options().find_unused_parameters(true)}) {
    testing::run_ranks(2, [&](ProcessGroup group) {
      auto net = wide_layers(2);
      const auto hook = [&](const GradientBucket& bucket) -> CommStep {
        return {bucket.group.all_reduce(bucket.memory, ReduceOp::kMean), [&]() -> CommStep {
                  if (group.rank() == 1) throw std::domain_error("hook");
                  return {};
                }};
      };
      DistributedDataParallel model(net, group, Options(options).comm_hook(hook));
      const auto train = [&] { model(torch::ones({1, 50})).sum().backward(); };
      if (group.rank() == 0) {
        (void)complaint_of<std::exception>(train);  // it may be told before it is through
        return;
      }
      EXPECT_THROW(train(), std::domain_error);
      EXPECT_THAT(message_of<InvalidArgument>(train),
          HasSubstr("an earlier backward of rank 1 ended with an exception"));
    });
  }
}

// The steps of several buckets interleave; on all ranks alike, or the collectives would not meet.
TEST(CommHook, StepsOfAllBucketsComeInOneOrder) {
  testing::run_ranks(3, [](ProcessGroup group) {
    auto net = wide_layers(3);
    auto steps = std::make_shared<std::vector<std::string>>();
    const auto hook = [steps](const GradientBucket& bucket) -> CommStep {
      steps->push_back(concat("begin ", bucket.index));
      return {bucket.group.barrier(), [steps, bucket]() -> CommStep {
                steps->push_back(concat("next ", bucket.index));
                return {bucket.group.all_reduce(bucket.memory, ReduceOp::kMean)};
              }};
    };
    DistributedDataParallel model(
        net, group, one_each().comm_hook(hook).find_unused_parameters(true));
    // Rank 1 leaves the last layer out: its first bucket is full only at the end of backward.
    const torch::Tensor out = model(torch::ones({1, 50}));
    const torch::Tensor part = net[0]->as<Linear>()->forward(torch::ones({1, 50}));
    (group.rank() == 1 ? part : out).sum().backward();
    EXPECT_THAT(*steps, ElementsAre("begin 0", "begin 1", "begin 2", "next 0", "next 1", "next 2"));
    expect_same_gradients(*net, group);
  });
}

/// A bucket of some tensors, each kept by its parameter from step to step.
class Gradients {
 public:
  explicit Gradients(const std::vector<std::vector<std::int64_t>>& shapes) {
    for (const auto& shape : shapes) parameters_.push_back(torch::zeros(shape, torch::kDouble));
  }

  /// Averages what `fill(parameter index, elements)` gives.
  template <typename Fill>
  torch::Tensor average(const CommHook& hook, const ProcessGroup& group, Fill fill) {
    std::vector<torch::Tensor> pieces;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      pieces.push_back(fill(i, parameters_[i].numel()));
    GradientBucket bucket{0, true, torch::cat(pieces), {}, parameters_, group};
    std::int64_t at = 0;
    for (const torch::Tensor& parameter : parameters_) {
      bucket.gradients.push_back(
          bucket.memory.narrow(0, at, parameter.numel()).view(parameter.sizes()));
      at += parameter.numel();
    }
    CommStep step = hook(bucket);
    for (step.work.wait(); step.next; step.work.wait()) step = step.next();
    return bucket.memory;
  }

 private:
  std::vector<torch::Tensor> parameters_;
};

// The formula of tests/conformance/ddp.py.
torch::Tensor formula(int step, int rank, std::size_t index, std::int64_t elements) {
  const torch::Tensor count = torch::arange(elements, torch::kDouble);
  return torch::sin(count * count * (0.3 + 0.1 * static_cast<double>(index)) + step + 2 * rank);
}

// Sets every parameter by that formula.
void fill(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net.parameters())
    parameter.copy_(formula(0, 0, 0, parameter.numel()).view(parameter.sizes()));
}

void expect_as_pytorch(std::int64_t rank_of_approximation, bool feedback, const std::string& name) {
  const auto expected = testing::expected_numbers("ddp.txt", name);
  testing::run_ranks(2, [&](ProcessGroup group) {
    const PowerSgd hook(PowerSgdOptions()
                            .rank(rank_of_approximation)
                            .start_step(0)
                            .min_compression_rate(1)
                            .error_feedback(feedback)
                            .seed(7));
    Gradients gradients({{6, 4}, {3}, {5, 7}});
    torch::Tensor result;
    for (int step = 0; step < 3; ++step) {
      result = gradients.average(hook, group, [&](std::size_t index, std::int64_t elements) {
        return formula(step, group.rank(), index, elements);
      });
    }
    EXPECT_TRUE(
        torch::allclose(result.cpu(), torch::tensor(expected, torch::kDouble), 1e-10, 1e-12))
        << result;
    expect_same_on_all_ranks(result, group);
  });
}

TEST(PowerSgd, ThreeStepsEqualPyTorchs) {
  expect_as_pytorch(1, true, "PowerSgdRank1");
  expect_as_pytorch(2, true, "PowerSgdRank2");
  expect_as_pytorch(1, false, "PowerSgdRank1NoFeedback");
  expect_as_pytorch(2, false, "PowerSgdRank2NoFeedback");
}

TEST(PowerSgd, AGradientOfLowRankIsExact) {
  testing::run_ranks(3, [](ProcessGroup group) {
    for (const bool warm : {false, true}) {
      const PowerSgd hook(PowerSgdOptions().rank(2).start_step(0).warm_start(warm));
      Gradients gradients({{12, 16}});
      for (int step = 0; step < 3; ++step) {
        const auto fill = [&](std::size_t, std::int64_t) {  // of rank 1: columns are dependent
          const torch::Tensor left = formula(step, 0, 0, 12), right = formula(step, 1, 1, 16);
          return (torch::outer(left, right) * (group.rank() + 1)).flatten();
        };
        const torch::Tensor result = gradients.average(hook, group, fill);
        EXPECT_TRUE(torch::allclose(result * (group.rank() + 1), fill(0, 0) * 2, 1e-9, 1e-9));
      }
    }
  });
}

TEST(PowerSgd, AGradientOfZerosStaysZero) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const PowerSgd hook(PowerSgdOptions().rank(2).start_step(0));
    Gradients gradients({{12, 16}});
    for (int step = 0; step < 2; ++step) {
      const torch::Tensor result = gradients.average(
          hook, group, [](std::size_t, std::int64_t n) { return torch::zeros(n, torch::kDouble); });
      EXPECT_EQ(result.abs().max().item<double>(), 0);
    }
  });
}

// What compression lost comes back: the sum over the steps nears the sum of the true averages.
TEST(PowerSgd, ErrorFeedbackLosesNothingForGood) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const auto distance = [&](bool feedback) {
      const PowerSgd hook(PowerSgdOptions().start_step(0).error_feedback(feedback));
      Gradients gradients({{8, 8}});
      torch::Tensor lost = torch::zeros({64}, torch::kDouble);
      for (int step = 0; step < 40; ++step) {
        const auto part = [&](int rank) {  // full rank, the same in each step
          return torch::sin(torch::arange(64, torch::kDouble).pow(2) * 0.37 + rank);
        };
        lost += (part(0) + part(1)) / 2;
        lost -= gradients.average(
            hook, group, [&](std::size_t, std::int64_t) { return part(group.rank()); });
      }
      return lost.norm().item<double>() / 40;
    };
    EXPECT_LT(distance(true), 0.2 * distance(false));
  });
}

// The sums of the results of some passes, each scaled by its factor; those of passes that overflow
// on rank 1 are left out, as a scaler leaves out their steps.
torch::Tensor sum_of_results(const ProcessGroup& group, const std::vector<double>& scales,
    const std::vector<int>& overflowing) {
  double scale = 1;
  const PowerSgd hook(PowerSgdOptions().start_step(0).loss_scale([&](const torch::Device& device) {
    return torch::full({}, scale, torch::TensorOptions(torch::kFloat).device(device));
  }));
  Gradients gradients({{8, 8}, {6, 5}, {3}});
  torch::Tensor sum = torch::zeros({64 + 30 + 3}, torch::kDouble);
  for (int pass = 0; pass < static_cast<int>(scales.size()); ++pass) {
    scale = scales[static_cast<std::size_t>(pass)];
    const bool overflows =
        std::find(overflowing.begin(), overflowing.end(), pass) != overflowing.end();
    const torch::Tensor result =
        gradients.average(hook, group, [&](std::size_t index, std::int64_t elements) {
          torch::Tensor gradient = formula(0, group.rank(), index, elements) * scale;
          if (overflows && index == 1 && group.rank() == 1) gradient[2] = INFINITY;
          return gradient;
        });
    EXPECT_EQ(torch::isfinite(result).all().item<bool>(), !overflows);
    if (!overflows) sum += result / scale;
  }
  return sum;
}

// Compression loses as much as in a training without the passes that overflowed, and what it lost
// comes back in the scale of its pass.
TEST(PowerSgd, PassesThatOverflowAndScalesLeaveNoTrace) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const torch::Tensor plain = sum_of_results(group, {1, 1, 1, 1}, {});
    for (const int bad : {0, 2}) {
      const torch::Tensor result = sum_of_results(group, {1, 1, 1, 1, 1}, {bad});
      EXPECT_TRUE(torch::allclose(result, plain, 1e-6, 1e-9)) << bad;
    }
    const torch::Tensor scaled = sum_of_results(group, {1024, 512, 512, 2048}, {});
    EXPECT_TRUE(torch::allclose(scaled, plain, 1e-9, 1e-12));
  });
}

// Buckets end one after the other; one that overflows speaks for all.
TEST(PowerSgd, AnOverflowInOneBucketIsOneOfTheWholePass) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const auto train = [&](bool overflows) {
      torch::nn::Sequential net(
          Linear(LinearOptions(8, 8).bias(false)), Linear(LinearOptions(8, 8)));
      fill(*net);
      const PowerSgd hook(PowerSgdOptions().start_step(0));
      DistributedDataParallel model(net, group, one_each().comm_hook(hook));
      torch::Tensor sum;
      for (int step = 0; step < 4 + (overflows ? 1 : 0); ++step) {
        net->zero_grad();
        const bool bad = overflows && step == 2;
        // Into the bias of the last layer alone comes what is not finite.
        const auto input = formula(0, group.rank(), 0, 32).view({4, 8}).to(torch::kFloat);
        torch::Tensor loss = model(input).square().mean();
        if (bad && group.rank() == 1) loss = loss + net[1]->as<Linear>()->bias.sum() * INFINITY;
        loss.backward();
        const torch::Tensor gradient = net->parameters()[0].grad().cpu();
        if (!bad) sum = sum.defined() ? sum + gradient : gradient;
      }
      return sum;
    };
    EXPECT_TRUE(torch::allclose(train(true), train(false), 1e-4, 1e-6));
  });
}

TEST(PowerSgd, SmallAndFlatTensorsAreAveragedExactly) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const PowerSgd hook(PowerSgdOptions().start_step(0));
    Gradients gradients({{2, 2}, {100}, {1, 50}});
    const torch::Tensor result =
        gradients.average(hook, group, [&](std::size_t index, std::int64_t elements) {
          return formula(1, group.rank(), index, elements);
        });
    std::vector<torch::Tensor> expected;
    for (const auto& [index, elements] : {std::pair{0, 4}, {1, 100}, {2, 50}}) {
      const auto at = static_cast<std::size_t>(index);
      expected.push_back((formula(1, 0, at, elements) + formula(1, 1, at, elements)) / 2);
    }
    EXPECT_TRUE(torch::allclose(result, torch::cat(expected), 1e-12, 1e-14));
    EXPECT_EQ(hook.compression_rate(), 1);
  });
}

TEST(PowerSgd, CompressionIsCounted) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const PowerSgd hook(PowerSgdOptions().start_step(1));
    Gradients gradients({{20, 30}, {10}});
    const auto step = [&] {
      gradients.average(hook, group, [&](std::size_t index, std::int64_t elements) {
        return formula(0, group.rank(), index, elements);
      });
    };
    step();
    EXPECT_EQ(hook.compression_rate(), 1) << "the first step is exact";
    step();
    EXPECT_DOUBLE_EQ(hook.compression_rate(), 610.0 / (20 + 30 + 10));
  });
}

TEST(PowerSgd, BasesAreOrthonormalWhateverTheColumns) {
  const torch::Tensor column = torch::sin(torch::arange(9, torch::kFloat)).unsqueeze(1);
  const std::vector<torch::Tensor> cases = {
      torch::cat({column, column.pow(2), torch::cos(column * 3)}, 1),
      torch::cat({column, 2 * column}, 1), torch::zeros({9, 2})};
  for (const torch::Tensor& matrix : cases) {
    const torch::Tensor basis = orthonormal_basis(matrix);
    EXPECT_TRUE(torch::allclose(
        basis.t().matmul(basis), torch::eye(matrix.size(1)), /*rtol=*/0, /*atol=*/1e-5));
  }
  EXPECT_EQ(orthonormal_basis(cases[0].to(torch::kBFloat16)).scalar_type(), torch::kBFloat16);
}

TEST(PowerSgd, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(PowerSgd(PowerSgdOptions().rank(0)), InvalidArgument);
  EXPECT_THROW(PowerSgd(PowerSgdOptions().start_step(-1)), InvalidArgument);
  EXPECT_THROW(PowerSgd(PowerSgdOptions().min_compression_rate(0)), InvalidArgument);
}

// Compression from the very first pass: buckets are rebuilt under it after that pass, yet its
// memory must go with the parameters. Were it lost, the start Q would differ and so the result.
TEST(PowerSgd, ItsMemoryOutlivesARebuildOfBuckets) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const auto train = [&](std::int64_t bucket_bytes) {
      torch::nn::Sequential net(
          Linear(LinearOptions(16, 12).bias(false)), Linear(LinearOptions(12, 16).bias(false)));
      net->to(torch::kDouble);
      fill(*net);
      const PowerSgd hook(PowerSgdOptions().start_step(0));
      DistributedDataParallel model(net, group,
          Options().comm_hook(hook).first_bucket_bytes(bucket_bytes).bucket_bytes(bucket_bytes));
      torch::optim::SGD optimizer(net->parameters(), 0.01);
      for (int step = 0; step < 6; ++step) {
        optimizer.zero_grad();
        model(formula(step, group.rank(), 0, 64).view({4, 16})).pow(2).mean().backward();
        optimizer.step();
      }
      EXPECT_TRUE(model.report().rebuilt);
      EXPECT_GT(hook.compression_rate(), 5);
      for (const auto& parameter : net->parameters()) expect_same_on_all_ranks(parameter, group);
      return net->parameters()[0].detach().clone();
    };
    // One bucket of both, or a bucket each: the same numbers.
    EXPECT_TRUE(torch::allclose(train(1 << 20), train(1), 1e-9, 1e-12));
  });
}

}  // namespace
}  // namespace lockstep
