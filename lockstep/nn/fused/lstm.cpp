#include "lockstep/nn/fused/lstm.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/fused/gradients_with_graph.h"
#include "lockstep/nn/fused/lstm_steps.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"
#include "lockstep/simd/instructions.h"

// Note [LSTMs]
//
// The gates of a step are functions of a product of its input, which could be computed of all steps
// at once, and of one of the state before it. So a layer is
//
//     sums [T N, 4 width] = input [T N, inputs] x weight^T + biases
//     step by step: sums += state x recurrent weight^T; gates, cell and state of them
//
// and backward the gradients of the sums step by step, and then those of the input and of each
// weight as one product of all steps.
//
// Sequences do not depend on each other: a task takes some of one direction through all steps, and
// waits for no other. The tasks of a direction share a packed copy of the recurrent weight.

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A layer: what it is given, and what it keeps for backward.
struct LstmLayer {
  Tensor input;              ///< [T, N, inputs], or [rows, inputs] with places
  Tensor states, cells;      ///< the first ones, [directions, N, width]
  Tensor places;             ///< [T, N], or none
  variable_list parameters;  ///< of each direction
  Tensor output = {};        ///< [T, N, directions x width]
  // Of each direction.
  variable_list gates = {};        ///< [T, N, 4 width]
  variable_list later_cells = {};  ///< [T, N, width]

  variable_list list() const {
    variable_list all{input, states, cells, places, output};
    for (const variable_list* const more : {&parameters, &gates, &later_cells})
      all.insert(all.end(), more->begin(), more->end());
    return all;
  }
  static LstmLayer of(const variable_list& all) {
    constexpr std::ptrdiff_t kSingle = 5;
    const std::int64_t directions = all[1].size(0);
    const auto end_of_gates = all.end() - directions, begin_of_gates = end_of_gates - directions;
    return {all[0], all[1], all[2], all[3], {all.begin() + kSingle, begin_of_gates}, all[4],
        {begin_of_gates, end_of_gates}, {end_of_gates, all.end()}};
  }

  LstmShape shape() const {
    const Tensor& in_order = places.defined() ? places : input;
    return {in_order.size(0), in_order.size(1), states.size(2), states.size(0)};
  }

  std::size_t parameters_each() const {
    return parameters.size() / static_cast<std::size_t>(states.size(0));
  }
  const Tensor& parameter(std::int64_t direction, std::size_t which) const {
    return parameters[static_cast<std::size_t>(direction) * parameters_each() + which];
  }
  const Tensor& input_weight(std::int64_t direction) const { return parameter(direction, 0); }
  const Tensor& state_weight(std::int64_t direction) const { return parameter(direction, 1); }

  Tensor input_rows() const { return input.view({-1, input.size(-1)}); }

  void compute(const LstmKernels& kernels) {
    const LstmShape of = shape();
    output = at::empty({of.steps, of.sequences, of.outputs()}, input.options());
    variable_list sums;
    std::vector<LstmCourse> courses;
    for (std::int64_t direction = 0; direction < of.directions; ++direction) {
      const auto i = static_cast<std::size_t>(direction);
      sums.push_back(at::linear(input_rows(), input_weight(direction), bias(direction)));
      gates.push_back(places.defined()
                          ? at::empty({of.steps, of.sequences, 4 * of.width}, input.options())
                          : sums[i].view({of.steps, of.sequences, 4 * of.width}));
      later_cells.push_back(at::empty({of.steps, of.sequences, of.width}, input.options()));
      courses.push_back({.kernel = kernels.cells,
          .shape = of,
          .direction = direction,
          .of_state = {kernels.products,
              linear::transposed(linear::view_of(state_weight(direction))), of.width, 4 * of.width,
              /*adds=*/true},
          .states = states[direction].const_data_ptr<float>(),
          .cells_before = cells[direction].const_data_ptr<float>(),
          .sums_of_rows = sums[i].const_data_ptr<float>(),
          .places = places.defined() ? places.const_data_ptr<std::int64_t>() : nullptr,
          .gates = gates[i].mutable_data_ptr<float>(),
          .cells = later_cells[i].mutable_data_ptr<float>(),
          .outputs = output.mutable_data_ptr<float>()});
    }
    of.each_task([&](std::int64_t direction, Range sequences) {
      courses[static_cast<std::size_t>(direction)].run(sequences);
    });
  }

