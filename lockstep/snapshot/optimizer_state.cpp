#include "lockstep/snapshot/optimizer_state.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"

namespace lockstep {
namespace {

/// The parts of the state of one kind of optimizer: the options of a group, and for each parameter
/// some tensors and mostly a count of steps.
class OptimizerStateKind {
 public:
  /// Tensors by their names in the state, such as `exp_avg`; `step` is an int64 scalar.
  using Values = std::map<std::string, torch::Tensor>;

  OptimizerStateKind() = default;
  OptimizerStateKind(const OptimizerStateKind&) = delete;
  OptimizerStateKind& operator=(const OptimizerStateKind&) = delete;
  virtual ~OptimizerStateKind() = default;

  /// Returns LibTorch's name, such as `Adam`.
  virtual std::string_view name() const = 0;

  virtual nlohmann::json options_json(const torch::optim::OptimizerOptions& options) const = 0;

  /// Makes options of what options_json() gave. Throws DataError unless all of them, and no
  /// others, are there.
  virtual std::unique_ptr<torch::optim::OptimizerOptions> read_options(
      const nlohmann::json& options) const = 0;

  /// Returns what is defined of a parameter's state; the tensors are the state's own.
  virtual Values values(const torch::optim::OptimizerParamState& state) const = 0;

  /// Makes a state that takes these tensors.
  virtual std::unique_ptr<torch::optim::OptimizerParamState> make_state(
      const Values& values) const = 0;

  /// Names all values that a state may have.
  virtual std::vector<std::string> known() const = 0;

  /// Names those that it must have with these options.
  virtual std::vector<std::string> required(
      const torch::optim::OptimizerOptions& options) const = 0;

  /// True if the optimizer makes the state when it is constructed, so no parameter lacks it.
  virtual bool is_state_made_at_once() const = 0;
};

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

/// Finds the kind by the optimizer's options: SGD, Adam, AdamW, Adagrad or RMSprop, plain, fused or
/// sharded. Any other is an InvalidArgument.
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

using torch::optim::Optimizer;
using Values = OptimizerStateKind::Values;

const std::string kOptionsName = "the options of the optimizer";
constexpr JsonLimits kOptionsLimits{.bytes = std::size_t{64} << 20, .depth = 8};

/// A parameter of an optimizer.
struct Parameter {
  std::string name;
  Tensor tensor;
  std::size_t group = 0;
  bool is_own = true;  // this rank keeps its state
};

// The first name counts: tied parameters have several.
std::string name_of(
    const Tensor& tensor, const std::unordered_map<const void*, std::string>& names) {
  const auto found = names.find(tensor.unsafeGetTensorImpl());
  check(found != names.end(), "optimizer_state: the optimizer has a parameter ",
      type_and_shape(tensor),
      " that the module does not have; pass the module that the optimizer was made for");
  return found->second;
}

std::vector<Parameter> parameters_of(const Optimizer& optimizer, const nn::NamedTensors& named) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& item : named) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  const auto* const sharded = dynamic_cast<const ShardedOptimizer*>(&optimizer);
  const auto owners = sharded ? sharded->owners() : std::vector<std::vector<int>>();
  std::vector<Parameter> parameters;
  std::unordered_map<const void*, std::size_t> group_of;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& tensors = optimizer.param_groups()[group].params();
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      const std::string name = name_of(tensors[index], names);
      const auto [first, is_new] = group_of.emplace(tensors[index].unsafeGetTensorImpl(), group);
      check(first->second == group, "optimizer_state: ", name, " is in the param groups ",
          first->second, " and ", group, "; list it in one of them");
      const bool is_own = sharded == nullptr || owners[group][index] == sharded->rank();
      if (is_new) parameters.push_back({name, tensors[index], group, is_own});
    }
  }
  return parameters;
}

std::string options_text(const OptimizerStateKind& kind, const Optimizer& optimizer,
    const std::vector<Parameter>& parameters) {
  json groups = json::array();
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back(
        {{"parameters", json::array()}, {"options", kind.options_json(group.options())}});
  }
  for (const Parameter& parameter : parameters)
    groups[parameter.group]["parameters"].push_back(parameter.name);
  return json{{"kind", kind.name()}, {"groups", std::move(groups)}}.dump();
}

