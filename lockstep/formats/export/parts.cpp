#include "lockstep/formats/export/parts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep::exported {
namespace {

constexpr const char* kExportAgain = "export the model again with PyTorch 2.11 to 2.15";

// A node of a graph takes some 1.5 KB. A graph within another lies eight levels deeper.
constexpr JsonLimits kJsonLimits{.bytes = 64 << 20, .depth = 128};

// All parts lie in one folder, named after the file that was first written.
std::string folder_of(const std::vector<ZipEntry>& entries) {
  const std::string_view first = entries.empty() ? std::string_view() : entries.front().name;
  return std::string(first.substr(0, first.find('/') + 1));
}

}  // namespace

void Memory::spend(std::uint64_t bytes, const std::string& where) {
  if (bytes > bytes_left) {
    throw DataError(concat(where,
        ": repeats or reorders elements, and is much larger than the file;"
        " in Python, make it contiguous() before the export"));
  }
  bytes_left -= bytes;
}

Parts::Parts(std::span<const std::uint8_t> archive, std::string file) : file_(std::move(file)) {
  if (!starts_with(archive, "PK")) {
    refuse_at(file_, 0, "no zip archive; in Python, torch.export.save writes one");
  }
  const std::vector<ZipEntry> entries = read_zip(archive, file_);
  const std::string folder = folder_of(entries);
  for (const ZipEntry& entry : entries) {
    if (!entry.name.starts_with(folder)) {
      refuse_at(
          file_, entry.offset, printable(entry.name), " is not in the folder ", printable(folder));
    }
    add(entry.name.substr(folder.size()), {entry.bytes, entry.offset});
  }
  if (find("archive_format") == nullptr) refuse_without_format();
  if (folder.empty())
    throw DataError(concat(file_, ": its files are in no folder, so it is not of torch.export"));
  for (const ZipEntry& entry : entries) {
    if (entry.method != 0) {
      refuse_at(file_, entry.offset, printable(entry.name), " is compressed (method ", entry.method,
          "): packed again; ", kExportAgain);
    }
  }
  check_text("archive_format", "pt2", kExportAgain);
  check_text("archive_version", "0", kExportAgain);
  check_text("byteorder", "little", "export it on a little-endian machine");
  if (programs_.empty()) {
    throw DataError(concat(file_,
        ": has no program in models/: a package that was compiled for inference cannot be trained;"
        " in Python, torch.export.save the exported program itself"));
  }
}

void Parts::add(std::string name, const Part& part) {
  constexpr std::string_view kFolder = "models/", kEnd = ".json";
  if (name.starts_with(kFolder) && name.ends_with(kEnd)) {
    programs_.push_back(name.substr(kFolder.size(), name.size() - kFolder.size() - kEnd.size()));
  }
  parts_.emplace(std::move(name), part);
}

const Part* Parts::find(std::string_view name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? nullptr : &found->second;
}

const Part& Parts::at(std::string_view name) const {
  const Part* const part = find(name);
  if (part == nullptr) throw DataError(concat(file_, ": has no ", printable(name)));
  return *part;
}

nlohmann::json Parts::json(const std::string& name) const {
  return parse_strict_json(
      text_of(at(name).bytes), concat(file_, ": ", printable_path(name)), kJsonLimits);
}

void Parts::check_text(std::string_view name, std::string_view expected, const char* advice) const {
  const Part& part = at(name);
  const std::string_view text = text_of(part.bytes);
  if (text != expected) {
    refuse_at(file_, part.offset, name, " is ", printable(text), ", but only ", printable(expected),
        " is read: ", advice);
  }
}

void Parts::refuse_without_format() const {
  const auto has = [this](std::string_view name) { return find(name) != nullptr; };
  std::string reason = "a zip archive without archive_format, so not of torch.export";
  if (has("data.pkl")) {
    reason = "a file of torch.save: weights without a program; in Python, torch.export.save";
  }
  if (has("constants.pkl")) {
    reason = "TorchScript, which is not read; in Python, torch.export.save an exported program";
  }
  if (has("serialized_exported_program.json")) {
    reason = concat("a program of torch.export.save before PyTorch 2.8: ", kExportAgain);
  }
  throw DataError(concat(file_, ": ", reason));
}

}  // namespace lockstep::exported
