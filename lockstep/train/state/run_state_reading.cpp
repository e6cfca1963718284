#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/strict_json.h"
#include "lockstep/train/state/run_state.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = std::size_t{64} << 20};

/// Reads the fields of one object; what does not fit is a DataError with the field's name.
class Fields {
 public:
  Fields(const Json& object, std::string name, const std::string& file)
      : object_(object), name_(std::move(name)), file_(file) {
    if (!object.is_object()) refuse("", "is no object");
  }

  bool is_null(const char* key) const { return at(key).is_null(); }
  Fields object(const char* key) const { return {at(key), name_ + key + ".", file_}; }

  std::int64_t count(
      const char* key, std::int64_t most = std::numeric_limits<std::int64_t>::max()) const {
    const Json& value = at(key);
    if (!value.is_number_integer()) refuse(key, "is no whole number");
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      refuse(key, "is too large");
    const auto number = value.get<std::int64_t>();
    if (number < 0) refuse(key, "is negative");
    return number;
  }

  int small(const char* key) const { return static_cast<int>(count(key, 1 << 30)); }

  double number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number()) refuse(key, "is no number");
    const auto number = value.get<double>();
    if (!std::isfinite(number)) refuse(key, "is beyond all numbers");
    return number;
  }

  double seconds(const char* key) const {
    const double value = number(key);
    if (value < 0) refuse(key, "is negative");
    return value;
  }

  std::optional<double> number_or_null(const char* key) const {
    return is_null(key) ? std::nullopt : std::optional(number(key));
  }

  double number_or_nan(const char* key) const {
    return number_or_null(key).value_or(std::numeric_limits<double>::quiet_NaN());
  }

  bool truth(const char* key) const {
    if (!at(key).is_boolean()) refuse(key, "is neither true nor false");
    return at(key).get<bool>();
  }

  std::string text(const char* key) const {
    if (!at(key).is_string()) refuse(key, "is no text");
    return at(key).get<std::string>();
  }

  const Json& list(const char* key) const {
    if (!at(key).is_array()) refuse(key, "is no list");
    return at(key);
  }

  const Json& items() const { return object_; }
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& key, const char* fault) const {
    throw DataError(concat(file_, ": ", name_, key.empty() ? "it" : key, " ", fault));
  }

 private:
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(key, "is missing");
    return *found;
  }

  const Json& object_;
  std::string name_;
  const std::string& file_;
};

EpochSummary epoch_of(const Fields& fields) {
  return {
      .epoch = fields.count("epoch"),
      .train_seconds = fields.seconds("train_seconds"),
      .train_loss = fields.number_or_nan("train_loss"),
      .val_loss = fields.number_or_null("val_loss"),
      .val_accuracy = fields.number_or_null("val_accuracy"),
      .val_accuracy5 = fields.number_or_null("val_accuracy5"),
      .ema_loss = fields.number_or_null("ema_loss"),
      .ema_accuracy = fields.number_or_null("ema_accuracy"),
      .ema_accuracy5 = fields.number_or_null("ema_accuracy5"),
      .validated = fields.truth("validated"),
      .samples = fields.count("samples"),
      .samples_per_s = fields.number_or_nan("samples_per_s")};
}

std::vector<EpochSummary> epochs_of(const Fields& fields) {
  std::vector<EpochSummary> epochs;
  for (const Json& item : fields.list("epochs"))
    epochs.push_back(epoch_of(Fields(item, "epochs.", fields.file())));
  return epochs;
}

std::optional<ScalerRecord> scaler_of(const Fields& fields) {
  if (fields.is_null("scaler")) return std::nullopt;
  const Fields scaler = fields.object("scaler");
  return ScalerRecord{
      .scale = scaler.number("scale"),
      .growth_factor = scaler.number("growth_factor"),
      .backoff_factor = scaler.number("backoff_factor"),
      .growth_interval = scaler.count("growth_interval"),
      .growth_tracker = scaler.count("growth_tracker")};
}

PlateauState plateau_of(const Fields& fields) {
  return {
      .lr = fields.number("lr"),
      .best = fields.number_or_null("best"),
      .bad = fields.count("bad"),
      .cooldown_left = fields.count("cooldown_left")};
}

MeterReading reading_of(const Fields& fields) {
  return {
      .steps = fields.count("steps"),
      .samples = fields.count("samples"),
      .loss_sum = fields.number_or_nan("loss_sum"),
      .seconds = fields.seconds("seconds"),
      .data_seconds = fields.seconds("data_seconds"),
      .comm_seconds = fields.seconds("comm_seconds")};
}

Configuration configuration_of(const Fields& fields) {
  Configuration configuration;
  for (const auto& [flag, value] : fields.items().items())
    configuration.emplace_back(flag, fields.text(flag.c_str()));
  return configuration;
}

DataIdentity data_of(const Fields& fields) {
  return {
      .name = fields.text("name"),
      .samples = fields.count("samples"),
      .classes = fields.count("classes"),
      .fingerprint = fields.text("fingerprint")};
}

std::vector<int> balance_of(const Fields& fields) {
  std::vector<int> balance;
  for (const Json& item : fields.list("balance")) {
    if (!item.is_number_integer() || item < 1 || item > 1 << 20)
      fields.refuse("balance", "holds what is no number of layers");
    balance.push_back(item.get<int>());
  }
  return balance;
}

EpochPosition position_of(const Fields& fields) {
  EpochPosition position{
      .epoch = fields.count("epoch"),
      .samples = fields.count("samples"),
      .epoch_samples = fields.count("epoch_samples")};
  if (position.epoch < 1) fields.refuse("epoch", "is not counted from 1");
  return position;
}

}  // namespace

RunState parse_run_state(std::string_view json, const std::string& file) {
  const Json object = parse_strict_json(json, file, kLimits);
  const Fields fields(object, "", file);
  if (fields.count("v") != 1) fields.refuse("v", "is a version that this program does not know");
  RunState state{
      .step = fields.count("step"),
      .position = position_of(fields),
      .schedule_step = fields.count("schedule_step"),
      .seed = fields.count("seed"),
      .world_size = fields.small("world_size"),
      .replicas = fields.small("replicas"),
      .stages = fields.small("stages"),
      .balance = balance_of(fields),
      .configuration = configuration_of(fields.object("config")),
      .data = data_of(fields.object("data")),
      .scaler = scaler_of(fields),
      .plateau = plateau_of(fields.object("plateau")),
      .ema_updates = fields.count("ema_updates"),
      .skipped_steps = fields.count("skipped_steps"),
      .elapsed = fields.seconds("elapsed"),
      .training_seconds = fields.seconds("training_seconds"),
      .epoch_seconds = fields.seconds("epoch_seconds"),
      .restarts = fields.small("restarts"),
      .best = {},
      .best_snapshot = {},
      .epochs = epochs_of(fields),
      .epoch_total = reading_of(fields.object("epoch_total"))};
  if (fields.is_null("best")) return state;
  const Fields best = fields.object("best");
  state.best = BestEpoch{.epoch = best.count("epoch"), .value = best.number("value")};
  state.best_snapshot = best.text("snapshot");
  return state;
}

}  // namespace lockstep
