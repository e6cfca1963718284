#include "lockstep/train/snapshot/optimizer_kind.h"

#include <array>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include <ATen/ops/full.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

using nlohmann::json;
using torch::Tensor;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;
using Names = std::vector<std::string>;

// What each kind consists of. The bodies take a name and a value, which they read or set.

struct SgdFields {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* kName = "SGD";
  static constexpr bool kStateMadeAtOnce = false;

  static void each_option(auto& options, auto body) {
    body("lr", options.lr());
    body("momentum", options.momentum());
    body("dampening", options.dampening());
    body("weight_decay", options.weight_decay());
    body("nesterov", options.nesterov());
  }
  static void each_tensor(auto& state, auto body) {
    body("momentum_buffer", state.momentum_buffer());
  }
  static Names required(const Options&) { return {}; }
};

template <typename OptionsOfKind, typename StateOfKind>
struct AdamFields {
  using Options = OptionsOfKind;
  using State = StateOfKind;
  static constexpr bool kStateMadeAtOnce = false;

  static void each_option(auto& options, auto body) {
    body("lr", options.lr());
    body("betas", options.betas());
    body("eps", options.eps());
    body("weight_decay", options.weight_decay());
    body("amsgrad", options.amsgrad());
  }
  static void each_tensor(auto& state, auto body) {
    body("exp_avg", state.exp_avg());
    body("exp_avg_sq", state.exp_avg_sq());
    body("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  static Names required(const Options& options) {
    Names names{"exp_avg", "exp_avg_sq", "step"};
    if (options.amsgrad()) names.emplace_back("max_exp_avg_sq");
    return names;
  }
};

struct PlainAdamFields : AdamFields<torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* kName = "Adam";
};

struct AdamWFields : AdamFields<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* kName = "AdamW";
};

struct AdagradFields {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr const char* kName = "Adagrad";
  static constexpr bool kStateMadeAtOnce = true;

  static void each_option(auto& options, auto body) {
    body("lr", options.lr());
    body("lr_decay", options.lr_decay());
    body("weight_decay", options.weight_decay());
    body("initial_accumulator_value", options.initial_accumulator_value());
    body("eps", options.eps());
  }
  static void each_tensor(auto& state, auto body) { body("sum", state.sum()); }
  static Names required(const Options&) { return {"sum", "step"}; }
};

struct RmspropFields {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr const char* kName = "RMSprop";
  static constexpr bool kStateMadeAtOnce = false;

  static void each_option(auto& options, auto body) {
    body("lr", options.lr());
    body("alpha", options.alpha());
    body("eps", options.eps());
    body("weight_decay", options.weight_decay());
    body("momentum", options.momentum());
    body("centered", options.centered());
  }
  static void each_tensor(auto& state, auto body) {
    body("square_avg", state.square_avg());
    body("momentum_buffer", state.momentum_buffer());
    body("grad_avg", state.grad_avg());
  }
  static Names required(const Options& options) {
    Names names{"square_avg", "step"};
    if (options.momentum() > 0) names.emplace_back("momentum_buffer");
    if (options.centered()) names.emplace_back("grad_avg");
    return names;
  }
};

template <typename State>
concept CountsSteps = requires(State state) {
  { state.step() } -> std::convertible_to<std::int64_t>;
};

template <typename Fields>
class KindOf final : public OptimizerStateKind {
 public:
  using Options = typename Fields::Options;
  using State = typename Fields::State;

  std::string_view name() const override { return Fields::kName; }

  json options_json(const OptimizerOptions& options) const override {
    json written = json::object();
    Fields::each_option(
        of_kind(options), [&](const char* option, const auto& value) { written[option] = value; });
    return written;
  }

  std::unique_ptr<OptimizerOptions> read_options(const json& options) const override {
    auto read = std::make_unique<Options>(Options(0.0));
    std::size_t known = 0;
    try {
      Fields::each_option(*read, [&](const char* option, auto& value) {
        options.at(option).get_to(value);
        ++known;
      });
    } catch (const json::exception& error) {
      throw DataError(concat("the options of ", name(), " are not whole: ", error.what()));
    }
    if (options.size() != known)
      throw DataError(concat("the options of ", name(), " have unknown ones: ", options.dump()));
    return read;
  }

  Values values(const OptimizerParamState& state) const override {
    const auto* const own = dynamic_cast<const State*>(&state);
    check(own != nullptr, "optimizer_state: the optimizer has the options of ", name(),
        " and a state of its own; it cannot be saved by name");
    Values values;
    Fields::each_tensor(*own, [&](const char* value_name, const Tensor& value) {
      if (value.defined()) values.emplace(value_name, value);
    });
    if constexpr (CountsSteps<const State>)
      values.emplace(
          "step", at::full({}, static_cast<std::int64_t>(own->step()), on_host(torch::kLong)));
    return values;
  }

  std::unique_ptr<OptimizerParamState> make_state(const Values& values) const override {
    auto state = std::make_unique<State>();
    Fields::each_tensor(*state, [&](const char* value_name, Tensor& value) {
      if (const auto found = values.find(value_name); found != values.end()) value = found->second;
    });
    if constexpr (CountsSteps<const State>)
      state->step(values.at("step").template item<std::int64_t>());
    return state;
  }

  Names known() const override {
    State state;
    Names names;
    Fields::each_tensor(
        state, [&](const char* value_name, const Tensor&) { names.emplace_back(value_name); });
    if constexpr (CountsSteps<const State>) names.emplace_back("step");
    return names;
  }

  Names required(const OptimizerOptions& options) const override {
    return Fields::required(of_kind(options));
  }

  bool is_state_made_at_once() const override { return Fields::kStateMadeAtOnce; }

 private:
  static const Options& of_kind(const OptimizerOptions& options) {
    return dynamic_cast<const Options&>(options);
  }
};

template <typename Fields>
const OptimizerStateKind* kind_if(const OptimizerOptions& options) {
  static const KindOf<Fields> kKind;
  return dynamic_cast<const typename Fields::Options*>(&options) != nullptr ? &kKind : nullptr;
}

}  // namespace

const OptimizerStateKind& optimizer_kind(const torch::optim::Optimizer& optimizer) {
  const OptimizerOptions& options = optimizer.defaults();
  const std::array kinds{kind_if<SgdFields>(options), kind_if<PlainAdamFields>(options),
      kind_if<AdamWFields>(options), kind_if<AdagradFields>(options),
      kind_if<RmspropFields>(options)};
  for (const OptimizerStateKind* kind : kinds) {
    if (kind != nullptr) return *kind;
  }
  throw InvalidArgument(
      "optimizer_state: only SGD, Adam, AdamW, Adagrad and RMSprop can be saved by name; use one "
      "of them, or save this optimizer with torch::save");
}

}  // namespace lockstep
