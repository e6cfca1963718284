// LSTMs: what LibTorch computes in double precision, over drawn shapes.

#include "lockstep/nn/fused/lstm.h"

#include <array>
#include <gtest/gtest.h>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/randint.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include "lockstep/nn/autocast.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using conv::between;
using Tensors = std::vector<Tensor>;

struct LstmForm {
  std::int64_t steps, sequences, inputs, width;
  std::int64_t layers = 1;
  bool is_bidirectional = false, has_biases = true, batch_first = false;
  std::int64_t rows = 0;  // of the input, that stand at places; 0: one for each item

  std::int64_t directions() const { return is_bidirectional ? 2 : 1; }
};

std::ostream& operator<<(std::ostream& out, const LstmForm& form) {
  return out << form.steps << " steps of " << form.sequences << ", " << form.inputs << " -> "
             << form.width << ", " << form.layers << " layers of " << form.directions()
             << (form.has_biases ? ", biases" : "") << (form.batch_first ? ", batch first" : "")
             << (form.rows > 0 ? ", by place" : "");
}

LstmForm drawn_form(std::mt19937& generator) {
  const auto any = [&](std::int64_t most) { return between(generator, 1, most); };
  const auto flip = [&] { return between(generator, 0, 1) == 1; };
  return {.steps = any(7),
      .sequences = any(20),
      .inputs = any(30),
      .width = any(40),
      .layers = any(2),
      .is_bidirectional = flip(),
      .has_biases = flip(),
      .batch_first = flip(),
      .rows = flip() ? any(9) : 0};
}

/// Input, first states and cells, and parameters, which need gradients.
struct LstmOperands {
  LstmForm form;
  Tensors all;
  Tensor places = {};

  static LstmOperands drawn(const LstmForm& form) {
    const std::int64_t gates = 4 * form.width, all = form.layers * form.directions();
    const std::array<std::int64_t, 2> order{form.batch_first ? form.sequences : form.steps,
        form.batch_first ? form.steps : form.sequences};
    LstmOperands drawn{form, {}};
    if (form.rows > 0) {
      drawn.places = at::randint(form.rows, order, at::kLong);
      drawn.all.push_back(at::randn({form.rows, form.inputs}));
    } else {
      drawn.all.push_back(at::randn({order[0], order[1], form.inputs}));
    }
    for (int i = 0; i < 2; ++i) drawn.all.push_back(at::randn({all, form.sequences, form.width}));
    for (std::int64_t i = 0; i < all; ++i) {
      const std::int64_t inputs =
          i < form.directions() ? form.inputs : form.directions() * form.width;
      drawn.all.push_back(at::randn({gates, inputs}) * 0.3);
      drawn.all.push_back(at::randn({gates, form.width}) * 0.3);
      for (int bias = 0; form.has_biases && bias < 2; ++bias)
        drawn.all.push_back(at::randn({gates}));
    }
    return drawn.as(at::kFloat);
  }

  LstmOperands as(at::ScalarType type) const {
    LstmOperands copy{form, {}, places};
    for (const Tensor& tensor : all)
      copy.all.push_back(tensor.detach().to(type, false, true).requires_grad_());
    return copy;
  }

  Tensors states() const { return {all[1], all[2]}; }
  Tensors parameters() const { return {all.begin() + 3, all.end()}; }

  /// Calls body with the call; its lists do not live longer.
  template <typename Body>
  auto with_call(const Body& body) const {
    const auto given = states(), weights = parameters();
    return body(LstmCall{.input = all[0],
        .states = given,
        .parameters = weights,
        .has_biases = form.has_biases,
        .layers = form.layers,
        .dropout = 0,
        .is_training = true,
        .is_bidirectional = form.is_bidirectional,
        .batch_first = form.batch_first,
        .places = places});
  }

  Tensors of_kernels(const LstmKernels& kernels) const {
    return with_call([&](const LstmCall& call) { return as_list(own_lstm(kernels, call)); });
  }

  Tensors of_libtorch() const {
    const Tensor input = form.rows == 0 ? all[0]
                                        : all[0]
                                              .index_select(0, places.view({-1}))
                                              .view({places.size(0), places.size(1), form.inputs});
    return as_list(at::lstm(input, states(), parameters(), form.has_biases, form.layers, 0, true,
        form.is_bidirectional, form.batch_first));
  }

