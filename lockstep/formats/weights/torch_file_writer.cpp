#include <algorithm>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/weights/pickle.h"
#include "lockstep/formats/weights/tensor_bytes.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/torch_rules.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

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

void write_torch_file(const std::filesystem::path& path, std::span<const TensorEntry> entries) {
  AtomicFile file(path);
  write_torch_file(file, entries);
  file.commit();
}

}  // namespace lockstep
