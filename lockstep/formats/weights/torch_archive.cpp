#include "lockstep/formats/weights/torch_archive.h"

#include <algorithm>

#include "lockstep/core/text.h"
#include "lockstep/core/utf8.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

// PyTorch reads versions 1 to 10 and has written 3 for state dictionaries since 1.6.
constexpr int kOldestVersion = 1;
constexpr int kNewestVersion = 10;

void refuse_other_formats(std::span<const std::uint8_t> bytes, const std::string& file) {
  if (bytes.empty()) refuse_at(file, 0, "the file is empty");
  const std::string_view text = text_of(bytes);
  if (text.starts_with("\x80\x02") || text.starts_with("\x80\x04")) {
    refuse_at(
        file, 0,
        "a bare pickle, as PyTorch before 1.6 wrote it: load it in Python and torch.save it anew");
  }
  if (!text.starts_with("PK")) {
    refuse_at(file, 0, "neither a zip archive of torch.save nor another known weight file");
  }
}

// All parts lie in one folder, named after the file that was first written.
std::string folder_of(const std::vector<ZipEntry>& entries, const std::string& file) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const ZipEntry& entry : entries) {
    if (!entry.name.ends_with(kPickle)) continue;
    const std::string folder = entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
    if (folder.find('/') + 1 == folder.size()) return folder;
  }
  refuse_at(file, 0, "the zip archive has no FOLDER/data.pkl: no file of torch.save");
}

int version_in(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text.size() > 2 ? 0 : static_cast<int>(parse_number<std::uint64_t>(text).value_or(0));
}

}  // namespace

TorchArchive::TorchArchive(std::span<const std::uint8_t> bytes, const std::string& file) {
  refuse_other_formats(bytes, file);
  const auto entries = read_zip(bytes, file);
  const std::string folder = folder_of(entries, file);
  for (const ZipEntry& entry : entries) {
    if (!entry.name.starts_with(folder)) {
      refuse_at(file, entry.offset, printable(entry.name), " is not in the folder ", folder);
    }
    records_.emplace(entry.name.substr(folder.size()), TorchRecord{entry.bytes, entry.offset});
  }
  check_kind(file);
  check_version(file);
}

const TorchRecord* TorchArchive::find(std::string_view name) const {
  const auto record = records_.find(name);
  return record == records_.end() ? nullptr : &record->second;
}

void TorchArchive::check_kind(const std::string& file) const {
  const bool has_code = std::any_of(records_.begin(), records_.end(), [](const auto& record) {
    return record.first.starts_with("code/") || record.first == "constants.pkl";
  });
  if (has_code) {
    refuse_at(
        file, 0,
        "TorchScript, which holds code: in Python, torch.save(torch.jit.load(...).state_dict())");
  }
  const TorchRecord* order = find("byteorder");
  if (order != nullptr && text_of(order->bytes) != "little") {
    refuse_at(
        file, order->offset, "the byte order is ", printable(text_of(order->bytes)),
        "; only little is read: save it anew on such a machine");
  }
}

void TorchArchive::check_version(const std::string& file) const {
  const TorchRecord* record = find("version");
  if (record == nullptr)
    refuse_at(file, 0, "the zip archive has no version: no file of torch.save");
  const int version = version_in(text_of(record->bytes));
  if (version < kOldestVersion || version > kNewestVersion) {
    refuse_at(
        file, record->offset, "version ", printable(text_of(record->bytes)), "; ", kOldestVersion,
        " to ", kNewestVersion, " are known");
  }
}

}  // namespace lockstep
