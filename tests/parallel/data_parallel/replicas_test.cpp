// The replicas of a module: what they share with it, follow and leave alone, and what becomes of
// their exceptions.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <gmock/gmock.h>
#include <malloc.h>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "tests/support/places.h"
#include "training.h"
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/data_parallel.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using testing_data_parallel::computing;
using testing_data_parallel::expect_close;
using testing_data_parallel::twin;
using torch::Tensor;

TEST(Replicas, UpdateRunningStatisticsByTheFirstShareR4) {
  torch::nn::BatchNorm1d net(2);
  auto expected = twin(net);
  DataParallel model(net, testing::places(2));
  const auto input = at::randn({8, 2});
  for (int step = 0; step < 3; ++step) {
    model(input * (step + 1));
    expected->forward(input.narrow(0, 0, 4) * (step + 1));  // what the first replica sees
  }
  expect_close(net->running_mean, expected->running_mean, "running mean");
  expect_close(net->running_var, expected->running_var, "running variance");
  EXPECT_EQ(net->num_batches_tracked.item<std::int64_t>(), 3);
  net->eval();
  expect_close(model(input), net->forward(input), "output in evaluation");
}

// The threads' order does not matter: each replica has its own stream.
TEST(Replicas, DrawTheSameNumbersForTheSameSeed) {
  torch::nn::Dropout net(0.5);
  DataParallel model(net, testing::places(3));
  const auto input = at::ones({300});
  const auto dropped = [&](std::uint64_t seed) {
    torch::manual_seed(seed);
    return model(input);
  };
  const auto first = dropped(1);
  for (int pass = 0; pass < 20; ++pass) EXPECT_TRUE(torch::equal(dropped(1), first));
  EXPECT_FALSE(torch::equal(dropped(2), first));
  EXPECT_FALSE(torch::equal(first.narrow(0, 0, 100), first.narrow(0, 100, 100)));
}

TEST(Replicas, GiveBuffersTheirGradientsR4) {
  struct ScaledImpl : torch::nn::Cloneable<ScaledImpl> {
    ScaledImpl() { reset(); }
    void reset() override { scale = register_buffer("scale", at::full({2}, 3.0)); }
    Tensor forward(const Tensor& input) { return input * scale; }
    Tensor scale;
  };
  const auto net = std::make_shared<ScaledImpl>();
  net->scale.requires_grad_();
  DataParallel model(net, testing::places(2));
  model(at::ones({5, 2})).sum().backward();
  EXPECT_TRUE(net->scale.grad().equal(at::full({2}, 5.0)));
}

TEST(Replicas, FollowValuesModesAndWhatIsFrozen) {
  torch::nn::Sequential net(
      torch::nn::Linear(2, 2), torch::nn::Dropout(0.5), torch::nn::Linear(2, 1));
  DataParallel model(net, testing::places(2));
  const auto input = at::ones({4, 2});
  net->ptr(1)->eval();  // only the dropout
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(2.0);
  }
  net->parameters()[0].set_data(at::full({2, 2}, 3.0));
  net->parameters()[1].set_requires_grad(false);
  const auto output = model(input);
  expect_close(output, net->forward(input), "output");
  output.sum().backward();
  EXPECT_TRUE(net->parameters()[0].grad().defined());
  EXPECT_FALSE(net->parameters()[1].grad().defined());
  net->to(torch::kDouble);
  expect_close(model(input.to(torch::kDouble)), net->forward(input.to(torch::kDouble)), "double");
}

TEST(Replicas, ShareTheParametersInMemoryR6) {
  struct AddressImpl : torch::nn::Cloneable<AddressImpl> {
    AddressImpl() { reset(); }
    void reset() override { weight = register_parameter("weight", at::ones({3})); }
    std::pair<Tensor, const void*> forward(const Tensor& input) {
      return {input, weight.data_ptr()};
    }
    Tensor weight;
  };
  const auto net = std::make_shared<AddressImpl>();
  DataParallel model(net, testing::places(2));
  EXPECT_EQ(model(at::ones({4})).second, net->weight.data_ptr());
}

TEST(Replicas, LeaveTheDefaultGeneratorAlone) {
  torch::nn::Linear net(4, 4);
  torch::manual_seed(11);
  const auto expected = at::randn({3});
  torch::manual_seed(11);
  DataParallel model(net, testing::places(3));
  EXPECT_TRUE(at::randn({3}).equal(expected));
}

