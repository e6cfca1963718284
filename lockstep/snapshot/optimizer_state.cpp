#include "lockstep/snapshot/optimizer_state.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
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

/// Tensors by their names in the state of a parameter, such as `exp_avg`; `step` is an int64
/// scalar.
using Values = std::map<std::string, Tensor>;

/// One kind of optimizer: the options of a param group, and for each parameter some tensors and
/// mostly a count of steps. Its kName is LibTorch's. With kStateMadeAtOnce the optimizer makes the
/// state when it is constructed, so no parameter lacks it.
template <typename Fields>
struct KindOf : Fields {
  using Options = typename Fields::Options;
  using State = typename Fields::State;

  static json options_json(const OptimizerOptions& options) {
    json written = json::object();
    Fields::each_option(
        of_kind(options), [&](const char* option, const auto& value) { written[option] = value; });
    return written;
  }

  /// Makes options of what options_json() gave. Throws DataError unless all of them, and no
  /// others, are there.
  static std::unique_ptr<OptimizerOptions> read_options(const json& options) {
    auto read = std::make_unique<Options>(Options(0.0));
    std::size_t known = 0;
    try {
      Fields::each_option(*read, [&](const char* option, auto& value) {
        options.at(option).get_to(value);
        ++known;
      });
    } catch (const json::exception& error) {
      throw DataError(concat("the options of ", Fields::kName, " are not whole: ", error.what()));
    }
    if (options.size() != known)
      throw DataError(
          concat("the options of ", Fields::kName, " have unknown ones: ", options.dump()));
    return read;
  }

