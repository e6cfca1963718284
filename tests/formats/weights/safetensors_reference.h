#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/formats/byte_fields.h"

namespace lockstep::testing {

/// Makes a safetensors file of a header and what follows, whether or not they fit.
inline std::vector<std::uint8_t> safetensors_bytes(
    const std::string& header, std::size_t data_bytes = 0) {
  std::vector<std::uint8_t> bytes;
  append_little_endian(bytes, header.size(), 8);
  bytes.insert(bytes.end(), header.begin(), header.end());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::uint8_t>(i + 1));
  return bytes;
}

/// A tensor as the reference reader sees it.
struct ReferenceTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;

  bool operator==(const ReferenceTensor&) const = default;
};

/// Parses JSON; nothing if it is none or an object has a key twice.
inline std::optional<nlohmann::json> json_without_repeated_keys(const std::string& text) {
  using nlohmann::json;
  std::vector<std::set<std::string>> keys;
  bool is_repeated = false;
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      is_repeated |= !keys.back().insert(value.get<std::string>()).second;
    }
    return true;
  };
  json parsed = json::parse(text, watch, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || is_repeated) return std::nullopt;
  return parsed;
}

/// Returns the bytes of an element; 0 if the type is unknown.
inline int reference_width(const std::string& dtype) {
  static const std::map<std::string, int> kWidths{{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1},
      {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},
      {"U16", 2}, {"F16", 2}, {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4}, {"C64", 8},
      {"F64", 8}, {"I64", 8}, {"U64", 8}};
  const auto found = kWidths.find(dtype);
  return found == kWidths.end() ? 0 : found->second;
}

/// Reads one tensor and paints the bytes that it owns; nothing if its entry breaks a rule.
inline std::optional<ReferenceTensor> reference_tensor(
    const nlohmann::json& entry, const std::string& data, std::vector<int>& owners) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return std::nullopt;
  }
  const auto& shape = entry["shape"];
  const auto& offsets = entry["data_offsets"];
  if (!entry["dtype"].is_string() || !shape.is_array() || !offsets.is_array()) return std::nullopt;
  if (offsets.size() != 2 || shape.size() > 64) return std::nullopt;
  ReferenceTensor tensor{.dtype = entry["dtype"], .shape = {}, .bytes = {}};
  const int width = reference_width(tensor.dtype);
  long double needed = width;
  long double without_empty = width;
  for (const auto& size : shape) {
    if (!size.is_number_unsigned()) return std::nullopt;
    tensor.shape.push_back(static_cast<std::int64_t>(size.get<std::uint64_t>()));
    needed *= static_cast<long double>(size.get<std::uint64_t>());
    without_empty *=
        static_cast<long double>(std::max<std::uint64_t>(size.get<std::uint64_t>(), 1));
  }
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) return std::nullopt;
  const std::uint64_t begin = offsets[0];
  const std::uint64_t end = offsets[1];
  if (width == 0 || begin > end || end > data.size() || without_empty >= 0x1p63L ||
      static_cast<long double>(end - begin) != needed) {
    return std::nullopt;
  }
  for (std::uint64_t i = begin; i < end; ++i) ++owners[i];
  tensor.bytes.assign(data.begin() + static_cast<std::ptrdiff_t>(begin),
      data.begin() + static_cast<std::ptrdiff_t>(end));
  return tensor;
}

inline bool is_metadata(const nlohmann::json& entry) {
  return entry.is_object() && std::all_of(entry.begin(), entry.end(),
                                  [](const nlohmann::json& value) { return value.is_string(); });
}

/// Reads a safetensors file by the letter of the format, the slow way; nothing if it breaks a rule.
inline std::optional<std::map<std::string, ReferenceTensor>> reference_safetensors(
    const std::vector<std::uint8_t>& bytes) {
  if (bytes.size() < 8) return std::nullopt;
  long double length = 0;
  for (int i = 7; i >= 0; --i) length = length * 256 + bytes[static_cast<std::size_t>(i)];
  if (length + 8 > static_cast<long double>(bytes.size()) || length > 100'000'000)
    return std::nullopt;
  const auto end_of_header = bytes.begin() + 8 + static_cast<std::ptrdiff_t>(length);
  const std::string header(bytes.begin() + 8, end_of_header);
  const std::string data(end_of_header, bytes.end());
  const std::size_t last = header.find_last_not_of(' ');
  if (header.empty() || header[0] != '{' || header[last] != '}') return std::nullopt;
  const auto parsed = json_without_repeated_keys(header);
  if (!parsed) return std::nullopt;
  std::vector<int> owners(data.size());
  std::map<std::string, ReferenceTensor> tensors;
  std::set<std::uint64_t> ends{0};
  std::vector<std::uint64_t> empty_places;
  for (const auto& [name, entry] : parsed->items()) {
    if (name == "__metadata__") {
      if (!is_metadata(entry)) return std::nullopt;
      continue;
    }
    auto tensor = reference_tensor(entry, data, owners);
    if (!tensor) return std::nullopt;
    ends.insert(entry["data_offsets"][1].get<std::uint64_t>());
    if (tensor->bytes.empty()) empty_places.push_back(entry["data_offsets"][0]);
    tensors.emplace(name, std::move(*tensor));
  }
  for (const int owner : owners) {
    if (owner != 1) return std::nullopt;
  }
  // An empty tensor lies where others end, never within one.
  for (const std::uint64_t place : empty_places) {
    if (!ends.contains(place)) return std::nullopt;
  }
  return tensors;
}

}  // namespace lockstep::testing
