#include "bench/study/table_of.h"

namespace lockstep::bench {

std::string cell_text(const std::string& text, NumberText) { return text.empty() ? kNone : text; }

std::string cell_text(int value, NumberText) { return std::to_string(value); }

std::string cell_text(const std::optional<double>& value, NumberText number) {
  return value ? number(*value) : kNone;
}

std::string cell_text(const std::optional<Estimate>& estimate, NumberText number) {
  return estimate ? number(estimate->median) : kNone;
}

}  // namespace lockstep::bench