TEST(Replicas, AreMadeByAFunctionWhereThereIsNoClone) {
  struct PlainImpl : torch::nn::Module {
    PlainImpl() : linear(register_module("linear", torch::nn::Linear(3, 2))) {}
    Tensor forward(const Tensor& input) { return linear(input); }
    torch::nn::Linear linear;
  };
  const auto net = std::make_shared<PlainImpl>();
  EXPECT_THAT([&] { DataParallel<std::shared_ptr<PlainImpl>>(net, testing::places(2)); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("DataParallel: the module ("),
          HasSubstr("PlainImpl"), HasSubstr("Cloneable"))));
  const auto made = std::function([] { return std::make_shared<PlainImpl>(); });
  DataParallel model(net, testing::places(2), made);
  const auto input = at::randn({4, 3});
  expect_close(model(input), net->forward(input), "output");
  EXPECT_THAT([&] { DataParallel(net, testing::places(2), std::function([&] { return net; })); },
      ThrowsMessage<InvalidArgument>(HasSubstr("gave the module itself")));
}

TEST(Replicas, NameTheSubModuleThatHasNoClone) {
  struct PlainImpl : torch::nn::Module {
    Tensor forward(const Tensor& input) { return input; }
  };
  struct OuterImpl : torch::nn::Cloneable<OuterImpl> {
    OuterImpl() { reset(); }
    void reset() override {
      body = register_module(
          "body", torch::nn::Sequential(torch::nn::Linear(1, 1), std::make_shared<PlainImpl>()));
    }
    Tensor forward(const Tensor& input) { return body->forward(input); }
    torch::nn::Sequential body = nullptr;
  };
  EXPECT_THAT(
      [] {
        DataParallel<std::shared_ptr<OuterImpl>>(std::make_shared<OuterImpl>(), testing::places(2));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("sub-module body.1 (")));
}

TEST(Replicas, MustBeBuiltLikeTheModule) {
  torch::nn::Linear net(3, 2);
  EXPECT_THAT(
      [&] {
        DataParallel(
            net, testing::places(2), std::function([] { return torch::nn::Linear(3, 4); }));
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("weight, Float [2, 3]"), HasSubstr("weight, Float [4, 3]"))));
}

// The replicas are copies of what the module was.
void expect_change_is_named(
    const std::function<void(torch::nn::Sequential&)>& change, const std::string& what) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::ReLU());
  const auto places = testing::places(2);
  net->to(places[0].device);
  DataParallel model(net, places);
  model(at::ones({4, 2}));
  change(net);
  net->to(places[0].device);
  EXPECT_THAT(
      [&] {
        model(at::ones({4, 2}));
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("DataParallel: the module is not what it was when it was wrapped: " + what)));
}

TEST(Replicas, RefuseAModuleThatHasChanged) {
  expect_change_is_named(
      [](auto& net) { net->push_back(torch::nn::Linear(2, 2)); }, "2.weight was added");
  expect_change_is_named(
      [](auto& net) { net->push_back(torch::nn::Tanh()); }, "it has 4 modules and had 3");
  expect_change_is_named(
      [](auto& net) { net->replace_module("1", torch::nn::Tanh()); }, "module 1 was replaced");
  expect_change_is_named([](auto& net) { net->replace_module("0", torch::nn::Linear(2, 2)); },
      "0.weight was replaced by another tensor");
  expect_change_is_named(
      [](auto& net) { net->register_buffer("more", at::ones({1})); }, "more was added");
}

TEST(Replicas, RefuseAModuleElsewhereThanTheFirstPlaceR3) {
  struct SpreadImpl : torch::nn::Cloneable<SpreadImpl> {
    SpreadImpl() { reset(); }
    void reset() override {
      first = register_module("first", torch::nn::Linear(2, 2));
      elsewhere = register_parameter("elsewhere", at::ones({2}, torch::kMeta));
    }
    Tensor forward(const Tensor& input) { return first(input) + elsewhere; }
    torch::nn::Linear first = nullptr;
    Tensor elsewhere;
  };
  DataParallel model(std::make_shared<SpreadImpl>(), testing::places(2));
  EXPECT_THAT(
      [&] {
        model(at::ones({4, 2}));
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("parameter elsewhere is on meta, but the first place is on cpu")));
  torch::nn::Linear net(2, 2);
  EXPECT_THAT([&] { DataParallel<torch::nn::Linear>(net, {}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("at least one place")));
}

TEST(Replicas, ComputeInTheModesOfTheCallerR5) {
  DataParallel model(computing(+[](const Tensor& input) {
    return std::make_tuple(torch::GradMode::is_enabled(), c10::InferenceMode::is_enabled(),
        at::mm(input, input).scalar_type());
  }),
      testing::places(2));
  const auto square = [&] { return model(at::ones({2, 1})); };
  EXPECT_EQ(square(), std::make_tuple(true, false, at::kFloat));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(square(), std::make_tuple(false, false, at::kFloat));
  }
  {
    const c10::InferenceMode inference;
    EXPECT_EQ(square(), std::make_tuple(false, true, at::kFloat));
  }
  const nn::Autocast autocast(at::kCPU, at::kHalf);
  EXPECT_EQ(square(), std::make_tuple(true, false, at::kHalf));
}

