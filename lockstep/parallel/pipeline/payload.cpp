#include "lockstep/parallel/pipeline/payload.h"

#include <tuple>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Type.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

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

// Calls visit(Form<...>, form) until one returns true.
template <ValueForm... kForms>
bool any_form(const auto& visit) {
  return (visit(Form<kForms>(), kForms) || ...);
}

bool visit_forms(const auto& visit) {
  using enum ValueForm;
  return any_form<kTensor, kVector, kPair, kTuple1, kTuple2, kTuple3, kTuple4, kRecurrent>(visit);
}

constexpr std::int64_t kUndefined = -1;  // in the place of a tensor's type

void describe_tensor(std::vector<std::int64_t>& numbers, const torch::Tensor& tensor) {
  if (!tensor.defined()) {
    numbers.push_back(kUndefined);
    return;
  }
  numbers.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
  numbers.push_back(tensor.requires_grad() ? 1 : 0);
  numbers.push_back(static_cast<std::int64_t>(tensor.suggest_memory_format()));
  numbers.push_back(tensor.dim());
  numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
}

// Takes numbers from the front.
class Reader {
 public:
  explicit Reader(const std::vector<std::int64_t>& numbers) : numbers_(numbers) {}

  std::int64_t next(std::int64_t least, std::int64_t most) {
    if (at_ == numbers_.size()) throw CommError("pipeline: a description from a rank is too short");
    const std::int64_t number = numbers_[at_++];
    if (number < least || number > most) {
      throw CommError(concat("pipeline: a description from a rank has ", number, " where ", least,
          " to ", most, " may stand; do all ranks run the same program?"));
    }
    return number;
  }
  bool ended() const { return at_ == numbers_.size(); }

 private:
  const std::vector<std::int64_t>& numbers_;
  std::size_t at_ = 0;
};

constexpr std::int64_t kMany = std::int64_t{1} << 40;

torch::Tensor read_tensor(Reader& reader, torch::Device device) {
  const std::int64_t last_type = static_cast<std::int64_t>(at::ScalarType::NumOptions) - 1;
  const std::int64_t type = reader.next(kUndefined, last_type);
  if (type == kUndefined) return {};
  const bool requires_grad = reader.next(0, 1) == 1;
  const auto format = static_cast<at::MemoryFormat>(
      reader.next(0, static_cast<std::int64_t>(at::MemoryFormat::NumOptions) - 1));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(reader.next(0, 64)));
  for (std::int64_t& size : sizes) size = reader.next(0, kMany);
  const auto options =
      torch::TensorOptions().dtype(static_cast<at::ScalarType>(type)).device(device);
  return at::empty(sizes, options, format).set_requires_grad(requires_grad);
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
  check(known, "pipeline: a stage returned a value of type ",
      c10::demangle(value.type_info().name()),
      "; pass tensors between stages, or a pair, tuple or vector of tensors");
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

std::vector<std::int64_t> describe(const Address& address, const Payload& payload) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(address.direction), address.stage,
      address.micro_batch, static_cast<std::int64_t>(payload.form),
      static_cast<std::int64_t>(payload.skips), static_cast<std::int64_t>(payload.values.size())};
  for (const torch::Tensor& tensor : payload.values) describe_tensor(numbers, tensor);
  return numbers;
}

std::pair<Address, Payload> read_description(
    const std::vector<std::int64_t>& numbers, torch::Device device) {
  Reader reader(numbers);
  Address address;
  address.direction = static_cast<Direction>(reader.next(0, 1));
  address.stage = static_cast<int>(reader.next(0, 1 << 20));
  address.micro_batch = static_cast<int>(reader.next(0, 1 << 20));
  Payload payload;
  payload.form =
      static_cast<ValueForm>(reader.next(0, static_cast<std::int64_t>(ValueForm::kRecurrent)));
  payload.skips = static_cast<std::size_t>(reader.next(0, 1 << 20));
  const std::int64_t count = reader.next(static_cast<std::int64_t>(payload.skips), 1 << 20);
  for (std::int64_t index = 0; index < count; ++index)
    payload.values.push_back(read_tensor(reader, device));
  if (!reader.ended()) throw CommError("pipeline: a description from a rank is too long");
  return {address, std::move(payload)};
}

torch::Tensor broadcast_described(
    const torch::Tensor& tensor, int root, const ProcessGroup& group, torch::Device device) {
  std::vector<std::int64_t> numbers;
  if (group.rank() == root) numbers = describe({}, {ValueForm::kTensor, {tensor}, 0});
  const torch::Tensor length =
      torch::full({1}, static_cast<std::int64_t>(numbers.size()), on_host(torch::kLong));
  group.broadcast(length, root).wait();
  torch::Tensor text = torch::zeros({length.item<std::int64_t>()}, on_host(torch::kLong));
  if (group.rank() == root) text = torch::tensor(numbers, torch::kLong);
  group.broadcast(text, root).wait();
  const auto* first = text.data_ptr<std::int64_t>();
  const auto [address, payload] = read_description({first, first + text.numel()}, device);
  const torch::Tensor result = group.rank() == root
                                   ? tensor.detach().contiguous(tensor.suggest_memory_format())
                                   : payload.values.at(0);
  if (result.numel() > 0) group.broadcast(result.as_strided({result.numel()}, {1}), root).wait();
  return result;
}

}  // namespace lockstep