/// The part of OptimizerState::options that restoring needs.
struct SavedOptions {
  std::string kind;
  std::map<std::string, json> by_parameter;
};

SavedOptions read_saved_options(const std::string& text) {
  const json read = parse_strict_json(text, kOptionsName, kOptionsLimits);
  SavedOptions saved;
  try {
    saved.kind = read.at("kind").get<std::string>();
    for (const json& group : read.at("groups")) {
      for (const json& name : group.at("parameters")) {
        const auto [place, is_new] =
            saved.by_parameter.emplace(name.get<std::string>(), group.at("options"));
        if (!is_new && place->second != group.at("options"))
          throw DataError("the options of the optimizer: two for " + name.get<std::string>());
      }
    }
  } catch (const json::exception& error) {
    throw DataError(concat("the options of the optimizer are not whole: ", error.what()));
  }
  return saved;
}

/// Compares a saved state with an optimizer, and holds what this would be given.
class Restoring {
 public:
  Restoring(Optimizer& optimizer, const nn::NamedTensors& named, const OptimizerState& state,
      Others others)
      : optimizer_(optimizer),
        kind_(optimizer_kind(optimizer)),
        parameters_(parameters_of(optimizer, named)),
        saved_(read_saved_options(state.options)) {
    if (saved_.kind != kind_.name()) {
      throw DataError(concat(
          "restore_optimizer: the state of ", saved_.kind, " was saved, this is ", kind_.name()));
    }
    read_options();
    sort_values(state.tensors, others);
    for (const Parameter& parameter : parameters_) read_state(parameter);
  }

  const std::string& differences() const { return differences_; }

  void apply() {
    for (std::size_t group = 0; group < options_.size(); ++group) {
      if (options_[group]) optimizer_.param_groups()[group].set_options(std::move(options_[group]));
    }
    for (const Parameter& parameter : parameters_)
      optimizer_.state().erase(parameter.tensor.unsafeGetTensorImpl());
    for (auto& [key, state] : states_) optimizer_.state()[key] = std::move(state);
  }

 private:
  void read_options() {
    options_.resize(optimizer_.param_groups().size());
    std::vector<const Parameter*> firsts(options_.size(), nullptr);
    for (const Parameter& parameter : parameters_) {
      const auto found = saved_.by_parameter.find(parameter.name);
      if (found == saved_.by_parameter.end()) {
        differences_ += "  missing: the options of " + parameter.name + "\n";
        continue;
      }
      const Parameter*& first = firsts[parameter.group];
      if (first == nullptr) {
        first = &parameter;
        options_[parameter.group] = kind_.read_options(found->second);
      } else if (saved_.by_parameter.at(first->name) != found->second) {
        differences_ += "  " + parameter.name + " and " + first->name +
                        " had different options, and are one param group now\n";
      }
    }
  }

  // The last slash ends the parameter's name: names of values have none.
  void sort_values(const nn::NamedTensors& tensors, Others others) {
    const auto known = kind_.known();
    std::map<std::string, const Parameter*> by_name;
    for (const Parameter& parameter : parameters_) by_name.emplace(parameter.name, &parameter);
    for (const auto& item : tensors) {
      const std::size_t slash = item.key().rfind('/');
      const std::string name = item.key().substr(0, slash);
      const std::string value = slash == std::string::npos ? "" : item.key().substr(slash + 1);
      const bool is_known = std::ranges::find(known, value) != known.end();
      if (is_known && by_name.contains(name)) {
        values_[name].emplace(value, item.value());
      } else if (!is_known || others == Others::kRefused) {
        differences_ += "  unexpected: " + item.key() + "\n";
      }
    }
  }

  void read_state(const Parameter& parameter) {
    const auto found = values_.find(parameter.name);
    if (found == values_.end()) {
      if (kind_.is_state_made_at_once())
        differences_ += "  missing: the state of " + parameter.name + "\n";
      return;
    }
    const std::size_t before = differences_.size();
    check_required(parameter, found->second);
    for (const auto& [name, value] : found->second) check_value(parameter, name, value);
    if (differences_.size() == before && parameter.is_own)
      states_.emplace_back(
          parameter.tensor.unsafeGetTensorImpl(), copied(parameter, found->second));
  }

