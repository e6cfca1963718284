#include "lockstep/nn/weights_report.h"

#include <map>

#include "lockstep/core/error.h"

namespace lockstep::nn {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text = concat(text, text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

std::string line_of(const WeightsReport::Mismatch& tensor) {
  return concat(
      tensor.name, ": here ", shape_text(tensor.in_model), " ", tensor.type_in_model,
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

}  // namespace

std::string differences_text(const WeightsReport& report) {
  std::string text;
  add_names(text, "missing in the file: ", report.missing);
  add_names(text, "not in the model: ", report.unexpected);
  for (const auto& tensor : report.mismatched) text += concat("  other: ", line_of(tensor), "\n");
  return text;
}

std::string remarks_text(const WeightsReport& report) {
  std::string text;
  if (!report.prefix.empty()) text += concat("  took '", report.prefix, "' off every name\n");
  for (const auto& tensor : report.kept)
    text += concat("  kept the model's ", line_of(tensor), "\n");
  add_conversions(text, report.converted);
  add_names(text, "NaN or Inf in ", report.not_finite);
  return text;
}

}  // namespace lockstep::nn