  /// Returns the last states, or cells, [directions, N, width].
  Tensor last_states() const {
    const std::int64_t width = states.size(2);
    variable_list last{output[-1].narrow(1, 0, width)};
    if (states.size(0) > 1) last.push_back(output[0].narrow(1, width, width));
    return at::stack(last);
  }
  Tensor last_cells() const {
    variable_list last{later_cells[0][-1]};
    if (states.size(0) > 1) last.push_back(later_cells[1][0]);
    return at::stack(last);
  }

 private:
  std::optional<Tensor> bias(std::int64_t direction) const {
    if (parameters_each() == 2) return std::nullopt;
    return parameter(direction, 2) + parameter(direction, 3);
  }
};

// Rows whose distance is a multiple of half a page share a few sets of the cache.
std::int64_t stride_of_sums(std::int64_t width) {
  constexpr std::int64_t kHalfPage = 512, kLine = 16;
  return 4 * width % kHalfPage == 0 ? 4 * width + kLine : 4 * width;
}

/// The gradients of a layer.
struct LstmGradients {
  const LstmKernels& kernels;
  const LstmLayer& layer;
  LstmShape shape;
  Tensor of_states, of_cells;  ///< of the first ones, or undefined
  variable_list of_sums;       ///< of each direction, [T N, 4 width]
  variable_list of_row_sums;   ///< the same of the input's rows

  LstmGradients(const LstmKernels& by, const LstmLayer& of, const variable_list& given,
      bool wants_first_states)
      : kernels(by), layer(of), shape(of.shape()) {
    if (wants_first_states) {
      of_states = at::empty_like(layer.states);
      of_cells = at::empty_like(layer.cells);
    }
    go_back(given);
    for (const Tensor& sums : of_sums) of_row_sums.push_back(by_rows(sums));
  }

  Tensor input() const {
    auto result = at::empty_like(layer.input);
    const auto rows = result.view({-1, result.size(-1)});
    linear::store_product(rows, of_row_sums[0], layer.input_weight(0));
    if (shape.directions > 1) linear::add_product(rows, of_row_sums[1], layer.input_weight(1));
    return result;
  }

  Tensor input_weight(std::int64_t direction) const {
    auto result = empty_gradient(layer.input_weight(direction));
    linear::store_product(
        result, of_row_sums[static_cast<std::size_t>(direction)].t(), layer.input_rows());
    return result;
  }

  // What was before a step is the output of the step before.
  Tensor state_weight(std::int64_t direction) const {
    const Tensor& all = of_sums[static_cast<std::size_t>(direction)];
    const auto outputs = layer.output.view({shape.rows(), shape.outputs()})
                             .narrow(1, direction * shape.width, shape.width);
    const std::int64_t first = shape.row_of(0, direction), once = shape.sequences;
    const std::int64_t later = shape.rows() - once;
    auto result = empty_gradient(layer.state_weight(direction));
    linear::store_product(result, all.narrow(0, first, once).t(), layer.states[direction]);
    if (later > 0)
      linear::add_product(result, all.narrow(0, direction == 0 ? once : 0, later).t(),
          outputs.narrow(0, direction == 0 ? 0 : once, later));
    return result;
  }

  Tensor bias(std::int64_t direction) const {
    return of_row_sums[static_cast<std::size_t>(direction)].sum(0);
  }