 private:
  static Tensors as_list(const LstmResults& results) {
    const auto& [outputs, states, cells] = results;
    return {outputs, states, cells};
  }
};

/// The three outputs, and the gradients of the operands for those of the outputs.
Tensors lstm_results(
    const LstmOperands& operands, const Tensors& outputs, const Tensors& output_gradients) {
  Tensors results = torch::autograd::grad(outputs, operands.all, output_gradients);
  for (const Tensor& output : outputs) results.push_back(output.detach());
  return results;
}

Tensors lstm_gradients(const Tensors& outputs) {
  Tensors gradients;
  for (const Tensor& output : outputs) gradients.push_back(at::randn(output.sizes()));
  return gradients;
}

Tensors all_in_double(const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& tensor : tensors) copies.push_back(tensor.to(at::kDouble));
  return copies;
}

void expect_lstm_close(const Tensors& results, const Tensors& wanted, double allowed) {
  ASSERT_EQ(results.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(results[i].sizes(), wanted[i].sizes()) << "result " << i;
    const double scale = std::max(1.0, wanted[i].abs().max().item<double>());
    EXPECT_LE((results[i].to(at::kDouble) - wanted[i]).abs().max().item<double>(), allowed * scale)
        << "result " << i;
  }
}

void expect_lstm_agrees(const LstmForm& form, const LstmKernels& kernels) {
  SCOPED_TRACE(::testing::Message() << form << ", " << kernels.cells.name);
  const auto own = LstmOperands::drawn(form), exact = own.as(at::kDouble);
  ASSERT_TRUE(own.with_call(is_lstm_own));
  const auto outputs = own.of_kernels(kernels);
  const auto gradients = lstm_gradients(outputs);
  expect_lstm_close(lstm_results(own, outputs, gradients),
      lstm_results(exact, exact.of_libtorch(), all_in_double(gradients)), 1e-5);
}

// Vectors, strips and panels that are not full; products by LibTorch and by our kernels.
TEST(Lstm, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(7);
  std::mt19937 generator(5);
  for (const LstmKernels& kernels : lstm_kernels()) {
    for (int round = 0; round < 40 && !::testing::Test::HasFailure(); ++round) {
      const KernelScope scope(round % 2 == 0 ? Kernels::kOwn : Kernels::kLibTorch);
      expect_lstm_agrees(drawn_form(generator), kernels);
    }
  }
}

// Sums whose rows are pages apart; depths beyond one panel; sequences in several parts.
TEST(Lstm, AgreesWhereSumsAreWideAndSequencesMany) {
  torch::manual_seed(9);
  for (const LstmKernels& kernels : lstm_kernels()) {
    expect_lstm_agrees({.steps = 3, .sequences = 5, .inputs = 9, .width = 256}, kernels);
    expect_lstm_agrees({.steps = 2, .sequences = 150, .inputs = 5, .width = 7}, kernels);
  }
}

const LstmForm kUsual{.steps = 6,
    .sequences = 40,
    .inputs = 24,
    .width = 32,
    .layers = 2,
    .is_bidirectional = true,
    .batch_first = true,
    .rows = 11};

TEST(Lstm, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(8);
  const KernelScope scope(Kernels::kOwn);
  const auto own = LstmOperands::drawn(kUsual);
  const auto gradients = lstm_gradients(own.of_kernels(lstm_kernels().back()));
  const auto results = [&](int threads) {
    at::set_num_threads(threads);
    return lstm_results(own, own.of_kernels(lstm_kernels().back()), gradients);
  };
  const auto before = at::get_num_threads();
  const auto alone = results(1);
  for (const int threads : {2, 3, 7}) {
    const auto shared = results(threads);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(at::equal(alone[i], shared[i])) << threads << " threads, result " << i;
  }
  at::set_num_threads(before);
}

