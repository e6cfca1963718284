#include "lockstep/formats/weights/torch_file.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/pickle.h"
#include "lockstep/formats/weights/torch_rules.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

/// A part of a file of torch.save, and where it begins.
struct TorchRecord {
  std::span<const std::uint8_t> bytes;
  std::uint64_t offset = 0;
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

/// The parts of a file that torch.save wrote: `data.pkl`, and one for each storage.
class TorchArchive {
 public:
  /// Refuses what is no such file: of PyTorch before 1.6, TorchScript, another byte order, a
  /// version that is not known. The bytes must outlive it.
  TorchArchive(std::span<const std::uint8_t> bytes, const std::string& file) {
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
        refuse_at(file, entry.offset, printable(entry.name), " is compressed (method ",
            entry.method, "): packed again; torch.save a state_dict()");
      }
      records_.emplace(entry.name.substr(folder.size()), TorchRecord{entry.bytes, entry.offset});
    }
    check_byte_order(file);
    check_version(file);
  }

  /// Finds a part by its name below the archive's own folder; null if there is none.
  const TorchRecord* find(std::string_view name) const {
    const auto record = records_.find(name);
    return record == records_.end() ? nullptr : &record->second;
  }

 private:
  void check_byte_order(const std::string& file) const {
    const TorchRecord* order = find("byteorder");
    if (order != nullptr && text_of(order->bytes) != "little") {
      refuse_at(file, order->offset, "the byte order is ", printable(text_of(order->bytes)),
          "; only little-endian files are read: save it on a little-endian machine");
    }
  }

  void check_version(const std::string& file) const {
    const TorchRecord* record = find("version");
    if (record == nullptr)
      refuse_at(file, 0, "the zip archive has no version: no file of torch.save");
    const int version = version_in(text_of(record->bytes));
    if (version < kOldestVersion || version > kNewestVersion) {
      refuse_at(file, record->offset, "version ", printable(text_of(record->bytes)), "; ",
          kOldestVersion, " to ", kNewestVersion, " are known");
    }
  }

  std::map<std::string, TorchRecord, std::less<>> records_;
};

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
    auto& copy = memory_.copies.emplace_back(size);
    copy_row_major(copy, bytes, tensor.shape, tensor.strides, bytes_of(tensor.type));
    return copy;
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

constexpr std::size_t kMostNameBytes = 256 << 20;
constexpr std::size_t kMostOthersListed = 3;

/// A dict that holds tensors and dicts of tensors, nothing else.
struct TensorPart {
  std::string name;
  int depth = 0;
  std::size_t tensors = 0;
};

/// A walk through a tree of values that collects the tensors below a prefix, and what else is
/// there.
class Collector {
 public:
  Collector(const TorchFile& file, std::string_view only) : file_(file), only_(only) {
    if (!only_.empty()) only_ += '.';
  }

  TensorFile collect() {
    visit("", file_.value);
    if (others_ > 0) refuse_others();
    check(only_.empty() || !tensors_.empty(), file_.name, ": no tensor's name begins with ", only_,
        " (at the top are: ", top_names(), ')');
    return TensorFile(std::move(tensors_), {}, file_.memory);
  }

 private:
  void visit(const std::string& name, const TorchValue& value) {
    std::visit([&](const auto& content) { add(name, content); }, value.content);
  }

  void add(const std::string& name, const TorchDict& dict) {
    if (dict.items.empty() && !name.empty()) add_other(name, "an empty dict");
    const std::size_t tensors = tensors_.size(), others = others_;
    ++depth_;
    for (const auto& [key, value] : dict.items) visit(below(name, text_of(key)), value);
    --depth_;
    if (others_ == others && tensors_.size() > tensors)
      parts_.push_back({name, depth_, tensors_.size() - tensors});
  }