 private:
  void go_back(const variable_list& given) {
    const auto present = [&](std::size_t which, const Tensor& like) {
      return given[which].defined() ? given[which].contiguous() : at::zeros_like(like);
    };
    const Tensor of_output = present(0, layer.output);
    const Tensor of_last_states = present(1, layer.states), of_last_cells = present(2, layer.cells);
    const std::int64_t stride = stride_of_sums(shape.width);
    std::vector<LstmCourseBack> courses;
    for (std::int64_t direction = 0; direction < shape.directions; ++direction) {
      const auto i = static_cast<std::size_t>(direction);
      of_sums.push_back(
          at::empty({shape.rows(), stride}, layer.input.options()).narrow(1, 0, 4 * shape.width));
      const auto memory_of = [=](const Tensor& gradient) {
        return gradient.defined() ? gradient[direction].mutable_data_ptr<float>() : nullptr;
      };
      courses.push_back({.kernel = kernels.cells,
          .shape = shape,
          .direction = direction,
          .of_sum = {kernels.products, linear::view_of(layer.state_weight(direction)),
              4 * shape.width, shape.width, /*adds=*/false},
          .gates = layer.gates[i].const_data_ptr<float>(),
          .cells = layer.later_cells[i].const_data_ptr<float>(),
          .first_cells = layer.cells[direction].const_data_ptr<float>(),
          .of_outputs = of_output.const_data_ptr<float>(),
          .of_last_states = of_last_states[direction].const_data_ptr<float>(),
          .of_last_cells = of_last_cells[direction].const_data_ptr<float>(),
          .of_sums = of_sums.back().mutable_data_ptr<float>(),
          .sum_stride = stride,
          .of_first_states = memory_of(of_states),
          .of_first_cells = memory_of(of_cells)});
    }
    shape.each_task([&](std::int64_t direction, Range sequences) {
      courses[static_cast<std::size_t>(direction)].run(sequences);
    });
  }

  Tensor by_rows(const Tensor& sums) const {
    if (!layer.places.defined()) return sums;
    constexpr std::int64_t kColumns = 64;  // of a task
    const std::int64_t width = sums.size(1);
    auto result = at::zeros({layer.input.size(0), width}, sums.options());
    const RowsByPlace job{.count = sums.size(0),
        .width = width,
        .rows = sums.const_data_ptr<float>(),
        .stride = sums.stride(0),
        .places = layer.places.const_data_ptr<std::int64_t>(),
        .sums = result.mutable_data_ptr<float>()};
    in_parallel((width + kColumns - 1) / kColumns, [&](Range tasks) {
      kernels.cells.add_rows(job, {tasks.begin * kColumns, std::min(tasks.end * kColumns, width)});
    });
    return result;
  }
};

class OwnLstmLayer : public torch::autograd::Function<OwnLstmLayer> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& states,
      const Tensor& cells, at::TensorList parameters, const std::optional<Tensor>& places,
      const LstmKernels* kernels) {
    LstmLayer layer{.input = input,
        .states = states,
        .cells = cells,
        .places = places.value_or(Tensor()),
        .parameters = parameters.vec()};
    layer.compute(*kernels);
    context->save_for_backward(layer.list());
    context->saved_data["kernels"] = reinterpret_cast<std::intptr_t>(kernels);
    context->set_materialize_grads(false);
    return {layer.output, layer.last_states(), layer.last_cells()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto layer = LstmLayer::of(context->get_saved_variables());
    const auto& kernels =
        *reinterpret_cast<const LstmKernels*>(context->saved_data["kernels"].toInt());
    auto results = at::GradMode::is_enabled() ? of_libtorch(*context, layer, gradients)
                                              : own_gradients(*context, layer, gradients, kernels);
    results.resize(kParameters + layer.parameters.size() + 2);
    return results;
  }

 private:
  static constexpr std::size_t kInput = 0, kStates = 1, kCells = 2, kParameters = 3;

  static variable_list own_gradients(const AutogradContext& context, const LstmLayer& layer,
      const variable_list& given, const LstmKernels& kernels) {
    const auto wants = [&](std::size_t which) { return context.needs_input_grad(which); };
    const LstmGradients found(kernels, layer, given, wants(kStates) || wants(kCells));
    variable_list results{Tensor(), found.of_states, found.of_cells};
    if (wants(kInput)) results[kInput] = found.input();
    const std::size_t each = layer.parameters_each();
    for (std::size_t i = 0; i < layer.parameters.size(); i += each) {
      const auto direction = static_cast<std::int64_t>(i / each);
      const std::size_t first = kParameters + i;
      results.push_back(wants(first) ? found.input_weight(direction) : Tensor());
      results.push_back(wants(first + 1) ? found.state_weight(direction) : Tensor());
      if (each == 2) continue;
      const auto bias = wants(first + 2) || wants(first + 3) ? found.bias(direction) : Tensor();
      // Two tensors: who scales one of the gradients must not scale the other.
      results.insert(results.end(), {bias, wants(first + 3) ? bias.clone() : Tensor()});
    }
    return results;
  }

  static variable_list of_libtorch(
      const AutogradContext& context, const LstmLayer& layer, const variable_list& given) {
    const LstmShape shape = layer.shape();
    const auto output = [&](const variable_list& inputs) {
      const auto& rows = inputs[kInput];
      const auto input = layer.places.defined()
                             ? rows.index_select(0, layer.places.view({-1}))
                                   .view({shape.steps, shape.sequences, rows.size(1)})
                             : rows;
      const variable_list states{inputs[kStates], inputs[kCells]};
      const variable_list parameters(inputs.begin() + kParameters, inputs.end());
      const auto [outputs, last_states, last_cells] =
          at::native::lstm(input, states, parameters, layer.parameters_each() > 2, /*num_layers=*/1,
              /*dropout=*/0, /*train=*/true, shape.directions > 1, /*batch_first=*/false);
      return in_one_piece({outputs, last_states, last_cells});
    };
    variable_list inputs{layer.input, layer.states, layer.cells};
    inputs.insert(inputs.end(), layer.parameters.begin(), layer.parameters.end());
    const variable_list like{layer.output, layer.states, layer.cells};
    variable_list gradients;
    for (std::size_t i = 0; i < like.size(); ++i)
      gradients.push_back(given[i].defined() ? given[i] : at::zeros_like(like[i]));
    return gradients_with_graph(context, std::move(inputs), output, in_one_piece(gradients));
  }

  static Tensor in_one_piece(const variable_list& tensors) {
    variable_list lines;
    for (const Tensor& tensor : tensors) lines.push_back(tensor.reshape({-1}));
    return at::cat(lines);
  }
};