/// Returns how many bytes are allocated now.
std::size_t allocated() {
  const auto all = ::mallinfo2();
  return all.uordblks + all.hblkhd;
}

TEST(Replicas, DoNotGrowOver100StepsR6) {
  torch::nn::Sequential net(torch::nn::Linear(256, 256), torch::nn::BatchNorm1d(256));
  DataParallel model(net, testing::places(2));
  const auto input = at::randn({64, 256});
  const auto steps = [&](int count) {
    for (int step = 0; step < count; ++step) {
      net->zero_grad(true);
      model(input).square().mean().backward();
      model(input);  // a graph that dies without backward
    }
  };
  steps(10);
  const std::size_t before = allocated();
  steps(100);
  const std::size_t after = allocated();
  // One step's graph alone has 64 * 256 * 4 bytes several times.
  EXPECT_LT(after, before + 64 * 256 * 4);
}

// Throws it in every replica but the first.
template <typename Thrown>
void throw_in_the_second(const std::function<Thrown()>& make) {
  DataParallel model(computing(+[](const Tensor& input, const std::function<Thrown()>& thrown) {
    if (input[0].item<int>() > 0) throw thrown();
    return input;
  }),
      {Place{}, Place{torch::kCPU, testing::places(1)[0].cores}});
  EXPECT_NO_THROW(model(torch::tensor({0, 0}), make));
  model(torch::tensor({0, 1}), make);
}

TEST(Exceptions, OfReplicasHaveTheirNumberPlaceAndTypeR5) {
  const std::string who = "replica 1 (" + describe(testing::places(1)[0]) + "): ";
  EXPECT_THAT(
      [] { throw_in_the_second<std::out_of_range>([] { return std::out_of_range("layer 3"); }); },
      ThrowsMessage<std::out_of_range>(who + "layer 3"));
  EXPECT_THAT([] { throw_in_the_second<DataError>([] { return DataError("bad image"); }); },
      ThrowsMessage<DataError>(who + "bad image"));
  EXPECT_THAT(
      [] {
        throw_in_the_second<std::system_error>(
            [] { return std::system_error(ENOSPC, std::generic_category(), "write"); });
      },
      ThrowsMessage<std::system_error>(StartsWith(who + "write")));
  struct Foreign : std::exception {
    const char* what() const noexcept override { return "foreign"; }
  };
  try {
    throw_in_the_second<Foreign>([] { return Foreign(); });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), who + "foreign");
    EXPECT_THROW(std::rethrow_if_nested(error), Foreign);
  }
}

TEST(Exceptions, OfLibTorchHaveTheNumberAndTrainingGoesOnR5) {
  torch::nn::Linear net(3, 2);
  DataParallel model(net, testing::places(2));
  try {
    model(at::ones({4, 5}));
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("mat1 and mat2"));
    EXPECT_THAT(error.what(), HasSubstr("replica 0 (cpu core"));
  }
  EXPECT_EQ(model(at::ones({4, 3})).size(0), 4);
}

TEST(Exceptions, ArriveWhenAllReplicasHaveFinishedR5) {
  DataParallel model(computing(+[](const Tensor& input, std::atomic<int>* ended) {
    if (input[0].item<int>() == 0) throw std::runtime_error("at once");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ++*ended;
    return input;
  }),
      testing::places(3));
  std::atomic<int> finished = 0;
  EXPECT_THROW(model(torch::tensor({0, 1, 2}), &finished), std::runtime_error);
  EXPECT_EQ(finished, 2);
}

}  // namespace
}  // namespace lockstep
