// DistributedDataParallel against the same training in one process; cases D1 to D14 of the
// conformance list, most of them restated from PyTorch's distributed_test.py. Over real processes
// hooks, sparse gradients and uneven inputs make other collectives than the plain reducer, and each
// backend must carry them. Modules that change after they were wrapped are refused.

#include "lockstep/parallel/distributed_data_parallel.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/device/alignment.h"
#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/ddp/replicated_state.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_gradients;
using testing::expect_same_on_all_ranks;
using testing::local_pass;
using testing::make;
using testing::message_of;
using testing::one_each;
using testing::run_group;
using testing::scalar_layer;
using testing::with_replicas;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;
using torch::nn::LinearOptions;

TEST(DistributedDataParallel, D1GradientsAreTheMeanOverTheRanks) {
  for (const int size : {1, 2, 4}) {
    testing::run_ranks(size, [](ProcessGroup group) {
      Linear net = scalar_layer();
      DistributedDataParallel model(net, group);
      model(constant({1, 1}, group.rank())).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), static_cast<float>(group.size() - 1) / 2);
    });
  }
}

TEST(DistributedDataParallel, D2GradientsLieInTheirBucketAfterEveryStep) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(7, 33), torch::nn::Tanh(), Linear(33, 5));
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(torch::ones({2, 7})).sum().backward();
      std::map<const float*, std::int64_t> elements;  // of each gradient, up to the next
      for (const auto& parameter : net->parameters())
        elements[parameter.grad().data_ptr<float>()] = aligned_elements(parameter);
      ASSERT_EQ(elements.size(), 4u);
      for (auto one = elements.begin(), next = std::next(one); next != elements.end();
           ++one, ++next)
        EXPECT_EQ(next->first - one->first, one->second);
    }
  });
}

TEST(DistributedDataParallel, T7GradientsCanBeZeroedInPlace) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(/*set_to_none=*/false);
      model(constant({1, 1}, group.rank())).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), 0.5f);
    }
  });
}

TEST(DistributedDataParallel, RefusesABufferOfRepeatedElementsOnAllRanks) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(4, 4);
    net->register_buffer("mask", torch::ones({1}).expand({4}));
    EXPECT_THAT(message_of<InvalidArgument>([&] { DistributedDataParallel(net, group); }),
        HasSubstr("mask has elements that lie in the same memory"));
  });
}

TEST(DistributedDataParallel, D3EveryRankTakesRankZerosParametersAndBuffers) {
  testing::run_ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(4, 4), torch::nn::BatchNorm1d(4));
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.fill_(group.rank() + 1);
      net->named_buffers()["1.running_mean"].fill_(group.rank() + 10);
    }
    DistributedDataParallel model(net, group);
    EXPECT_TRUE(torch::all(net->parameters()[0] == 1).item<bool>());
    EXPECT_TRUE(torch::all(net->named_buffers()["1.running_mean"] == 10).item<bool>());

    model(constant({2, 4}, group.rank()));
    net->named_buffers()["1.running_mean"].fill_(group.rank() + 20);
    const torch::Tensor before = net->named_buffers()["1.num_batches_tracked"].clone();
    // Takes rank 0's 20, then moves a tenth of the way to the batch's mean.
    model(torch::zeros({2, 4}));
    expect_same_on_all_ranks(net->named_buffers()["1.running_mean"], group);
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(),
        before.item<std::int64_t>() + 1);
  });
}

TEST(BroadcastAll, CopiesTensorsHoweverTheyLie) {
  testing::run_ranks(3, [](ProcessGroup group) {
    const int own = group.rank() + 1;
    std::vector<torch::Tensor> tensors{torch::full({2, 3}, own, torch::kFloat),
        torch::full({}, own, torch::kLong), torch::zeros({0}),
        torch::full({70}, own, torch::kFloat)};
    for (const bool has_transposed : {false, true}) {
      if (has_transposed) tensors.push_back(torch::full({2, 3}, own, torch::kFloat).t());
      for (const auto& tensor : tensors) tensor.fill_(own);
      broadcast_all(tensors, 1, group);
      for (const auto& tensor : tensors) EXPECT_TRUE(torch::all(tensor == 2).item<bool>());
    }
  });
}

// As of an operator in place.
TEST(BroadcastAll, IsNoticedByAGraphThatSavedATensor) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const torch::Tensor input = torch::ones({2}).requires_grad_(), factor = torch::ones({2});
    const torch::Tensor output = (input * factor).sum();
    broadcast_all({factor}, 0, group);
    if (group.rank() == 1) EXPECT_THROW(output.backward(), c10::Error);
  });
}