std::int64_t directions_of(const LstmCall& call) { return call.is_bidirectional ? 2 : 1; }

bool is_lstm_value(const Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && is_readable(tensor) &&
         tensor.numel() > 0 && tensor.sizes() == sizes;
}

bool is_parameter(const Tensor& tensor, at::IntArrayRef sizes) {
  return is_lstm_value(tensor, sizes) && tensor.is_contiguous();
}

struct StepsAndSequences {
  std::int64_t steps, sequences;
};

// None if the input has not that form.
StepsAndSequences count_in(const LstmCall& call) {
  const bool by_place = call.places.defined();
  const Tensor& in_order = by_place ? call.places : call.input;
  const bool fits = call.input.dim() == (by_place ? 2 : 3) && in_order.dim() == call.input.dim() &&
                    (!by_place || (in_order.scalar_type() == at::kLong && is_readable(in_order)));
  if (!fits) return {0, 0};
  const std::int64_t first = in_order.size(0), second = in_order.size(1);
  return call.batch_first ? StepsAndSequences{second, first} : StepsAndSequences{first, second};
}

bool are_parameters_own(const LstmCall& call, std::int64_t width) {
  const std::int64_t directions = directions_of(call), each = call.has_biases ? 4 : 2;
  const auto count = static_cast<std::size_t>(call.layers * directions * each);
  if (call.parameters.size() != count) return false;
  for (std::size_t i = 0; i < count; i += static_cast<std::size_t>(each)) {
    const bool is_first = i < static_cast<std::size_t>(directions * each);
    const std::int64_t inputs = is_first ? call.input.size(-1) : directions * width;
    const auto* const parameter = &call.parameters[i];
    const bool fits = is_parameter(parameter[0], {4 * width, inputs}) &&
                      is_parameter(parameter[1], {4 * width, width}) &&
                      (!call.has_biases || (is_parameter(parameter[2], {4 * width}) &&
                                               is_parameter(parameter[3], {4 * width})));
    if (!fits) return false;
  }
  return true;
}

// The sequences are shared out to threads; LibTorch shares out what a step computes.
bool is_lstm_faster(const LstmCall& call) {
  return simd::instructions_in_use() != simd::InstructionSet::kPlain &&
         count_in(call).sequences * directions_of(call) >= kFewestSequences * at::get_num_threads();
}

// What LibTorch's lstm takes in fp32 it passes to oneDNN, and only there autocast narrows it.
// oneDNN has those in bfloat16 with AVX-512 alone, those in float16 on few processors, and fails on
// others.
bool is_narrowed_in_vain(const Tensor& input) {
  static const bool kHasBfloat16 = simd::has_feature(simd::processor_features(), "avx512bw");
  const bool is_narrowed =
      at::autocast::is_autocast_enabled(at::kCPU) && input.scalar_type() == at::kFloat;
  return is_narrowed &&
         !(kHasBfloat16 && at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16);
}

