#include "lockstep/parallel/pipeline/stage_value.h"

#include <tuple>
#include <utility>

#include <c10/util/Type.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

template <ValueForm kForm>
struct Form;

template <>
struct Form<ValueForm::kTensor> {
  using Type = Tensor;
  static Tensors tensors(const Type& value) { return {value}; }
  static Type value(const Tensors& tensors) { return tensors.at(0); }
};

template <>
struct Form<ValueForm::kVector> {
  using Type = Tensors;
  static Tensors tensors(const Type& value) { return value; }
  static Type value(const Tensors& tensors) { return tensors; }
};

template <>
struct Form<ValueForm::kPair> {
  using Type = std::pair<Tensor, Tensor>;
  static Tensors tensors(const Type& value) { return {value.first, value.second}; }
  static Type value(const Tensors& tensors) { return {tensors.at(0), tensors.at(1)}; }
};

template <typename Tuple>
struct TupleForm {
  using Type = Tuple;
  static Tensors tensors(const Tuple& value) {
    return std::apply([](const auto&... all) { return Tensors{all...}; }, value);
  }
  static Tuple value(const Tensors& tensors) {
    return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
      return Tuple(tensors.at(kIndex)...);
    }
    (std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }
};

template <>
struct Form<ValueForm::kTuple1> : TupleForm<std::tuple<Tensor>> {};
template <>
struct Form<ValueForm::kTuple2> : TupleForm<std::tuple<Tensor, Tensor>> {};
template <>
struct Form<ValueForm::kTuple3> : TupleForm<std::tuple<Tensor, Tensor, Tensor>> {};
template <>
struct Form<ValueForm::kTuple4> : TupleForm<std::tuple<Tensor, Tensor, Tensor, Tensor>> {};

template <>
struct Form<ValueForm::kRecurrent> {
  using Type = std::tuple<Tensor, std::tuple<Tensor, Tensor>>;
  static Tensors tensors(const Type& value) {
    const auto& [output, state] = value;
    return {output, std::get<0>(state), std::get<1>(state)};
  }
  static Type value(const Tensors& tensors) {
    return {tensors.at(0), {tensors.at(1), tensors.at(2)}};
  }
};

// Calls visit(Form<...>, form) until one says true.
template <ValueForm... kForms>
bool any_form(const auto& visit) {
  return (visit(Form<kForms>(), kForms) || ...);
}

bool visit_forms(const auto& visit) {
  using enum ValueForm;
  return any_form<kTensor, kVector, kPair, kTuple1, kTuple2, kTuple3, kTuple4, kRecurrent>(visit);
}

}  // namespace

std::vector<Tensor> tensors_of(torch::nn::AnyValue& value, ValueForm& form) {
  Tensors tensors;
  const bool known = visit_forms([&](auto candidate, ValueForm name) {
    auto* const typed = value.try_get<typename decltype(candidate)::Type>();
    if (typed == nullptr) return false;
    tensors = candidate.tensors(*typed);
    form = name;
    return true;
  });
  check(
      known, "pipeline: a stage gave a value of type ", c10::demangle(value.type_info().name()),
      "; between stages pass tensors, or a pair, tuple or vector of tensors");
  return tensors;
}

torch::nn::AnyValue value_of(ValueForm form, const std::vector<Tensor>& tensors) {
  torch::nn::AnyValue value{Tensor()};
  visit_forms([&](auto candidate, ValueForm name) {
    if (name != form) return false;
    value = torch::nn::AnyValue(candidate.value(tensors));
    return true;
  });
  return value;
}

}  // namespace lockstep