TEST(DistributedDataParallel, D4OneRankMayEvaluateAlone) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(4, 4), torch::nn::BatchNorm1d(4));
    DistributedDataParallel model(net, group);
    if (group.rank() == 0) {
      model->eval();
      for (int i = 0; i < 6; ++i)
        EXPECT_TRUE(torch::equal(model(torch::ones({2, 4})), net->forward(torch::ones({2, 4}))));
      model->train();
      const torch::NoGradGuard no_grad;
      model(torch::ones({2, 4}));
    }
  });
}

TEST(DistributedDataParallel, D5AccumulationIsLocalUntilTheSynchronisedBackward) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      local_pass(model, constant({1, 1}, group.rank() + 1));
      EXPECT_EQ(net->weight.grad().item<float>(), static_cast<float>(group.rank() + 1));
      model(constant({1, 1}, 10)).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), 11.5f);
    }
  });
}

TEST(DistributedDataParallel, D8ATiedParameterIsCountedOnce) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear layer(LinearOptions(3, 3).bias(false));
    torch::nn::Sequential net(layer, layer);
    DistributedDataParallel model(net, group);
    EXPECT_EQ(net->parameters().size(), 2u);
    model(constant({1, 3}, group.rank() + 1)).sum().backward();
    expect_same_on_all_ranks(layer->weight.grad(), group);
  });
}

// Ranks that freeze different layers would wait for gradients that never come, and averages are
// taken in the order of memory.
TEST(DistributedDataParallel, D11ModelsThatDifferAreRefusedOnEveryRank) {
  struct Case {
    std::function<void(torch::nn::Sequential&)> change;
    std::string difference;
  };
  const Case cases[] = {
      {[](torch::nn::Sequential& net) { net->replace_module("0", Linear(2, 1)); },
          "0.weight Float [1, 1] on rank 0 (4 in all) and 0.weight Float [1, 2] on rank 2"},
      {[](torch::nn::Sequential& net) { net->push_back(Linear(1, 1)); },
          "number 4 is nothing on rank 0 (4 in all) and 2.weight Float [1, 1] on rank 2"},
      {[](torch::nn::Sequential& net) { net->parameters()[0].set_requires_grad(false); },
          "number 0 is 0.weight Float [1, 1] on rank 0 (4 in all) and 0.weight (frozen) Float "
          "[1, 1] on rank 2"},
      {[](torch::nn::Sequential& net) {
         const torch::Tensor weight = net->parameters()[2];
         weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
       },
          "number 2 is 1.weight Float [2, 2, 2, 2] on rank 0 (4 in all) and 1.weight (strides "
          "[8, 1, 4, 2]) Float [2, 2, 2, 2] on rank 2"}};
  for (const Case& each : cases) {
    testing::run_ranks(3, [&](ProcessGroup group) {
      torch::nn::Sequential net(Linear(1, 1), torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 2)));
      if (group.rank() == 2) each.change(net);
      EXPECT_THAT(
          message_of<InvalidArgument>([&] { const DistributedDataParallel model(net, group); }),
          HasSubstr(each.difference));
    });
  }
}

TEST(DistributedDataParallel, D14AnExceptionInForwardArrivesAsItIs) {
  EXPECT_THROW(testing::run_ranks(2,
                   [](ProcessGroup group) {
                     Linear net(2, 1);
                     DistributedDataParallel model(net, group);
                     if (group.rank() == 1) throw std::domain_error("forward");
                     model(torch::ones({1, 2})).sum().backward();
                   }),
      std::domain_error);
}

struct OutOfOrderImpl : torch::nn::Module {
  OutOfOrderImpl() {
    late = register_module("late", Linear(4, 4));
    early = register_module("early", Linear(4, 4));
  }
  // `late` is declared first but used last, so its gradient comes first.
  torch::Tensor forward(const torch::Tensor& input) { return late(early(input)); }
  Linear late{nullptr}, early{nullptr};
};
TORCH_MODULE(OutOfOrder);

TEST(DistributedDataParallel, BucketsAreCutAnewInTheOrderInWhichGradientsCame) {
  with_replicas(2, make<OutOfOrder>, one_each(), [](OutOfOrder& net, auto& model, auto& group) {
    const auto first_of_each = [&] {
      std::vector<std::size_t> indices;
      for (const auto& bucket : model.reducer().buckets()) indices.push_back(bucket.parameters[0]);
      return indices;
    };
    // Parameters: 0 late.weight, 1 late.bias, 2 early.weight, 3 early.bias.
    EXPECT_THAT(first_of_each(), ::testing::ElementsAre(3, 2, 1, 0));
    for (int step = 0; step < 2; ++step) model(torch::ones({1, 4})).sum().backward();
    const auto rebuilt = first_of_each();
    ASSERT_EQ(rebuilt.size(), 4u);
    EXPECT_LT(rebuilt[0], 2u) << "the layer used last comes first";
    EXPECT_LT(rebuilt[1], 2u);
    expect_same_on_all_ranks(net->late->weight.grad(), group);
  });
}

