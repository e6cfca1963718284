#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/utf8.h"
#include "lockstep/formats/weights/atomic_file.h"
#include "lockstep/formats/weights/little_endian.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/tensor_bytes.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::size_t kAlignment = 8;
constexpr std::size_t kMostHeaderBytes = 100'000'000;

void check_writable(
    std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata) {
  check_entries("write_safetensors", entries);
  for (const TensorEntry& entry : entries) {
    check(
        entry.name != "__metadata__",
        "write_safetensors: a tensor cannot be named __metadata__, the format keeps that name");
    check(
        safetensors_name(entry.type).has_value(), "write_safetensors: tensor ",
        printable(entry.name), " is ", torch_name(entry.type), ", which the format does not have");
  }
  for (const auto& [key, text] : metadata) {
    check(
        is_utf8(key) && is_utf8(text), "write_safetensors: metadata ", printable(key),
        " is not UTF-8");
  }
}

/// Gives the places of the entries in the order in which their bytes lie: widest type first, then
/// by name.
std::vector<std::size_t> byte_order(std::span<const TensorEntry> entries) {
  std::vector<std::size_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    const TensorEntry &a = entries[left], &b = entries[right];
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
  return order;
}

std::string tensor_text(const TensorEntry& entry, std::uint64_t begin) {
  return concat(
      json(entry.name).dump(), R"(:{"dtype":")", *safetensors_name(entry.type), R"(","shape":)",
      json(entry.shape).dump(), R"(,"data_offsets":[)", begin, ',', begin + entry.bytes.size(),
      "]}");
}

std::string header_text(
    std::span<const TensorEntry> entries, const std::vector<std::size_t>& order,
    const std::map<std::string, std::string>& metadata) {
  std::vector<std::uint64_t> begins(entries.size());
  std::uint64_t end = 0;
  for (const std::size_t place : order) {
    begins[place] = end;
    end += entries[place].bytes.size();
  }
  std::string text = "{";
  if (!metadata.empty()) text += R"("__metadata__":)" + json(metadata).dump();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (text.size() > 1) text += ',';
    text += tensor_text(entries[i], begins[i]);
  }
  text += '}';
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

}  // namespace

void write_safetensors(
    ByteSink& sink, std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata) {
  check_writable(entries, metadata);
  const auto order = byte_order(entries);
  const std::string header = header_text(entries, order, metadata);
  check(
      header.size() <= kMostHeaderBytes, "write_safetensors: a header of ", header.size(),
      " bytes; the format allows ", kMostHeaderBytes);
  std::string length;
  append_little_endian(length, header.size(), 8);
  sink.write(length);
  sink.write(header);
  for (const std::size_t place : order) sink.write(entries[place].bytes);
}

void write_safetensors(
    const std::filesystem::path& path, std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata) {
  AtomicFile file(path);
  write_safetensors(file, entries, metadata);
  file.commit();
}

}  // namespace lockstep