  void check_required(const Parameter& parameter, const Values& values) {
    const auto& options = options_[parameter.group];
    if (!options) return;  // is a difference already
    for (const std::string& name : kind_.required(*options)) {
      if (!values.contains(name))
        differences_ += "  missing: " + parameter.name + "/" + name + "\n";
    }
  }

  void check_value(const Parameter& parameter, const std::string& name, const Tensor& value) {
    const bool is_step = name == "step";
    const auto type = is_step ? torch::kLong : parameter.tensor.scalar_type();
    const auto shape = is_step ? torch::IntArrayRef() : parameter.tensor.sizes();
    if (value.scalar_type() == type && value.sizes() == shape) return;
    differences_ += "  " + parameter.name + "/" + name + ": " + type_and_shape(value) +
                    " was saved, " + (is_step ? "int64 ()" : type_and_shape(parameter.tensor)) +
                    " is needed\n";
  }

  // In the memory format of the parameter, as the optimizer itself would have made them.
  std::unique_ptr<OptimizerParamState> copied(const Parameter& parameter, const Values& values) {
    Values copies;
    for (const auto& [name, value] : values) {
      const bool is_step = name == "step";
      Tensor copy = at::empty_like(is_step ? value : parameter.tensor.detach());
      copies.emplace(name, copy.copy_(value));
    }
    return kind_.make_state(copies);
  }

  Optimizer& optimizer_;
  const OptimizerStateKind& kind_;
  std::vector<Parameter> parameters_;
  SavedOptions saved_;
  std::map<std::string, Values> values_;
  std::string differences_;
  std::vector<std::unique_ptr<OptimizerOptions>> options_;  // per group
  std::vector<std::pair<void*, std::unique_ptr<OptimizerParamState>>> states_;
};

}  // namespace

OptimizerState optimizer_state(const Optimizer& optimizer, const nn::NamedTensors& named) {
  settle_steps(optimizer);
  const OptimizerStateKind& kind = optimizer_kind(optimizer);
  const auto parameters = parameters_of(optimizer, named);
  OptimizerState state;
  state.options = options_text(kind, optimizer, parameters);
  for (const Parameter& parameter : parameters) {
    const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (!parameter.is_own || found == optimizer.state().end()) continue;
    for (const auto& [name, value] : kind.values(*found->second)) {
      check(value.layout() == torch::kStrided, "optimizer_state: ", parameter.name, "/", name,
          " is sparse, which files of tensors are not; use an optimizer without momentum for it");
      state.tensors.insert(parameter.name + "/" + name, value);
    }
  }
  return state;
}

void restore_optimizer(Optimizer& optimizer, const nn::NamedTensors& named,
    const OptimizerState& state, Others others) {
  const torch::NoGradGuard no_gradients;
  Restoring restoring(optimizer, named, state, others);
  if (!restoring.differences().empty()) {
    throw DataError(
        "restore_optimizer: what was saved does not fit; the optimizer is as it was:\n" +
        first_lines(restoring.differences()) +
        "continue with the model and the configuration that the snapshot was taken of");
  }
  restoring.apply();
}

OptimizerState joined(const std::vector<OptimizerState>& parts) {
  OptimizerState all;
  json groups = json::array();
  std::string kind;
  for (const OptimizerState& part : parts) {
    json read = parse_strict_json(part.options, kOptionsName, kOptionsLimits);
    try {
      const auto own = read.at("kind").get<std::string>();
      if (!kind.empty() && kind != own)
        throw DataError("the options of the optimizer: parts of " + kind + " and of " + own);
      kind = own;
      for (json& group : read.at("groups")) groups.push_back(std::move(group));
    } catch (const json::exception& error) {
      throw DataError(concat("the options of the optimizer are not whole: ", error.what()));
    }
    for (const auto& item : part.tensors) {
      if (all.tensors.contains(item.key()))
        throw DataError("the optimizer's state: " + item.key() + " comes twice");
      all.tensors.insert(item.key(), item.value());
    }
  }
  all.options = json{{"kind", kind}, {"groups", std::move(groups)}}.dump();
  return all;
}

}  // namespace lockstep