TEST(DistributedDataParallel, AGroupOfOneLeavesGradientsAlone) {
  Linear net = scalar_layer();
  DistributedDataParallel model(net, ProcessGroup());
  model.reduce_accumulated();
  EXPECT_FALSE(net->weight.grad().defined());
  model(constant({1, 1}, 3)).sum().backward();
  EXPECT_EQ(net->weight.grad().item<float>(), 3);
  EXPECT_EQ(model.communication_seconds(), 0);
}

class ProcessBackends : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, ProcessBackends, ::testing::Values("shm", "gloo", "hosts_0010"),
    [](const ::testing::TestParamInfo<const char*>& backend) {
      return std::string(backend.param);
    });

void expect_average_with(const CommHook& hook, const ProcessGroup& group) {
  Linear net(LinearOptions(30, 20).bias(true));
  DistributedDataParallel model(net, group, one_each().comm_hook(hook));
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    model(constant({1, 30}, group.rank() + step)).sum().backward();
    EXPECT_TRUE(torch::allclose(net->weight.grad(), constant({20, 30}, 1 + step), 1e-3, 1e-4));
    expect_same_on_all_ranks(net->weight.grad(), group);
  }
}

TEST_P(ProcessBackends, J6HooksAverage) {
  run_group(GetParam(), 3, [](ProcessGroup group) {
    expect_average_with(nullptr, group);
    expect_average_with(fp16_compress_hook, group);
    expect_average_with(PowerSgd(PowerSgdOptions().start_step(0)), group);
  });
}

// A resumed run begins with the first buckets again, and must have the same bits.
TEST_P(ProcessBackends, KeepsItsFirstBucketsWhereSumsDependOnThePlace) {
  run_group(GetParam(), 3, [backend = std::string(GetParam())](ProcessGroup group) {
    EXPECT_EQ(group.sums_in_rank_order(), backend != "gloo");
    Linear net(LinearOptions(30, 20).bias(true));
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 3; ++step) model(constant({1, 30}, 1)).sum().backward();
    EXPECT_EQ(model.report().rebuilt, backend != "gloo");
  });
}

TEST_P(ProcessBackends, D13SparseGradientsAreTheAverage) {
  run_group(GetParam(), 3, [](ProcessGroup group) {
    Embedding net(EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      // Rank r looks r + 1 words up: 0 .. r.
      model(torch::arange(group.rank() + 1, torch::kLong)).sum().backward();
      const torch::Tensor gradient = net->weight.grad().to_dense().select(1, 0);
      const torch::Tensor expected = torch::tensor({3.0, 2.0, 1.0, 0.0}, torch::kFloat) / 3;
      EXPECT_TRUE(torch::allclose(gradient, expected)) << gradient;
    }
  });
}

TEST_P(ProcessBackends, J2RanksMayEndEarly) {
  run_group(GetParam(), 3, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    model.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        net->zero_grad();
        model(constant({1, 1}, 3)).sum().backward();
        EXPECT_FLOAT_EQ(net->weight.grad().item<float>(), static_cast<float>(3 - step));
      }
    });
    expect_same_on_all_ranks(net->weight, group);
  });
}

/// Layers and a buffer that may be exchanged.
struct ChangingImpl : torch::nn::Module {
  ChangingImpl() {
    first = register_module("first", Linear(2, 2));
    second = register_module("second", Linear(2, 2));
    register_buffer("seen", torch::zeros({1}));
    second->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor output = second(first(input.to(first->weight.scalar_type())));
    if (third) output = third(output);
    return output;
  }
  Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Changing);