  /// Returns what is defined of a parameter's state; the tensors are the state's own.
  static Values values(const OptimizerParamState& state) {
    const auto* const own = dynamic_cast<const State*>(&state);
    check(own != nullptr, "optimizer_state: the optimizer has the options of ", Fields::kName,
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

  /// Makes a state that takes these tensors.
  static std::unique_ptr<OptimizerParamState> make_state(const Values& values) {
    auto state = std::make_unique<State>();
    Fields::each_tensor(*state, [&](const char* value_name, Tensor& value) {
      if (const auto found = values.find(value_name); found != values.end()) value = found->second;
    });
    if constexpr (CountsSteps<const State>)
      state->step(values.at("step").template item<std::int64_t>());
    return state;
  }

  /// Names all values that a state may have.
  static Names known() {
    State state;
    Names names;
    Fields::each_tensor(
        state, [&](const char* value_name, const Tensor&) { names.emplace_back(value_name); });
    if constexpr (CountsSteps<const State>) names.emplace_back("step");
    return names;
  }

  /// Names those that it must have with these options.
  static Names required(const OptimizerOptions& options) {
    return Fields::required(of_kind(options));
  }

  static const Options& of_kind(const OptimizerOptions& options) {
    return dynamic_cast<const Options&>(options);
  }
};

/// Calls `body` with the optimizer's kind, which its options tell: SGD, Adam, AdamW, Adagrad or
/// RMSprop, plain, fused or sharded. Any other is an InvalidArgument.
void with_kind_of(const torch::optim::Optimizer& optimizer, const auto& body) {
  const auto is_kind = [&](auto kind) {
    using Options = typename decltype(kind)::Options;
    if (dynamic_cast<const Options*>(&optimizer.defaults()) == nullptr) return false;
    body(kind);
    return true;
  };
  if (is_kind(KindOf<SgdFields>()) || is_kind(KindOf<PlainAdamFields>()) ||
      is_kind(KindOf<AdamWFields>()) || is_kind(KindOf<AdagradFields>()) ||
      is_kind(KindOf<RmspropFields>()))
    return;
  throw InvalidArgument(
      "optimizer_state: only SGD, Adam, AdamW, Adagrad and RMSprop can be saved by name; use one "
      "of them, or save this optimizer with torch::save");
}

using torch::optim::Optimizer;

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

template <typename Kind>
std::string options_text(const Optimizer& optimizer, const std::vector<Parameter>& parameters) {
  json groups = json::array();
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back(
        {{"parameters", json::array()}, {"options", Kind::options_json(group.options())}});
  }
  for (const Parameter& parameter : parameters)
    groups[parameter.group]["parameters"].push_back(parameter.name);
  return json{{"kind", Kind::kName}, {"groups", std::move(groups)}}.dump();
}

/// The part of OptimizerState::options that restoring needs.
struct SavedOptions {
  std::string kind;
  std::map<std::string, json> by_parameter;
  std::vector<json> of_groups;  ///< those of each part of a snapshot, one part after the other
};

SavedOptions read_saved_options(const std::string& text) {
  const json read = parse_strict_json(text, kOptionsName, kOptionsLimits);
  SavedOptions saved;
  try {
    saved.kind = read.at("kind").get<std::string>();
    for (const json& group : read.at("groups")) {
      saved.of_groups.push_back(group.at("options"));
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

/// Compares a saved state with an optimizer of a kind, and holds what this would be given.
template <typename Kind>
class Restoring {
 public:
  Restoring(Optimizer& optimizer, const nn::NamedTensors& named, const OptimizerState& state,
      Others others)
      : optimizer_(optimizer),
        parameters_(parameters_of(optimizer, named)),
        saved_(read_saved_options(state.options)) {
    if (saved_.kind != Kind::kName) {
      throw DataError(concat(
          "restore_optimizer: the state of ", saved_.kind, " was saved, this is ", Kind::kName));
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
        options_[parameter.group] = Kind::read_options(found->second);
      } else if (saved_.by_parameter.at(first->name) != found->second) {
        differences_ += "  " + parameter.name + " and " + first->name +
                        " had different options, and are one param group now\n";
      }
    }
    for (std::size_t group = 0; group < options_.size(); ++group)
      if (firsts[group] == nullptr) read_options_in_place_of(group);
  }

  // A group may have no parameter on this rank, and ranks must not differ in a learning rate. Each
  // part of a snapshot lists all groups.
  void read_options_in_place_of(std::size_t group) {
    const std::size_t groups = options_.size();
    if (saved_.of_groups.empty() || saved_.of_groups.size() % groups != 0) return;
    const json& found = saved_.of_groups[group];
    for (std::size_t other = group; other < saved_.of_groups.size(); other += groups)
      if (saved_.of_groups[other] != found) return;
    options_[group] = Kind::read_options(found);
  }

  // The last slash ends the parameter's name: names of values have none.
  void sort_values(const nn::NamedTensors& tensors, Others others) {
    const auto known = Kind::known();
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
      if (Kind::kStateMadeAtOnce)
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
    for (const std::string& name : Kind::required(*options)) {
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
    return Kind::make_state(copies);
  }

  Optimizer& optimizer_;
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
  OptimizerState state;
  with_kind_of(optimizer, [&](auto kind) {
    const auto parameters = parameters_of(optimizer, named);
    state.options = options_text<decltype(kind)>(optimizer, parameters);
    for (const Parameter& parameter : parameters) {
      const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
      if (!parameter.is_own || found == optimizer.state().end()) continue;
      for (const auto& [name, value] : kind.values(*found->second)) {
        check(value.layout() == torch::kStrided, "optimizer_state: ", parameter.name, "/", name,
            " is sparse, which files of tensors are not; use an optimizer without momentum for it");
        state.tensors.insert(parameter.name + "/" + name, value);
      }
    }
  });
  return state;
}

void restore_optimizer(Optimizer& optimizer, const nn::NamedTensors& named,
    const OptimizerState& state, Others others) {
  const torch::NoGradGuard no_gradients;
  with_kind_of(optimizer, [&](auto kind) {
    Restoring<decltype(kind)> restoring(optimizer, named, state, others);
    if (!restoring.differences().empty()) {
      throw DataError(
          "restore_optimizer: what was saved does not fit; the optimizer is as it was:\n" +
          first_lines(restoring.differences()) +
          "continue with the model and the configuration that the snapshot was taken of");
    }
    restoring.apply();
  });
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