// Of one operand alone, and of one output alone.
TEST(Lstm, ComputesWhatIsWantedOfTheGradients) {
  torch::manual_seed(6);
  const auto own = LstmOperands::drawn(kUsual);
  const auto all =
      torch::autograd::grad({own.of_kernels(lstm_kernels().back())[0].square().sum()}, own.all);
  for (std::size_t i = 0; i < own.all.size(); ++i) {
    LstmOperands frozen = own.as(at::kFloat);
    for (Tensor& tensor : frozen.all) tensor = tensor.detach();
    frozen.all[i].requires_grad_();
    const auto outputs = frozen.of_kernels(lstm_kernels().back());
    const auto alone = torch::autograd::grad({outputs[0].square().sum()}, {frozen.all[i]});
    EXPECT_TRUE(at::equal(alone[0], all[i])) << i;
  }
  for (const std::size_t output : {1U, 2U}) {
    const auto exact = own.as(at::kDouble);
    const auto loss = [&](const Tensors& outputs) { return outputs[output].square().sum(); };
    expect_lstm_close(torch::autograd::grad({loss(own.of_kernels(lstm_kernels().back()))}, own.all),
        torch::autograd::grad({loss(exact.of_libtorch())}, exact.all), 1e-5);
  }
}

// Who scales one must not scale the other.
TEST(Lstm, HasGradientsOfItsBiasesInMemoryOfTheirOwn) {
  const auto own = LstmOperands::drawn(kUsual);
  const auto all =
      torch::autograd::grad({own.of_kernels(lstm_kernels().back())[0].square().sum()}, own.all);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(all[i].const_data_ptr(), all[j].const_data_ptr()) << i << " and " << j;
}

// By differences of the loss, along a direction drawn.
TEST(Lstm, HasTheSlopeOfItsOutputs) {
  torch::manual_seed(12);
  const auto own = LstmOperands::drawn(kUsual);
  const auto loss = [&](const LstmOperands& operands) {
    return operands.of_kernels(lstm_kernels().back())[0].square().mean();
  };
  const auto gradients = torch::autograd::grad({loss(own)}, own.all);
  constexpr double kStep = 1e-3;
  double slope = 0;
  LstmOperands ahead = own.as(at::kFloat), behind = own.as(at::kFloat);
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < own.all.size(); ++i) {
    const auto along = gradients[i] / gradients[i].norm();
    slope += (gradients[i] * along).sum().item<double>();
    ahead.all[i].add_(along, kStep);
    behind.all[i].sub_(along, kStep);
  }
  const double found = (loss(ahead) - loss(behind)).item<double>() / (2 * kStep);
  EXPECT_NEAR(found, slope, 0.01 * slope);
}

TEST(Lstm, IsDifferentiableTwice) {
  torch::manual_seed(6);
  const auto penalty = [](const LstmOperands& operands, const Tensors& outputs) {
    const auto first = torch::autograd::grad(
        {outputs[0].square().sum()}, {operands.all[0], operands.all[3]}, {}, true, true);
    return torch::autograd::grad(
        {first[0].square().sum() + first[1].square().sum()}, operands.all, {}, true, false, true);
  };
  for (const std::int64_t rows : {0, 3}) {
    const auto own = LstmOperands::drawn({.steps = 3,
        .sequences = 4,
        .inputs = 5,
        .width = 6,
        .is_bidirectional = true,
        .rows = rows});
    const auto exact = own.as(at::kDouble);
    const auto found = penalty(own, own.of_kernels(lstm_kernels().back())),
               wanted = penalty(exact, exact.of_libtorch());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(found[i].defined(), wanted[i].defined()) << i;
      if (wanted[i].defined()) expect_lstm_close({found[i]}, {wanted[i]}, 1e-4);
    }
  }
}

TEST(Lstm, OtherFormsAreLibTorchs) {
  const LstmOperands usual =
      LstmOperands::drawn({.steps = 3, .sequences = 4, .inputs = 5, .width = 6});
  const auto is_own_with = [&](std::size_t operand, const Tensor& replaced) {
    LstmOperands other = usual;
    other.all[operand] = replaced;
    return other.with_call(is_lstm_own);
  };
  EXPECT_TRUE(is_own_with(0, usual.all[0]));
  EXPECT_FALSE(usual.as(at::kDouble).with_call(is_lstm_own));
  EXPECT_FALSE(usual.as(at::kBFloat16).with_call(is_lstm_own));
  EXPECT_FALSE(is_own_with(0, at::randn({4, 5}))) << "one sequence without a batch";
  EXPECT_FALSE(is_own_with(0, at::randn({3, 4, 6}))) << "LibTorch says what is wrong";
  EXPECT_FALSE(is_own_with(0, at::randn({3, 0, 5})));
  EXPECT_FALSE(is_own_with(1, at::randn({1, 4, 3}))) << "with a projection";
  EXPECT_FALSE(is_own_with(3, at::randn({5, 24}).t())) << "another order";
}

