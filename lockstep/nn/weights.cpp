#include "lockstep/nn/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::nn {

namespace {

// What Python's DDP and torch.compile put before every name.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod."};

bool all_begin_with(const TensorFile& file, std::string_view prefix) {
  const auto begins = [&](const TensorEntry& entry) { return entry.name.starts_with(prefix); };
  return !file.entries().empty() && std::ranges::all_of(file.entries(), begins);
}

// Only where no name of the model explains it: a model may have a child called `module`.
std::string prefix_of(const TensorFile& file, const NamedTensors& state) {
  std::string prefix;
  const auto is_wrapped = [&](std::string_view wrapper) {
    const auto is_of_model = [&](const auto& item) { return item.key().starts_with(wrapper); };
    return all_begin_with(file, concat(prefix, wrapper)) &&
           std::none_of(state.begin(), state.end(), is_of_model);
  };
  while (true) {
    const auto* const wrapper = std::ranges::find_if(kWrappers, is_wrapped);
    if (wrapper == std::end(kWrappers)) return prefix;
    prefix += *wrapper;
  }
}

// transformers saves a net without its head without the prefix `transformer.`.
std::string lacking_prefix(
    const TensorFile& file, const std::string& prefix, const NamedTensors& state) {
  if (state.is_empty()) return "";
  const std::string first = state.begin()->key();
  const std::string child = first.substr(0, first.find('.') + 1);
  const auto is_inside = [&](const auto& item) { return item.key().starts_with(child); };
  const auto has_child = [&](const TensorEntry& entry) {
    return entry.name.starts_with(prefix + child);
  };
  const bool lacks = file.find(prefix + first.substr(child.size())) != nullptr &&
                     std::ranges::none_of(file.entries(), has_child) &&
                     std::all_of(state.begin(), state.end(), is_inside);
  return lacks ? child : "";
}

// A causal mask [1, 1, T, T], what it puts in, and RoPE's frequencies.
bool is_constant(const TensorEntry& entry) {
  const auto& shape = entry.shape;
  if (entry.name.ends_with(".attn.bias"))
    return shape.size() == 4 && shape[0] == 1 && shape[1] == 1 && shape[2] == shape[3];
  if (entry.name.ends_with(".attn.masked_bias")) return shape.empty();
  return entry.name.ends_with(".rotary_emb.inv_freq") && shape.size() == 1;
}

constexpr std::string_view kCounter = "num_batches_tracked";

// LibTorch's to(kDouble) makes a double of the counter of a batch norm, Python's leaves it int64.
bool is_convertible(const std::string& name, torch::ScalarType from, torch::ScalarType to) {
  const auto is_number = [&](torch::ScalarType type) {
    return c10::isFloatingType(type) ||
           (name.ends_with(kCounter) && c10::isIntegralType(type, /*includeBool=*/false));
  };
  return from == to || (is_number(from) && is_number(to));
}

WeightsReport::Mismatch compared(
    const std::string& name, const torch::Tensor& tensor, const TensorEntry* entry) {
  WeightsReport::Mismatch both{.name = name, .in_model = tensor.sizes().vec()};
  const auto type = element_type_of(tensor.scalar_type());
  both.type_in_model = type ? torch_name(*type) : c10::toString(tensor.scalar_type());
  if (entry == nullptr) return both;
  both.in_file = entry->shape;
  both.type_in_file = torch_name(entry->type);
  return both;
}

bool is_taken(const WeightsReport::Mismatch& both, const torch::Tensor& tensor, ElementType type) {
  const auto from = scalar_type_of(type);
  return both.in_model == both.in_file && from &&
         is_convertible(both.name, *from, tensor.scalar_type());
}

// The number of classes is the first dimension of a head's weight and of its bias.
bool is_resized(const WeightsReport::Mismatch& both) {
  auto resized = both.in_file;
  if (resized.empty() || both.in_model.empty()) return false;
  resized.front() = both.in_model.front();
  return resized == both.in_model;
}

/// The pairing of a model's tensors with those of a file.
class Pairing {
 public:
  Pairing(NamedTensors state, const TensorFile& file, const LoadWeightsOptions& options)
      : state_(std::move(state)), resizable_(options.resizable) {
    report_.prefix = prefix_of(file, state_);
    report_.lacking = lacking_prefix(file, report_.prefix, state_);
    for (const auto& item : state_) {
      pair(item.key(), item.value(), entry_of(file, item.key()));
    }
    check_tied();
    if (options.is_part) return;
    for (const TensorEntry& entry : file.entries()) {
      const std::string name = report_.lacking + entry.name.substr(report_.prefix.size());
      if (state_.contains(name)) continue;
      (is_constant(entry) ? report_.constants : report_.unexpected).push_back(name);
    }
  }

