#include "lockstep/nn/exported/exported_layer.h"

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include "lockstep/core/text.h"
#include "lockstep/nn/exported/program_frame.h"
#include "lockstep/nn/models/layers.h"

namespace lockstep::nn::exported {
namespace {

using c10::IValue;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

// A number travels as the shape of an empty tensor, which no device need be waited for to know:
// [0, n] is a whole number, [0, n, 0] a truth. Others are tensors without a dimension.
Tensor tensor_of_number(std::int64_t number) { return at::empty({0, number}); }

Tensor tensor_of_value(const IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isNone()) return {};
  if (value.isBool()) return at::empty({0, value.toBool() ? 1 : 0, 0});
  if (value.isInt() && value.toInt() >= 0) return tensor_of_number(value.toInt());
  return at::scalar_tensor(value.toScalar(), value.isInt() ? torch::kLong : torch::kDouble);
}

IValue number_of_tensor(const Tensor& tensor) {
  if (tensor.dim() == 3) return tensor.size(1) != 0;
  if (tensor.dim() == 2) return tensor.size(1);
  return tensor.scalar_type() == torch::kLong ? IValue(tensor.item<std::int64_t>())
                                              : IValue(tensor.item<double>());
}

/// A layer that runs a segment, of whatever type its values are.
class SegmentLayer : public NamedAsInModel {
 public:
  SegmentLayer(LayerCode from, const Tensors& tensors, const torch::nn::Module& net)
      : from_(std::move(from)), tensors_(tensors.size()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (is_own(i)) tensors_[i] = tensors[i];
      // Own handles, which to() replaces.
      if (!is_own(i) && !is_parameter(i)) tensors_[i] = tensors[i].detach();
    }
    register_own(*this, net, "");
    for (const std::string& path : from_.code->modules) modules_.push_back(&module_at(path));
    if (!net.is_training()) eval();
  }

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override {
    Module::to(device, dtype, non_blocking);
    convert_others(device, dtype, non_blocking);
  }
  void to(torch::Dtype dtype, bool non_blocking = false) override {
    Module::to(dtype, non_blocking);
    convert_others(std::nullopt, dtype, non_blocking);
  }
  void to(torch::Device device, bool non_blocking = false) override {
    Module::to(device, non_blocking);
    convert_others(device, std::nullopt, non_blocking);
  }

 protected:
  /// Computes what the next layer takes; in the last layer the wanted outputs. Behind the values
  /// there is the number of samples.
  Tensors run(const Tensors& given) {
    const Program& program = from_.code->program_for(is_training());
    const Segment& segment = segment_of(program);
    ProgramFrame frame(program, tensors_, {device(given), modules_});
    std::map<Place, Tensor> handed;  // parameters of earlier layers
    if (from_.number == 0) {
      program.forms.check(given);
      frame.take_inputs(kept(given, program));
    } else {
      take(given, program, segment, frame, handed);
    }
    for (const std::size_t input : segment.held) frame.take_held(input);
    frame.run(segment.begin, segment.end);
    for (const std::size_t output : segment.stored) frame.store(output);
    return leaving(program, segment, frame, handed, samples_of(given));
  }

  Tensor last(Tensors outputs) const {
    const std::int64_t samples = outputs.back().size(1);
    outputs.pop_back();
    return from_.last(outputs, samples);
  }

 private:
  const std::vector<HeldTensor>& held() const { return from_.code->held; }
  bool is_parameter(std::size_t i) const { return held()[i].kind == HeldTensor::Kind::kParameter; }
  bool is_registered(std::size_t i) const {
    return is_parameter(i) || held()[i].kind == HeldTensor::Kind::kBuffer;
  }
  bool is_own(std::size_t i) const {
    return is_registered(i) && from_.segments->owners[i] == from_.number;
  }

  // Shares those modules all of whose tensors are this layer's; of others it has a part.
  void register_own(torch::nn::Module& part, const torch::nn::Module& of, const std::string& path) {
    for (std::size_t i = 0; i < held().size(); ++i) {
      const std::string& name = held()[i].name;
      if (!is_own(i) || !name.starts_with(path)) continue;
      const std::string rest = name.substr(path.size());
      if (rest.find('.') != std::string::npos) continue;
      if (is_parameter(i))
        part.register_parameter(rest, tensors_[i], tensors_[i].requires_grad());
      else
        part.register_buffer(rest, tensors_[i]);
    }
    for (const auto& child : of.named_children()) {
      const std::string below = concat(path, child.key(), ".");
      if (has_all(below)) {
        part.register_module(child.key(), child.value());
      } else {
        const auto fresh = part.register_module(child.key(), std::make_shared<Module>(child.key()));
        register_own(*fresh, *child.value(), below);
      }
    }
  }

  bool has_all(const std::string& path) const {
    for (std::size_t i = 0; i < held().size(); ++i)
      if (is_registered(i) && !is_own(i) && held()[i].name.starts_with(path)) return false;
    return true;
  }

  torch::nn::Module& module_at(const std::string& path) {
    torch::nn::Module* module = this;
    if (path.empty()) return *module;
    for (const std::string& name : split(path, '.')) module = module->named_children()[name].get();
    return *module;
  }

