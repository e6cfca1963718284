// Reads summary.json.

#include <cstdint>
#include <limits>

#include <nlohmann/json.hpp>

#include "lockstep/bench/run_folder.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/strict_json.h"

namespace lockstep::bench {
namespace {

using nlohmann::json;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMostBytes = 64 << 20;  // a line for each epoch is in it

/// Takes fields out of an object; null is as if the field were missing.
class Fields {
 public:
  Fields(const json& object, std::string file) : object_(object), file_(std::move(file)) {}

  std::string text(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return "";
    if (!value->is_string()) refuse(name, "a text");
    return value->get<std::string>();
  }

  std::optional<double> number(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse(name, "a number");
    return value->get<double>();
  }

  std::optional<std::int64_t> count(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > kMost) {
      refuse(name, "a whole number of at least 0");
    }
    return value->get<std::int64_t>();
  }

  std::vector<json> list(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_array()) refuse(name, "a list");
    return value->get<std::vector<json>>();
  }

  const json* object(const char* name) const {
    const json* value = find(name);
    if (value != nullptr && !value->is_object()) refuse(name, "an object");
    return value;
  }

 private:
  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const char* name, const char* expected) const {
    throw DataError(concat(file_, ": ", name, " must be ", expected));
  }

  const json& object_;
  std::string file_;
};

void add_epochs(const Fields& fields, const std::string& file, SummaryFacts& facts) {
  for (const json& epoch : fields.list("epochs")) {
    if (!epoch.is_object()) throw DataError(concat(file, ": epochs must be a list of objects"));
    const Fields epoch_fields(epoch, file + ": epochs");
    const auto number = epoch_fields.count("epoch");
    if (!number) continue;
    facts.epochs[*number] = {
        .train_seconds = epoch_fields.number("train_seconds"),
        .train_loss = epoch_fields.number("train_loss"),
        .samples = epoch_fields.count("samples")};
  }
}

}  // namespace

SummaryFacts parse_summary(const std::string& text, const std::string& file) {
  const json object = parse_strict_json(text, file, {.bytes = kMostBytes});
  if (!object.is_object()) throw DataError(concat(file, ": is no JSON object"));
  const Fields fields(object, file);
  const auto version = fields.count("v");
  if (version != kVersion) {
    throw DataError(concat(
        file, ": v is ", version ? concat(*version) : "missing", "; this program reads ",
        kVersion));
  }
  SummaryFacts facts{
      .model = fields.text("model"),
      .data = fields.text("data"),
      .parallel = fields.text("parallel"),
      .precision = fields.text("precision"),
      .world_size = fields.count("world_size"),
      .batch_size = fields.count("batch_size"),
      .steps = fields.count("steps"),
      .skipped_steps = fields.count("skipped_steps"),
      .eval_metric = fields.text("eval_metric"),
      .test_loss = fields.number("test_loss"),
      .test_accuracy = fields.number("test_accuracy"),
      .stopped_by = fields.text("stopped_by"),
      .parameters_hash = fields.text("parameters_hash"),
      .resumed_from = fields.text("resumed_from"),
      .restarts = fields.count("restarts"),
      .exit = fields.count("exit"),
      .peak_memory_bytes = fields.count("peak_memory_bytes")};
  add_epochs(fields, file, facts);
  if (const json* best = fields.object("best")) {
    const Fields best_fields(*best, file + ": best");
    facts.best_epoch = best_fields.count("epoch");
    facts.best_value = best_fields.number("value");
  }
  return facts;
}

}  // namespace lockstep::bench