TEST(ChangedModules, AreRefusedWithWhatHasChanged) {
  struct Case {
    std::string what;
    std::function<void(ChangingImpl&)> change;
    std::string rest = "";
  };
  const Case cases[] = {{"second.weight requires a gradient and did not",
                            [](ChangingImpl& net) { net.second->weight.set_requires_grad(true); }},
      {"third.weight was added",
          [](ChangingImpl& net) { net.third = net.register_module("third", Linear(2, 2)); }},
      {"second.weight was removed", [](ChangingImpl& net) { net.unregister_module("second"); }},
      {"first.weight was replaced by another tensor",
          [](ChangingImpl& net) { net.first = net.replace_module("first", Linear(2, 2)); }},
      {"more was added", [](ChangingImpl& net) { net.register_buffer("more", torch::zeros({1})); }},
      {"first.weight was Float [2, 2] on ", [](ChangingImpl& net) { net.to(torch::kBFloat16); },
          " and is BFloat16 [2, 2] on "},
      {"first.weight was Float [2, 2] on ",
          [](ChangingImpl& net) {
            net.first->weight.set_data(torch::ones({2, 3}));
          },
          " and is Float [2, 3] on "}};
  for (const Case& each : cases) {
    testing::run_ranks(2, [&](ProcessGroup group) {
      Changing net;
      DistributedDataParallel model(net, group);
      model(torch::ones({1, 2})).sum().backward();
      each.change(*net);
      testing::bring_here(*net);
      EXPECT_THAT(message_of<Error>([&] {
        model(torch::ones({1, 2}));
      }),
          AllOf(HasSubstr(concat("DistributedDataParallel: the module is not what it was when it "
                                 "was wrapped: ",
                    each.what)),
              HasSubstr(each.rest), HasSubstr("; make such changes before, or wrap it again")));
    });
  }
}

// The other rank would wait.
TEST(ChangedModules, TheOtherRanksLearnOfAChangeOnOne) {
  with_replicas(2, make<Changing>, {}, [](Changing& net, auto& model, auto& group) {
    if (group.rank() == 1) net->second->weight.set_requires_grad(true);
    EXPECT_THAT(message_of<Error>([&] {
      model(torch::ones({1, 2})).sum().backward();
    }),
        HasSubstr(testing::heard("second.weight requires a gradient", 1, group)));
  });
}

TEST(ChangedModules, WhatIsIgnoredMayChange) {
  with_replicas(2, make<Changing>, Options().ignored({"second.*"}).broadcast_buffers(false),
      [](Changing& net, auto& model, auto& group) {
        net->second->weight.set_requires_grad(true);
        net->register_buffer("more", torch::zeros({1}));
        model(torch::ones({1, 2})).sum().backward();
        testing::expect_same_on_all_ranks(net->first->weight.grad(), group);
      });
}

TEST(ChangedModules, MayBeEvaluated) {
  with_replicas(2, make<Changing>, {}, [](Changing& net, auto& model, auto&) {
    net->second->weight.set_requires_grad(true);
    const torch::NoGradGuard no_grad;
    model(torch::ones({1, 2}));
  });
}

TEST(ChangedModules, WhatIsFrozenLaterMayBeLeftOut) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(2, 2);
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    net->bias.set_requires_grad(false);
    model(constant({1, 2}, group.rank())).sum().backward();
    EXPECT_FALSE(net->bias.grad().defined());
    testing::expect_same_on_all_ranks(net->weight.grad(), group);
  });
}

TEST(ChangedModules, AnotherOrderOfMemoryLaterIsAveragedAlike) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::manual_seed(3);
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 2, 2));
    DistributedDataParallel model(net, group);
    if (group.rank() == 1)
      net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto input = testing::here(torch::arange(16, torch::kFloat).view({1, 2, 2, 4}));
      model(input * (1 + group.rank())).sum().backward();
      testing::expect_same_on_all_ranks(net->weight.grad().contiguous(), group);
    }
  });
}

/// Multiplies by a buffer, which its graph saves, and normalises.
struct BufferedImpl : torch::nn::Module {
  BufferedImpl() {
    layer = register_module("layer", Linear(2, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    factor = register_buffer("factor", torch::full({2}, 2));
  }
  torch::Tensor forward(const torch::Tensor& input) { return norm(layer(input) * factor); }
  Linear layer{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor factor;
};
TORCH_MODULE(Buffered);

// A siamese net, or the discriminator of a GAN.
TEST(Buffers, FollowBetweenTwoForwardsOfOneBackward) {
  with_replicas(2, make<Buffered>, {}, [](Buffered& net, auto& model, auto& group) {
    for (int step = 0; step < 2; ++step) {
      const auto batch = [&](float start) {
        return testing::here((torch::arange(8, torch::kFloat) + start).sin().view({4, 2}));
      };
      const auto mine = static_cast<float>(group.rank());
      const torch::Tensor real = model(batch(mine)), other = model(batch(mine + 3));
      (real.square().sum() + (real * other).sum()).backward();
      expect_same_gradients(*net, group);
    }
  });
}

}  // namespace
}  // namespace lockstep