  void add(const std::string& name, const TorchList& list) {
    if (list.items.empty()) add_other(name, "an empty list");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      visit(below(name, std::to_string(i)), list.items[i]);
    }
  }

  void add(const std::string& name, const TorchTensor& tensor) {
    if (!name.starts_with(only_)) return;
    const std::string own = name.substr(only_.size());
    if (own.empty())
      throw DataError(
          concat(file_.name, ": holds a tensor without a name; in Python, save a dict of tensors"));
    if (!names_.insert(own).second) {
      throw DataError(concat(file_.name, ": two tensors have the name ", printable(own)));
    }
    tensors_.push_back({own, tensor.type, tensor.shape, tensor.bytes});
  }

  void add(const std::string& name, std::monostate) { add_other(name, "None"); }
  void add(const std::string& name, bool) { add_other(name, "a bool"); }
  void add(const std::string& name, std::int64_t) { add_other(name, "an integer"); }
  void add(const std::string& name, double) { add_other(name, "a float"); }
  void add(const std::string& name, const std::string&) { add_other(name, "a text"); }
  void add(const std::string& name, const TorchOther& other) {
    add_other(name, concat(other.what, ", which is not read, let alone executed"));
  }

  void add_other(const std::string& name, const std::string& kind) {
    if (!name.starts_with(only_)) return;
    if (++others_ <= kMostOthersListed)
      first_others_.push_back(
          concat(name.empty() ? "the whole" : printable(name), " (", kind, ')'));
  }

  [[noreturn]] void refuse_others() const {
    int least = std::numeric_limits<int>::max();
    for (const TensorPart& part : parts_) least = std::min(least, part.depth);
    std::vector<std::string> names;
    for (const TensorPart& part : parts_)
      if (part.depth == least && names.size() < kMostListed)
        names.push_back(concat(printable(part.name), " (", part.tensors, " tensors)"));
    throw MixedContent(file_.name, std::move(names),
        concat(others_, " values are not tensors: ", first_of(first_others_, others_)));
  }

  std::string top_names() const {
    std::vector<std::string> names;
    const auto* dict = std::get_if<TorchDict>(&file_.value.content);
    if (dict == nullptr) return "";
    for (const auto& item : std::span(dict->items).first(std::min(kMostListed, dict->items.size())))
      names.push_back(printable(text_of(item.key)));
    return first_of(names, dict->items.size());
  }

  static std::string text_of(const TorchKey& key) {
    const auto* number = std::get_if<std::int64_t>(&key);
    return number != nullptr ? std::to_string(*number) : std::get<std::string>(key);
  }

  // A few long names, each within all others, would need far more memory than the file has.
  std::string below(const std::string& name, const std::string& key) {
    std::string result = name.empty() ? key : name + '.' + key;
    name_bytes_ += result.size();
    if (name_bytes_ > kMostNameBytes) {
      throw DataError(concat(file_.name, ": names of more than ", kMostNameBytes, " bytes"));
    }
    return result;
  }

  const TorchFile& file_;
  std::string only_;
  std::vector<TensorEntry> tensors_;
  std::set<std::string> names_;
  std::vector<std::string> first_others_;
  std::size_t others_ = 0;
  std::vector<TensorPart> parts_;
  int depth_ = 0;
  std::size_t name_bytes_ = 0;
};

std::string advice_on(
    const std::vector<std::string>& parts, const std::string& rest, const std::string& before) {
  const std::string which = parts.empty() ? "no part holds tensors alone"
                                          : concat("take a part that holds tensors alone: ", before,
                                                joined(parts, concat(" or ", before)));
  return concat(which, "; ", rest);
}