LstmResults lstm_in_fp32(const LstmCall& call) {
  const auto in_fp32 = [](at::TensorList tensors) {
    variable_list results;
    for (const Tensor& tensor : tensors) results.push_back(tensor.to(at::kFloat));
    return results;
  };
  const auto type = at::autocast::get_autocast_dtype(at::kCPU);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const auto [values, states, cells] =
      at::lstm(call.input, in_fp32(call.states), in_fp32(call.parameters), call.has_biases,
          call.layers, call.dropout, call.is_training, call.is_bidirectional, call.batch_first);
  return {values.to(type), states.to(type), cells.to(type)};
}

}  // namespace

std::span<const LstmKernels> lstm_kernels() {
  static const LstmKernels kBuilds[] = {{lstm_plain(), linear::gemm_plain()},
      {lstm_avx2(), linear::gemm_avx2()}, {lstm_avx512(), linear::gemm_avx512()}};
  return simd::usable(kBuilds);
}

bool is_lstm_own(const LstmCall& call) {
  const auto [steps, sequences] = count_in(call);
  if (steps * sequences == 0 || call.layers < 1 || call.states.size() != 2 ||
      call.states[0].dim() != 3 || !is_lstm_value(call.input, call.input.sizes()))
    return false;
  const std::int64_t width = call.states[0].size(2);
  const std::int64_t sizes[] = {call.layers * directions_of(call), sequences, width};
  return is_lstm_value(call.states[0], sizes) && is_lstm_value(call.states[1], sizes) &&
         are_parameters_own(call, width);
}

LstmResults own_lstm(const LstmKernels& kernels, const LstmCall& call) {
  const auto in_time = [&](const Tensor& tensor) {
    return (call.batch_first ? tensor.transpose(0, 1) : tensor).contiguous();
  };
  const auto directions = directions_of(call);
  const auto each = call.parameters.size() / static_cast<std::size_t>(call.layers);
  const auto places = call.places.defined() ? std::optional(in_time(call.places)) : std::nullopt;
  Tensor values = places ? call.input.contiguous() : in_time(call.input);
  variable_list states, cells;
  for (std::int64_t layer = 0; layer < call.layers; ++layer) {
    const auto first = [&](std::size_t which) {
      return call.states[which].narrow(0, layer * directions, directions).contiguous();
    };
    const auto parameters = call.parameters.slice(static_cast<std::size_t>(layer) * each, each);
    const auto found = OwnLstmLayer::apply(
        values, first(0), first(1), parameters, layer == 0 ? places : std::nullopt, &kernels);
    values = found[0];
    states.push_back(found[1]);
    cells.push_back(found[2]);
    if (call.dropout != 0 && call.is_training && layer + 1 < call.layers)
      values = at::dropout(values, call.dropout, /*train=*/true);
  }
  if (call.batch_first) values = values.transpose(0, 1);
  return {values, at::cat(states), at::cat(cells)};
}

bool is_lstm_for_own(const LstmCall& call) {
  const Kernels who = kernels_in_use();
  return who != Kernels::kLibTorch && !at::autocast::is_autocast_enabled(at::kCPU) &&
         is_lstm_own(call) && (who == Kernels::kOwn || is_lstm_faster(call));
}

LstmResults dispatched_lstm(const Tensor& input, at::TensorList states, at::TensorList parameters,
    bool has_biases, std::int64_t layers, double dropout, bool is_training, bool is_bidirectional,
    bool batch_first) {
  const LstmCall call{.input = input,
      .states = states,
      .parameters = parameters,
      .has_biases = has_biases,
      .layers = layers,
      .dropout = dropout,
      .is_training = is_training,
      .is_bidirectional = is_bidirectional,
      .batch_first = batch_first};
  if (is_lstm_for_own(call)) return own_lstm(lstm_kernels().back(), call);
  if (kernels_in_use() != Kernels::kLibTorch && is_narrowed_in_vain(input))
    return lstm_in_fp32(call);
  return at::native::lstm(input, states, parameters, has_biases, layers, dropout, is_training,
      is_bidirectional, batch_first);
}

}  // namespace lockstep::nn::fused