torch::nn::LSTM drawn_lstm(double dropout) {
  torch::manual_seed(4);
  torch::nn::LSTM lstm(
      torch::nn::LSTMOptions(10, 12).num_layers(2).bidirectional(true).batch_first(true).dropout(
          dropout));
  return lstm;
}

// Any module's, and with LibTorch's dropout between the layers the same numbers.
TEST(Lstm, IsCalledForAnyModuleWithinAScope) {
  auto lstm = drawn_lstm(0.5);
  const Tensor input = at::randn({6, 5, 10});
  const auto output = [&](Kernels who) {
    const KernelScope scope(who);
    return std::get<0>(lstm->forward(input));
  };
  const auto name = [](const Tensor& tensor) {
    return tensor.grad_fn()->next_edges()[0].function->name();
  };
  EXPECT_NE(name(output(Kernels::kOwn)).find("OwnLstm"), std::string::npos);
  EXPECT_EQ(name(output(Kernels::kLibTorch)).find("OwnLstm"), std::string::npos);
  lstm->eval();
  expect_lstm_close({output(Kernels::kOwn)}, {output(Kernels::kLibTorch).to(at::kDouble)}, 1e-5);
}

TEST(Lstm, DropsBetweenLayersAsLibTorchDoes) {
  const auto own =
      LstmOperands::drawn({.steps = 4, .sequences = 6, .inputs = 10, .width = 12, .layers = 3});
  const auto outputs = [&](bool is_own) {
    torch::manual_seed(2);
    return own.with_call([&](const LstmCall& call) {
      return is_own ? std::get<0>(own_lstm(lstm_kernels().back(), {.input = call.input,
                                                                      .states = call.states,
                                                                      .parameters = call.parameters,
                                                                      .has_biases = true,
                                                                      .layers = 3,
                                                                      .dropout = 0.5,
                                                                      .is_training = true,
                                                                      .is_bidirectional = false,
                                                                      .batch_first = false}))
                    : std::get<0>(at::lstm(call.input, call.states, call.parameters, true, 3, 0.5,
                          true, false, false));
    });
  };
  expect_lstm_close({outputs(true)}, {outputs(false).to(at::kDouble)}, 1e-5);
}

TEST(Lstm, LeavesFewSequencesForManyThreadsToLibTorch) {
  const auto is_own = [](Kernels who, int threads) {
    const KernelScope scope(who);
    const auto before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto of_eight =
        LstmOperands::drawn({.steps = 3, .sequences = 8, .inputs = 5, .width = 6});
    const bool result = of_eight.with_call(is_lstm_for_own);
    at::set_num_threads(before);
    return result;
  };
  const bool has_vectors = simd::instructions_in_use() != simd::InstructionSet::kPlain;
  EXPECT_EQ(is_own(Kernels::kAuto, 2), has_vectors);
  EXPECT_FALSE(is_own(Kernels::kAuto, 3));
  EXPECT_TRUE(is_own(Kernels::kOwn, 3));
  EXPECT_FALSE(is_own(Kernels::kLibTorch, 1));
}

TEST(Lstm, IsLibTorchsUnderAutocast) {
  const KernelScope scope(Kernels::kOwn);
  const auto usual = LstmOperands::drawn({.steps = 3, .sequences = 4, .inputs = 5, .width = 6});
  EXPECT_TRUE(usual.with_call(is_lstm_for_own));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_FALSE(usual.with_call(is_lstm_for_own));
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

// LibTorch's fails where oneDNN has none, as in bf16 without AVX-512.
TEST(Lstm, UnderAutocastRunsOnAnyProcessor) {
  const KernelScope scope(Kernels::kOwn);
  auto lstm = drawn_lstm(0);
  const Tensor input = at::randn({6, 5, 10});
  const auto slope_of = [&](const Tensor& output) {
    return torch::autograd::grad({output.to(at::kFloat).sin().sum()}, lstm->parameters());
  };
  const auto exact = std::get<0>(lstm->forward(input));
  const auto slope = all_in_double(slope_of(exact));
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    Autocast autocast(at::kCPU, type);
    const auto output = std::get<0>(lstm->forward(input));
    EXPECT_EQ(output.scalar_type(), type);
    expect_lstm_close({output}, {exact.to(at::kDouble)}, 0.03);
    expect_lstm_close(slope_of(output), slope, 0.05);
  }
}

}  // namespace
}  // namespace lockstep::nn::fused
