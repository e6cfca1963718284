#include "lockstep/formats/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

// The fields of TensorFlow's event.proto and summary.proto.
constexpr std::uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr std::uint64_t kValue = 1;
constexpr std::uint64_t kTag = 1, kSimpleValue = 2;
constexpr std::uint64_t kStatus = 1, kStart = 1;

// The ways in which protobuf encodes a field.
enum class Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 128; number >>= 7) bytes += static_cast<char>(number | 128);
  return bytes += static_cast<char>(number);
}

std::string key(std::uint64_t field, Wire wire) {
  return varint(field << 3 | static_cast<std::uint64_t>(wire));
}

std::string number_field(std::uint64_t field, std::uint64_t number) {
  return key(field, Wire::kVarint) + varint(number);
}

std::string double_field(std::uint64_t field, double number) {
  std::string bytes = key(field, Wire::kFixed64);
  append_little_endian(bytes, std::bit_cast<std::uint64_t>(number), 8);
  return bytes;
}

std::string float_field(std::uint64_t field, float number) {
  std::string bytes = key(field, Wire::kFixed32);
  append_little_endian(bytes, std::bit_cast<std::uint32_t>(number), 4);
  return bytes;
}

// A text, or a message in the message.
std::string bytes_field(std::uint64_t field, std::string_view content) {
  return (key(field, Wire::kBytes) + varint(content.size())).append(content);
}

// A step of 0 is left out, as protobuf does with what is 0.
std::string event(const EventPoint& point, const std::string& what) {
  const auto step = static_cast<std::uint64_t>(point.step);
  return event_record(double_field(kWallTime, point.unix_seconds) +
                      (step == 0 ? "" : number_field(kStep, step)) + what);
}

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1U ? 0x82f63b78U : 0U);
    table[byte] = rest;
  }
  return table;
}

// TFRecord's: a checksum of bytes that contain their checksum would say little.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

constexpr std::string_view kPrefix = "events.out.tfevents.", kSuffix = ".lockstep";

std::int64_t time_in(std::string_view name) {
  name.remove_prefix(kPrefix.size());
  return parse_number<std::int64_t>(name.substr(0, name.find('.'))).value_or(0);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  std::uint32_t rest = ~0U;
  for (const char byte : bytes)
    rest = kTable[(rest ^ static_cast<unsigned char>(byte)) & 255U] ^ rest >> 8;
  return ~rest;
}

std::string event_record(std::string_view bytes) {
  std::string record;
  append_little_endian(record, bytes.size(), 8);
  append_little_endian(record, masked_crc(record), 4);
  record += bytes;
  append_little_endian(record, masked_crc(bytes), 4);
  return record;
}

std::string version_event(const EventPoint& point) {
  return event(point, bytes_field(kFileVersion, "brain.Event:2"));
}

std::string restart_event(const EventPoint& point) {
  return event(point, bytes_field(kSessionLog, number_field(kStatus, kStart)));
}

std::string scalars_event(const EventPoint& point, const std::vector<EventScalar>& scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    const std::string value =
        bytes_field(kTag, scalar.tag) + float_field(kSimpleValue, static_cast<float>(scalar.value));
    summary += bytes_field(kValue, value);
  }
  return event(point, bytes_field(kSummary, summary));
}

std::string event_file_name(std::int64_t unix_seconds) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(unix_seconds));
  return std::string(kPrefix) + digits + std::string(kSuffix);
}

bool is_event_file_name(std::string_view name) {
  return name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

std::string next_event_file_name(const std::vector<std::string>& names, std::int64_t unix_seconds) {
  for (const std::string& name : names)
    if (name.starts_with(kPrefix)) unix_seconds = std::max(unix_seconds, time_in(name) + 1);
  return event_file_name(unix_seconds);
}

}  // namespace lockstep