  const WeightsReport& report() const { return report_; }

  WeightsReport copy(bool is_rehearsal) {
    const torch::NoGradGuard no_gradients;
    for (const auto& [name, target, entry] : pairs_) {
      const torch::Tensor taken = is_rehearsal ? at::empty_like(target) : target;
      taken.copy_(tensor_of(*entry));
      if (!is_finite(taken)) report_.not_finite.push_back(name);
      ++report_.loaded;
    }
    return std::move(report_);
  }

 private:
  struct Pair {
    std::string name;
    torch::Tensor target;
    const TensorEntry* entry;
  };

  // Python's safetensors.torch.save_model() keeps one name of tied weights, and says in the
  // metadata which: {left out: kept}.
  const TensorEntry* entry_of(const TensorFile& file, const std::string& name) const {
    const std::string own = report_.prefix + name.substr(report_.lacking.size());
    const TensorEntry* const entry = file.find(own);
    const auto kept = file.metadata().find(own);
    return entry != nullptr || kept == file.metadata().end() ? entry : file.find(kept->second);
  }

  // A tensor of several names needs one in the file; where it has more, they must say the same.
  void check_tied() {
    std::map<const void*, const Pair*> firsts;
    for (const Pair& each : pairs_) {
      const auto [place, is_new] = firsts.emplace(each.target.unsafeGetTensorImpl(), &each);
      const TensorEntry& first = *place->second->entry;
      if (!is_new &&
          (first.type != each.entry->type || !std::ranges::equal(first.bytes, each.entry->bytes)))
        report_.untied.push_back(concat(each.name, ", ", place->second->name));
    }
    std::erase_if(report_.missing, [&](const std::string& name) {
      return firsts.contains(state_[name].unsafeGetTensorImpl());
    });
  }

  void pair(const std::string& name, const torch::Tensor& tensor, const TensorEntry* entry) {
    auto both = compared(name, tensor, entry);
    if (entry != nullptr && is_taken(both, tensor, entry->type)) {
      if (both.type_in_file != both.type_in_model)
        report_.converted.push_back({name, both.type_in_file, both.type_in_model});
      pairs_.push_back({name, tensor, entry});
    } else if (may_keep(both, entry)) {
      report_.kept.push_back(std::move(both));
    } else if (entry == nullptr) {
      report_.missing.push_back(name);
    } else {
      report_.mismatched.push_back(std::move(both));
    }
  }

  bool may_keep(const WeightsReport::Mismatch& both, const TensorEntry* entry) const {
    if (entry == nullptr) return both.name.ends_with(kCounter);
    return std::ranges::find(resizable_, both.name) != resizable_.end() && is_resized(both);
  }

  NamedTensors state_;
  std::vector<std::string> resizable_;
  std::vector<Pair> pairs_;
  WeightsReport report_;
};

void check_names(const NamedTensors& state, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    check(state.contains(name), "load_weights: the model has no tensor ", name, " to be resized");
  }
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return concat(at::IntArrayRef(shape));
}

std::string line_of(const WeightsReport::Mismatch& tensor) {
  return concat(tensor.name, ": here ", shape_text(tensor.in_model), " ", tensor.type_in_model,
      ", in the file ",
      tensor.type_in_file.empty() ? "none"
                                  : concat(shape_text(tensor.in_file), " ", tensor.type_in_file));
}

void add_names(std::string& text, const char* head, const std::vector<std::string>& names) {
  for (const auto& name : names) text += concat("  ", head, name, "\n");
}

// Whole files are converted from one type: a line each type, not each tensor.
void add_conversions(std::string& text, const std::vector<WeightsReport::Conversion>& converted) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const auto& tensor : converted) ++counts[{tensor.from, tensor.to}];
  for (const auto& [types, count] : counts) {
    text +=
        concat("  converted ", count, " tensors from ", types.first, " to ", types.second, "\n");
  }
}

// A refusal ends with the advice.
WeightsReport load_state(const NamedTensors& state, const TensorFile& file, const std::string& name,
    const LoadWeightsOptions& options, const char* advice) {
  check_names(state, options.resizable);
  Pairing pairing(state, file, options);
  if (!pairing.report().fits()) {
    throw DataError(
        concat("load_weights: ", name, ": the weights do not fit the model; nothing was loaded:\n",
            differences_text(pairing.report()), "choose the model that the file was made with",
            advice));
  }
  return file.checked([&] { return pairing.copy(options.is_rehearsal); });
}

struct Pair {
  ElementType file;
  torch::ScalarType torch;
};

