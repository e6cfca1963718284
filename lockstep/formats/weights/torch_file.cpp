#include "lockstep/formats/weights/torch_file.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/pickle.h"
#include "lockstep/formats/weights/tensor_bytes.h"
#include "lockstep/formats/weights/torch_rules.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

/// A part of a file of torch.save, and where it begins.
struct TorchRecord {
  std::span<const std::uint8_t> bytes;
  std::uint64_t offset = 0;
};

/// The parts of a file that torch.save wrote: `data.pkl`, and one for each storage.
class TorchArchive {
 public:
  /// Refuses what is no such file: of PyTorch before 1.6, TorchScript, another byte order, a
  /// version that is not known. The bytes must outlive it.
  TorchArchive(std::span<const std::uint8_t> bytes, const std::string& file);

  /// Finds a part by its name below the archive's own folder; null if there is none.
  const TorchRecord* find(std::string_view name) const;

 private:
  void check_byte_order(const std::string& file) const;
  void check_version(const std::string& file) const;

  std::map<std::string, TorchRecord, std::less<>> records_;
};

// PyTorch reads versions 1 to 10 and has written 3 for state dictionaries since 1.6.
constexpr int kOldestVersion = 1;
constexpr int kNewestVersion = 10;

void refuse_other_formats(std::span<const std::uint8_t> bytes, const std::string& file) {
  if (bytes.empty()) refuse_at(file, 0, "the file is empty");
  const std::string_view text = text_of(bytes);
  if (text.starts_with("\x80\x02") || text.starts_with("\x80\x04")) {
    refuse_at(file, 0,
        "a bare pickle, as PyTorch before 1.6 wrote it: load it in Python and torch.save it again");
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

TorchArchive::TorchArchive(std::span<const std::uint8_t> bytes, const std::string& file) {
  refuse_other_formats(bytes, file);
  const auto entries = read_zip(bytes, file);
  const std::string folder = folder_of(entries, file);
  for (const ZipEntry& entry : entries) {
    if (!entry.name.starts_with(folder)) {
      refuse_at(file, entry.offset, printable(entry.name), " is not in the folder ", folder);
    }
    // The code of modules that C++ saved; it is not read.
    if (entry.name.starts_with(folder + "code/")) continue;
    if (entry.method != 0) {
      refuse_at(file, entry.offset, printable(entry.name), " is compressed (method ", entry.method,
          "): packed again; torch.save a state_dict()");
    }
    records_.emplace(entry.name.substr(folder.size()), TorchRecord{entry.bytes, entry.offset});
  }
  check_byte_order(file);
  check_version(file);
}

const TorchRecord* TorchArchive::find(std::string_view name) const {
  const auto record = records_.find(name);
  return record == records_.end() ? nullptr : &record->second;
}

void TorchArchive::check_byte_order(const std::string& file) const {
  const TorchRecord* order = find("byteorder");
  if (order != nullptr && text_of(order->bytes) != "little") {
    refuse_at(file, order->offset, "the byte order is ", printable(text_of(order->bytes)),
        "; only little-endian files are read: save it on a little-endian machine");
  }
}

void TorchArchive::check_version(const std::string& file) const {
  const TorchRecord* record = find("version");
  if (record == nullptr)
    refuse_at(file, 0, "the zip archive has no version: no file of torch.save");
  const int version = version_in(text_of(record->bytes));
  if (version < kOldestVersion || version > kNewestVersion) {
    refuse_at(file, record->offset, "version ", printable(text_of(record->bytes)), "; ",
        kOldestVersion, " to ", kNewestVersion, " are known");
  }
}

constexpr int kDeepest = 100;
// Each takes some 60 bytes here, and one byte of the pickle.
constexpr std::uint64_t kMostTreeValues = 1 << 20;
// A text is kept once in a pickle and used often, so it costs less than its length.
constexpr std::uint64_t kTextBytesPerValue = 16;
// What the copies of strided views may need beyond the size of the file.
constexpr std::uint64_t kMostMoreCopied = 64 << 20;

/// A file, if it was not in memory already, and the copies of what has no plain place in it.
struct TorchMemory {
  std::optional<MappedFile> file;
  std::deque<std::vector<std::uint8_t>> copies;
};

/// A builder that makes the values of a pickle those of the file: shared parts are repeated,
/// tensors get bytes.
class TreeBuilder {
 public:
  TreeBuilder(const TorchArchive& archive, const TorchRecord& pickle, std::uint64_t file_bytes,
      TorchMemory& memory, const std::string& file)
      : archive_(archive),
        memory_(memory),
        file_(file),
        offset_(pickle.offset),
        values_left_(std::min<std::uint64_t>(pickle.bytes.size(), kMostTreeValues)),
        copies_left_(file_bytes + kMostMoreCopied) {}

  TorchValue build(const pickle::Value& value, int depth) {
    if (depth > kDeepest) refuse_at(file_, offset_, "values lie deeper than ", kDeepest, " levels");
    spend(1);
    return std::visit([&](const auto& content) { return make(content, depth + 1); }, value);
  }

 private:
  TorchValue make(std::monostate, int) { return {}; }
  TorchValue make(bool value, int) { return {value}; }
  TorchValue make(std::int64_t value, int) { return {value}; }
  TorchValue make(double value, int) { return {value}; }
  TorchValue make(pickle::Text text, int) { return {copied(text)}; }
  TorchValue make(const pickle::Tuple* tuple, int depth) { return list(tuple->items, depth); }
  TorchValue make(const pickle::List* items, int depth) { return list(items->items, depth); }
  TorchValue make(const pickle::Name* name, int) {
    std::string what = copied(&name->text);
    // Module and class have a blank between them.
    if (std::count(what.begin(), what.end(), ' ') == 1) what[what.find(' ')] = '.';
    return {TorchOther{printable_path(what)}};
  }
  TorchValue make(const pickle::Storage*, int) { return {TorchOther{"a storage"}}; }

  TorchValue make(const pickle::Dict* dict, int depth) {
    for (const auto& [key, value] : dict->items) {
      if (!std::holds_alternative<pickle::Text>(key) && !std::holds_alternative<std::int64_t>(key))
        return {TorchOther{concat("a dict with a key that is ", pickle::kind_of(key))}};
    }
    TorchDict result;
    std::set<TorchKey> keys;
    for (const auto& [key, value] : dict->items) {
      TorchValue built = build(value, depth);
      if (dict->is_module && is_empty_dict(built)) continue;  // a layer without tensors
      result.items.push_back({key_of(key), std::move(built)});
      if (!keys.insert(result.items.back().key).second) {
        refuse_at(file_, offset_, "a dict has a key twice");
      }
    }
    return {std::move(result)};
  }

  TorchValue make(const pickle::Tensor* tensor, int) {
    const auto element = bytes_of(tensor->type);
    const auto size = *tensor_bytes(tensor->type, tensor->shape);
    auto bytes = storage_bytes(*tensor->storage).subspan(tensor->offset * element);
    if (is_contiguous(tensor->shape, tensor->strides)) {
      bytes = bytes.first(size);
    } else {
      bytes = copied(*tensor, bytes, size);
    }
    return {TorchTensor{tensor->type, tensor->shape, bytes}};
  }

  static bool is_empty_dict(const TorchValue& value) {
    const auto* const dict = std::get_if<TorchDict>(&value.content);
    return dict != nullptr && dict->items.empty();
  }

  TorchValue list(const std::vector<pickle::Value>& items, int depth) {
    TorchList result;
    for (const pickle::Value& item : items) result.items.push_back(build(item, depth));
    return {std::move(result)};
  }

  TorchKey key_of(const pickle::Value& key) {
    if (const auto* number = std::get_if<std::int64_t>(&key)) return *number;
    return copied(std::get<pickle::Text>(key));
  }

  std::string copied(pickle::Text text) {
    spend(text->size() / kTextBytesPerValue);
    return *text;
  }

  // Each value takes a byte of the pickle at least, unless parts are used over and over.
  void spend(std::uint64_t values) {
    if (values > values_left_)
      refuse_at(file_, offset_, "a small pickle stands for too many values");
    values_left_ -= values;
  }

  std::span<const std::uint8_t> storage_bytes(const pickle::Storage& storage) {
    const TorchRecord* record = archive_.find("data/" + storage.key);
    const std::string name = printable(storage.key);
    if (record == nullptr) refuse_at(file_, offset_, "the file has no storage ", name);
    if (record->bytes.size() != storage.bytes) {
      refuse_at(file_, record->offset, "storage ", name, " has ", record->bytes.size(),
          " bytes, not the ", storage.bytes, " that data.pkl says");
    }
    return record->bytes;
  }

  std::span<const std::uint8_t> copied(
      const pickle::Tensor& tensor, std::span<const std::uint8_t> bytes, std::uint64_t size) {
    if (size > copies_left_) {
      refuse_at(file_, offset_, "a tensor of shape ", shape_text(tensor.shape),
          " repeats or reorders its storage and is much larger than the file;"
          " in Python, save tensor.contiguous()");
    }
    copies_left_ -= size;
    return memory_.copies.emplace_back(
        strided_copy(bytes, tensor.shape, tensor.strides, bytes_of(tensor.type)));
  }

  const TorchArchive& archive_;
  TorchMemory& memory_;
  const std::string& file_;
  std::uint64_t offset_;
  std::uint64_t values_left_;
  std::uint64_t copies_left_;
};

TorchFile parse_archive(std::span<const std::uint8_t> bytes, const std::string& name,
    const std::shared_ptr<TorchMemory>& memory) {
  const TorchArchive archive(bytes, name);
  const TorchRecord& record = *archive.find("data.pkl");
  if (record.bytes.size() > pickle::kMostBytes) {
    refuse_at(name, record.offset, "data.pkl has more than ", pickle::kMostBytes, " bytes");
  }
  const pickle::Pickle pickle = pickle::read_pickle(record.bytes, name, record.offset);
  TreeBuilder builder(archive, record, bytes.size(), *memory, name);
  // Points to the file alone, and keeps the copies as well.
  const MappedFile* const file = memory->file ? &*memory->file : nullptr;
  return {name, builder.build(pickle.root, 0), FileMemory(memory, file)};
}

}  // namespace

TorchFile read_torch_file(const std::filesystem::path& path) {
  const auto memory = std::make_shared<TorchMemory>();
  const MappedFile& file = memory->file.emplace(path);
  return file.checked([&] { return parse_archive(file.bytes(), file.name(), memory); });
}

TorchFile parse_torch_file(std::span<const std::uint8_t> bytes, const std::string& name) {
  return parse_archive(bytes, name, std::make_shared<TorchMemory>());
}

}  // namespace lockstep
