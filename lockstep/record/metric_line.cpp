#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench {
namespace {

using nlohmann::json;

constexpr int kDeepest = 16;  // of values under keys that this version does not know
constexpr std::int64_t kMetricsVersion = 1;

// Returns the number of that name; null if there is none.
std::optional<double>* number_of(MetricRecord& record, std::string_view name) {
  for (const ScoreName& score : kScores)
    if (name == score.name) return &(record.scores.*score.value);
  for (const RateName& rate : kRates)
    if (name == rate.name) return &(record.*rate.value);
  return nullptr;
}

const std::set<std::string, std::less<>> kCounts{"v", "rank", "restart", "epoch", "step"};

/// A reader of an object's own keys; what lies deeper is looked at only for the names in
/// `nonfinite`.
class LineReader final : public nlohmann::json_sax<json> {
 public:
  explicit LineReader(const std::string& where) : where_(where) {}

  MetricLine take() {
    for (const auto& name : kCounts) require(name);
    require("split");
    for (const std::string& name : nonfinite_) set_nonfinite(name);
    return std::move(line_);
  }

  bool start_object(std::size_t) override {
    if (depth_ == 1) refuse_if_known("an object");
    return deeper();
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) refuse("a list, not an object");
    if (depth_ == 1 && key_ != "nonfinite") refuse_if_known("a list");
    return deeper();
  }
  bool end_object() override { return shallower(); }
  bool end_array() override { return shallower(); }

  bool key(std::string& text) override {
    if (depth_ != 1) return true;
    if (!keys_.insert(text).second) refuse("the key ", printable(text), " comes twice");
    key_ = text;
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 0) refuse("a text, not an object");
    if (depth_ == 2 && key_ == "nonfinite") nonfinite_.push_back(text);
    if (depth_ != 1) return true;
    if (key_ == "split") {
      line_.record.split = text;
    } else if (key_ == "time") {
      line_.unix_seconds = parse_utc(text);
      if (!line_.unix_seconds) refuse("time is ", printable(text), ", not like ", utc_now());
    } else {
      refuse_if_known("a text");
    }
    return true;
  }

  bool number_unsigned(json::number_unsigned_t number) override {
    if (depth_ == 1 && kCounts.contains(key_)) return set_count(number);
    return set_number(static_cast<double>(number));
  }
  bool number_integer(json::number_integer_t number) override {
    if (depth_ == 1 && kCounts.contains(key_)) refuse(key_, " is ", number, ", less than 0");
    return set_number(static_cast<double>(number));
  }
  bool number_float(json::number_float_t number, const std::string& text) override {
    if (depth_ == 1 && kCounts.contains(key_)) {
      refuse(key_, " is ", printable(text), ", not a whole number");
    }
    return set_number(number);
  }

  bool null() override {
    if (depth_ == 0) refuse("null, not an object");
    const bool may_be = is_number(key_) || key_ == "elapsed" || key_ == "time";
    if (depth_ == 1 && !may_be) refuse_if_known("null");
    return true;
  }
  bool boolean(bool) override {
    if (depth_ == 0) refuse("a truth value, not an object");
    if (depth_ == 1) refuse_if_known("a truth value");
    return true;
  }
  bool binary(json::binary_t&) override { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool deeper() {
    if (++depth_ > kDeepest) refuse("more than ", kDeepest, " levels deep");
    return true;
  }

  bool shallower() {
    --depth_;
    return true;
  }

  bool set_number(double number) {
    if (depth_ == 0) refuse("a number, not an object");
    if (depth_ != 1) return true;
    if (auto* const known = number_of(line_.record, key_)) {
      *known = number;
    } else if (key_ == "elapsed") {
      line_.record.elapsed = number;
    } else {
      refuse_if_known("a number");
    }
    return true;
  }

  bool set_count(std::uint64_t number) {
    const bool is_int = key_ == "rank" || key_ == "restart";
    const std::uint64_t most =
        is_int ? std::numeric_limits<int>::max() : std::numeric_limits<std::int64_t>::max();
    if (number > most) refuse(key_, " is ", number, ", more than ", most);
    const auto count = static_cast<std::int64_t>(number);
    if (key_ == "v" && count != kMetricsVersion) {
      refuse(
          "v is ", count, "; this program reads ", kMetricsVersion, ", a newer one may read both");
    }
    if (key_ == "rank") line_.record.rank = static_cast<int>(count);
    if (key_ == "restart") line_.record.restart = static_cast<int>(count);
    if (key_ == "epoch") line_.record.epoch = count;
    if (key_ == "step") line_.record.step = count;
    return true;
  }

  void set_nonfinite(const std::string& name) {
    auto* const value = number_of(line_.record, name);
    if (value == nullptr) return;
    if (*value) refuse(name, " is ", **value, " and is listed in nonfinite");
    *value = std::numeric_limits<double>::quiet_NaN();
  }

  bool is_number(std::string_view name) { return number_of(line_.record, name) != nullptr; }

  void require(const std::string& name) const {
    if (!keys_.contains(name)) refuse("the key \"", name, "\" is missing");
  }

  void refuse_if_known(const char* what) {
    const bool known = is_number(key_) || kCounts.contains(key_) || key_ == "elapsed" ||
                       key_ == "time" || key_ == "split" || key_ == "nonfinite";
    if (known) refuse(key_, " is ", what);
  }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... reason) const {
    throw DataError(concat(where_, ": ", reason...));
  }

  const std::string& where_;
  MetricLine line_;
  int depth_ = 0;
  std::string key_;
  std::set<std::string, std::less<>> keys_;
  std::vector<std::string> nonfinite_;
};

}  // namespace

std::optional<MetricLine> parse_metric_line(std::string_view text, const std::string& where) {
  LineReader reader(where);
  if (!json::sax_parse(text, &reader)) return std::nullopt;
  return reader.take();
}

std::optional<double> parse_utc(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd.dddZ";
  const auto fits = [](char form, char letter) {
    return form == 'd' ? letter >= '0' && letter <= '9' : letter == form;
  };
  if (!std::equal(kForm.begin(), kForm.end(), text.begin(), text.end(), fits)) return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t digits) {
    return *parse_number<int>(std::string_view(text).substr(at, digits));
  };
  using namespace std::chrono;
  const year_month_day date(year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
      day(static_cast<unsigned>(number(8, 2))));
  if (!date.ok()) return std::nullopt;
  const auto days = static_cast<double>(sys_days(date).time_since_epoch().count());
  return days * 86400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2) +
         number(20, 3) / 1000.0;
}

}  // namespace lockstep::bench