constexpr Pair kTypes[] = {
    {ElementType::kBool, torch::kBool},
    {ElementType::kUint8, torch::kUInt8},
    {ElementType::kInt8, torch::kInt8},
    {ElementType::kFloat8E5m2, torch::kFloat8_e5m2},
    {ElementType::kFloat8E4m3fn, torch::kFloat8_e4m3fn},
    {ElementType::kFloat8E8m0fnu, c10::ScalarType::Float8_e8m0fnu},
    {ElementType::kFloat8E4m3fnuz, c10::ScalarType::Float8_e4m3fnuz},
    {ElementType::kFloat8E5m2fnuz, c10::ScalarType::Float8_e5m2fnuz},
    {ElementType::kInt16, torch::kInt16},
    {ElementType::kUint16, c10::ScalarType::UInt16},
    {ElementType::kFloat16, torch::kFloat16},
    {ElementType::kBfloat16, torch::kBFloat16},
    {ElementType::kInt32, torch::kInt32},
    {ElementType::kUint32, c10::ScalarType::UInt32},
    {ElementType::kFloat32, torch::kFloat32},
    {ElementType::kComplex64, torch::kComplexFloat},
    {ElementType::kFloat64, torch::kFloat64},
    {ElementType::kInt64, torch::kInt64},
    {ElementType::kUint64, c10::ScalarType::UInt64},
    {ElementType::kComplex128, torch::kComplexDouble},
};

}  // namespace

WeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
    const LoadWeightsOptions& options) {
  const char* const of_heads =
      ", or let a new head keep its own values (LoadWeightsOptions::resizable)";
  return load_state(named_state(module), read_weights(path, options.only), path.string(), options,
      options.resizable.empty() ? of_heads : "");
}

WeightsReport load_weights(const NamedTensors& state, const std::filesystem::path& path,
    const LoadWeightsOptions& options) {
  return load_weights(state, read_weights(path, options.only), path.string(), options);
}

WeightsReport load_weights(const NamedTensors& state, const TensorFile& file,
    const std::string& name, const LoadWeightsOptions& options) {
  return load_state(state, file, name, options, "");
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& path,
    const std::map<std::string, std::string>& metadata) {
  save_weights(named_state(module), path, metadata);
}

void save_weights(const NamedTensors& state, const std::filesystem::path& path,
    const std::map<std::string, std::string>& metadata) {
  std::vector<torch::Tensor> plain;
  std::vector<TensorEntry> entries;
  for (const auto& item : state) {
    const auto type = element_type_of(item.value().scalar_type());
    check(type.has_value(), "save_weights: ", item.key(),
        " has a type that files of weights do not have: ",
        c10::toString(item.value().scalar_type()));
    const auto& tensor =
        plain.emplace_back(item.value().detach().cpu().resolve_neg().resolve_conj().contiguous());
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
    entries.push_back({.name = item.key(),
        .type = *type,
        .shape = tensor.sizes().vec(),
        .bytes = {bytes, tensor.nbytes()}});
  }
  write_weights(path, entries, metadata);
}

std::string differences_text(const WeightsReport& report) {
  std::string text;
  add_names(text, "missing in the file: ", report.missing);
  add_names(text, "not in the model: ", report.unexpected);
  add_names(text, "one tensor in the model, two in the file: ", report.untied);
  for (const auto& tensor : report.mismatched) text += concat("  other: ", line_of(tensor), "\n");
  return first_lines(text);
}

std::string remarks_text(const WeightsReport& report) {
  std::string text, kept, not_finite;
  if (!report.prefix.empty()) text += concat("  took '", report.prefix, "' off every name\n");
  if (!report.lacking.empty()) text += concat("  put '", report.lacking, "' before every name\n");
  if (!report.constants.empty())
    text += concat("  left out ", report.constants.size(),
        report.constants.size() == 1 ? " tensor" : " tensors", " that the model computes, such as ",
        report.constants.front(), "\n");
  for (const auto& tensor : report.kept)
    kept += concat("  kept the model's ", line_of(tensor), "\n");
  text += first_lines(kept);
  add_conversions(text, report.converted);
  add_names(not_finite, "NaN or Inf in ", report.not_finite);
  return text + first_lines(not_finite);
}

torch::Tensor tensor_of(const TensorEntry& entry) {
  auto tensor = at::empty(entry.shape, *scalar_type_of(entry.type));
  if (!entry.bytes.empty())
    std::memcpy(tensor.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
  return tensor;
}

std::optional<torch::ScalarType> scalar_type_of(ElementType type) {
  for (const Pair& pair : kTypes) {
    if (pair.file == type) return pair.torch;
  }
  return std::nullopt;
}

std::optional<ElementType> element_type_of(torch::ScalarType type) {
  for (const Pair& pair : kTypes) {
    if (pair.torch == type) return pair.file;
  }
  return std::nullopt;
}

}  // namespace lockstep::nn