/// A writer of the pickle of an OrderedDict from names to tensors, the key of each storage being
/// the place of its tensor. Opcodes and their order are those of torch.save, less the numbers under
/// which it keeps values for later use.
class PickleWriter {
 public:
  std::string write(std::span<const TensorEntry> entries) {
    bytes_ = "\x80\x02";
    empty_ordered_dict();
    bytes_ += '(';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      check(!entries[i].name.empty(), "write_torch_file: a tensor has no name");
      text(entries[i].name);
      tensor(entries[i], std::to_string(i));
    }
    bytes_ += "u.";
    return std::move(bytes_);
  }

 private:
  void tensor(const TensorEntry& entry, const std::string& key) {
    const auto storage = pickle::storage_name(entry.type);
    name(storage ? pickle::kTensorV2 : pickle::kTensorV3);
    bytes_ += "((";
    text("storage");
    name(storage.value_or(pickle::kUntypedStorage));
    text(key);
    text("cpu");
    const std::size_t element = bytes_of(entry.type);
    integer(static_cast<std::int64_t>(storage ? entry.bytes.size() / element : entry.bytes.size()));
    bytes_ += "tQ";
    integer(0);
    tuple(entry.shape);
    tuple(row_major_strides(entry.shape));
    bytes_ += '\x89';  // requires no gradient
    empty_ordered_dict();
    if (!storage) name(concat("torch ", torch_name(entry.type)));
    bytes_ += "tR";
  }

  void empty_ordered_dict() {
    name(pickle::kOrderedDict);
    bytes_ += ")R";
  }

  void name(std::string_view module_and_name) {
    const std::size_t blank = module_and_name.find(' ');
    bytes_ += 'c';
    bytes_.append(module_and_name.substr(0, blank)).append("\n");
    bytes_.append(module_and_name.substr(blank + 1)).append("\n");
  }

  void text(const std::string& text) {
    check(text.size() <= std::numeric_limits<std::uint32_t>::max(), "write_torch_file: a name of ",
        text.size(), " bytes");
    bytes_ += 'X';
    append_little_endian(bytes_, text.size(), 4);
    bytes_ += text;
  }

  void integer(std::int64_t number) {
    if (0 <= number && number <= 0xff) {
      bytes_ += 'K';
      append_little_endian(bytes_, static_cast<std::uint64_t>(number), 1);
    } else if (number <= std::numeric_limits<std::int32_t>::max()) {
      bytes_ += 'J';
      append_little_endian(bytes_, static_cast<std::uint64_t>(number), 4);
    } else {
      bytes_ += "\x8a\x08";
      append_little_endian(bytes_, static_cast<std::uint64_t>(number), 8);
    }
  }

  void tuple(std::span<const std::int64_t> numbers) {
    bytes_ += '(';
    for (const std::int64_t number : numbers) integer(number);
    bytes_ += 't';
  }

  static std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> shape) {
    std::vector<std::int64_t> strides(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= std::max<std::int64_t>(shape[i], 1);
    }
    return strides;
  }

  std::string bytes_;
};

// What is written can be read again: our reader's limits are those of the writer.
void check_readable(const std::string& pickle, std::size_t tensors) {
  check(pickle.size() <= pickle::kMostBytes, "write_torch_file: ", tensors,
      " tensors need a data.pkl of ", pickle.size(), " bytes, and no more than ",
      pickle::kMostBytes, " are read again; write .safetensors");
  try {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(pickle.data());
    pickle::read_pickle({bytes, pickle.size()}, "data.pkl", 0);
  } catch (const DataError& error) {
    throw InvalidArgument(concat("write_torch_file: ", tensors,
        " tensors make a file that cannot be read again: ", error.what(), "; write .safetensors"));
  }
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

MixedContent::MixedContent(
    const std::string& file, std::vector<std::string> which, std::string others)
    : DataError(concat(file, ": ", advice_on(which, others, ""))),
      parts(std::move(which)),
      rest(std::move(others)) {}

std::string MixedContent::advice(const std::string& flag) const {
  return advice_on(parts, rest, concat(flag, ' '));
}

TensorFile tensors_of(const TorchFile& file, std::string_view only) {
  return Collector(file, only).collect();
}

void write_torch_file(ByteSink& sink, std::span<const TensorEntry> entries) {
  check_entries("write_torch_file", entries);
  const std::string pickle = PickleWriter().write(entries);
  check_readable(pickle, entries.size());
  ZipWriter zip(sink);
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/.format_version", "1");
  zip.add("archive/.storage_alignment", "64");
  zip.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    zip.add(concat("archive/data/", i), entries[i].bytes);
  }
  zip.add("archive/version", "3\n");
  zip.finish();
}

}  // namespace lockstep