  void convert_others(
      std::optional<torch::Device> device, std::optional<torch::Dtype> dtype, bool non_blocking) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& tensor = tensors_[i];
      if (!tensor.defined() || is_own(i)) continue;
      if (device) tensor = tensor.to(*device, non_blocking);
      const bool is_buffer = held()[i].kind != HeldTensor::Kind::kConstant;
      if (dtype && is_buffer && tensor.is_floating_point())
        tensor = tensor.to(*dtype, non_blocking);
    }
  }

  at::Device device(const Tensors& given) const {
    const auto found = std::ranges::find_if(tensors_, &Tensor::defined);
    return found == tensors_.end() ? given.front().device() : found->device();
  }

  const Segment& segment_of(const Program& program) const {
    const auto number = static_cast<std::size_t>(&program - from_.code->programs.data());
    return from_.segments->of_programs[number][from_.number];
  }

  std::int64_t samples_of(const Tensors& given) const {
    return from_.number == 0 ? given.front().size(0) : given.back().size(1);
  }

  // A batch stays as it is: Note [Writing in place].
  static Tensors kept(Tensors inputs, const Program& program) {
    for (const Program::Input& input : program.inputs)
      if (input.kind == Program::Input::Kind::kUser && input.is_changed)
        inputs[input.index] = inputs[input.index].clone();
    return inputs;
  }

  static bool is_held_input(const Program& program, Place place) {
    const auto input = static_cast<std::size_t>(place);
    return input < program.inputs.size() &&
           program.inputs[input].kind == Program::Input::Kind::kHeld;
  }

  void take(const Tensors& given, const Program& program, const Segment& segment,
      ProgramFrame& frame, std::map<Place, Tensor>& handed) const {
    const auto& is_number = program.graph.parts().is_number;
    for (std::size_t i = 0; i < segment.arriving.size(); ++i) {
      const Place place = segment.arriving[i];
      if (is_held_input(program, place)) {
        handed[place] = given[i];
        give_tied(program, place, given[i], frame);
      } else {
        frame.set(place, is_number[static_cast<std::size_t>(place)] ? number_of_tensor(given[i])
                                                                    : IValue(given[i]));
      }
    }
  }

  // Under all names of the parameter.
  void give_tied(
      const Program& program, Place place, const Tensor& tensor, ProgramFrame& frame) const {
    const auto first_of = [&](std::size_t input) {
      return held()[program.inputs[input].index].first;
    };
    for (std::size_t i = 0; i < program.inputs.size(); ++i)
      if (is_held_input(program, static_cast<Place>(i)) &&
          first_of(i) == first_of(static_cast<std::size_t>(place)))
        frame.set(static_cast<Place>(i), tensor);
  }

  // An own parameter gets its gradient from the layers that it is handed to as any other value.
  Tensors leaving(const Program& program, const Segment& segment, const ProgramFrame& frame,
      const std::map<Place, Tensor>& handed, std::int64_t samples) const {
    Tensors values;
    for (const Place place : segment.leaving) {
      const auto parameter = handed.find(place);
      if (parameter != handed.end())
        values.push_back(parameter->second);
      else if (is_held_input(program, place))
        values.push_back(
            at::alias(tensors_[program.inputs[static_cast<std::size_t>(place)].index]));
      else
        values.push_back(tensor_of_value(frame.value(place)));
    }
    values.push_back(tensor_of_number(samples));
    return values;
  }

  LayerCode from_;
  Tensors tensors_;                          // own ones, and what never changes
  std::vector<torch::nn::Module*> modules_;  // whose modes the code asks for
};

template <typename In, typename Out>
class TypedLayer final : public SegmentLayer {
 public:
  using SegmentLayer::SegmentLayer;

  // NOLINTNEXTLINE(readability-identifier-naming): LibTorch's name.
  Out forward(In given) {
    Tensors values;
    if constexpr (std::is_same_v<In, Tensor>)
      values = run({std::move(given)});
    else
      values = run(given);
    if constexpr (std::is_same_v<Out, Tensor>)
      return last(std::move(values));
    else
      return values;
  }
};

template <typename In, typename Out>
torch::nn::AnyModule typed(LayerCode code, const Tensors& tensors, const torch::nn::Module& net) {
  return torch::nn::AnyModule(std::make_shared<TypedLayer<In, Out>>(std::move(code), tensors, net));
}

}  // namespace

torch::nn::AnyModule make_layer(
    LayerCode code, const Tensors& tensors, const torch::nn::Module& net) {
  const bool takes_one = code.number == 0 && code.code->programs.front().forms.size() == 1;
  const bool is_last = code.number + 1 == code.segments->names.size();
  if (takes_one && is_last) return typed<Tensor, Tensor>(std::move(code), tensors, net);
  if (takes_one) return typed<Tensor, Tensors>(std::move(code), tensors, net);
  if (is_last) return typed<Tensors, Tensor>(std::move(code), tensors, net);
  return typed<Tensors, Tensors>(std::move(code), tensors, net);
}

}  // namespace lockstep::nn::exported
