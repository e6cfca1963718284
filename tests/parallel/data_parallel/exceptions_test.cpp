// What becomes of an exception in a replica.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <gmock/gmock.h>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "tests/support/places.h"
#include <ATen/ops/ones.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using torch::Tensor;

/// Throws the given exception in every replica but the first.
template <typename Thrown>
struct ThrowingImpl : torch::nn::Cloneable<ThrowingImpl<Thrown>> {
  void reset() override {}
  Tensor forward(const Tensor& input, const std::function<Thrown()>& make) {
    if (input[0].item<int>() > 0) throw make();
    return input;
  }
};

template <typename Thrown>
void throw_in_the_second(const std::function<Thrown()>& make) {
  DataParallel model(std::make_shared<ThrowingImpl<Thrown>>(),
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
  struct SlowImpl : torch::nn::Cloneable<SlowImpl> {
    void reset() override {}
    Tensor forward(const Tensor& input, std::atomic<int>* finished) {
      if (input[0].item<int>() == 0) throw std::runtime_error("at once");
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ++*finished;
      return input;
    }
  };
  DataParallel model(std::make_shared<SlowImpl>(), testing::places(3));
  std::atomic<int> finished = 0;
  EXPECT_THROW(model(torch::tensor({0, 1, 2}), &finished), std::runtime_error);
  EXPECT_EQ(finished, 2);
}

}  // namespace
}  // namespace lockstep
