#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep {
namespace {

using nlohmann::json;

/// A watch over parsing: the depth, and the keys of the objects that are open.
class Watch {
 public:
  Watch(const std::string& file, std::size_t most) : file_(file), most_(most) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && static_cast<std::size_t>(depth) >= most_) {
      throw DataError(concat(file_, ": more than ", most_, " objects and lists within each other"));
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(value.get<std::string>()).second) {
      throw DataError(concat(file_, ": a key comes twice: ", value.dump().substr(0, 100)));
    }
    return true;
  }

 private:
  const std::string& file_;
  std::size_t most_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& file, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw DataError(
        concat(file, ": ", text.size(), " bytes; at most ", limits.bytes, " belong here"));
  }
  Watch watch(file, limits.depth);
  try {
    return json::parse(text, std::ref(watch));
  } catch (const json::parse_error& error) {
    const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    throw DataError(concat(file, ": offset ", offset, ": is not JSON in UTF-8"));
  } catch (const json::exception&) {
    throw DataError(concat(file, ": has a number that no double can hold"));
  }
}

}  // namespace lockstep
