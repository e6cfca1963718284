#include "lockstep/formats/export/exported_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/export/exported_program.h"
#include "lockstep/formats/export/parts.h"
#include "lockstep/formats/export/payload.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

using exported::Parts;
using exported::View;
using Bytes = std::vector<std::uint8_t>;
using Numbers = std::span<const std::int64_t>;

// PyTorch's hash of the content, which it does not read again. That of the new content is another.
constexpr std::string_view kIdentity = "/.data/serialization_id";

// The inverse of copy_row_major().
void scatter(std::uint8_t* to, const std::uint8_t*& from, Numbers shape, Numbers strides,
    std::size_t element_bytes) {
  if (shape.empty()) {
    std::memcpy(to, from, element_bytes);
    from += element_bytes;
    return;
  }
  const std::size_t step = static_cast<std::size_t>(strides.front()) * element_bytes;
  for (std::int64_t i = 0; i < shape.front(); ++i, to += step)
    scatter(to, from, shape.subspan(1), strides.subspan(1), element_bytes);
}

/// The parts of an archive that hold weights, with other values.
class TrainedParts {
 public:
  TrainedParts(const Parts& parts, const ExportedArchive& archive, const TensorFile& weights)
      : parts_(parts), weights_(weights) {
    for (const ExportedProgram& program : archive.programs) replace_all(program);
    for (const ExportedProgram& program : archive.programs) check(program);
    for (const TensorEntry& entry : weights.entries())
      if (!names_.contains(entry.name)) add_line("not in the archive: ", entry.name);
  }

  /// Lists what does not fit, a line each.
  std::string differences() const { return first_lines(differences_); }

  /// Returns the bytes of a part that holds weights; null for another.
  const Bytes* find(const std::string& part) const {
    const auto found = bytes_.find(part);
    return found == bytes_.end() ? nullptr : &found->second;
  }

 private:
  using Views = std::map<std::string, View>;

  void replace_all(const ExportedProgram& program) {
    Views& views = views_[program.name] = exported::views_of_weights(parts_, program.name);
    for (const auto& [name, view] : views)
      if (replace(name, view)) replaced_.insert(view);
  }

  // Once all is replaced: programs may share parts, too.
  void check(const ExportedProgram& program) {
    for (const auto& [name, view] : views_.at(program.name)) {
      const TensorEntry* const entry = entry_of(name);
      if (entry == nullptr && !replaced_.contains(view) && is_used(program, name))
        add_line("missing in the file: ", name);
      if (entry != nullptr && replaced_.contains(view) && !has(view, *entry))
        add_line("shares a tensor with another name, but has other values in the file: ", name);
    }
  }

  // Python's export with strict=True leaves what the program does not use among the weights.
  static bool is_used(const ExportedProgram& program, const std::string& name) {
    using Kind = ExportedInputSpec::Kind;
    return std::ranges::any_of(program.inputs, [&](const ExportedInputSpec& input) {
      return (input.kind == Kind::kParameter || input.kind == Kind::kBuffer) &&
             input.target == name;
    });
  }

  // Python's safetensors.torch.save_model() keeps one name of tied weights, and says in the
  // metadata which: {left out: kept}.
  const TensorEntry* entry_of(const std::string& name) const {
    const TensorEntry* const entry = weights_.find(name);
    const auto kept = weights_.metadata().find(name);
    const bool is_left_out = entry == nullptr && kept != weights_.metadata().end();
    return is_left_out ? weights_.find(kept->second) : entry;
  }

  bool replace(const std::string& name, const View& view) {
    names_.insert(name);
    const TensorEntry* const entry = entry_of(name);
    if (entry == nullptr) return false;
    if (entry->type != view.type || entry->shape != view.shape) {
      add_line("other: ",
          concat(name, ": in the archive ", shape_text(view.shape), " ", torch_name(view.type),
              ", in the file ", shape_text(entry->shape), " ", torch_name(entry->type)));
      return false;
    }
    if (entry->bytes.empty()) return true;
    const std::uint8_t* from = entry->bytes.data();
    if (is_contiguous(view.shape, view.strides)) {
      std::memcpy(first_of(view), from, entry->bytes.size());
      return true;
    }
    scatter(first_of(view), from, view.shape, view.strides, bytes_of(view.type));
    return true;
  }

  // What the weights do not have stays: a part may be larger than the tensors in it.
  std::uint8_t* first_of(const View& view) {
    const auto old = parts_.at(view.part).bytes;
    const auto place = bytes_.try_emplace(view.part, old.begin(), old.end()).first;
    return place->second.data() + view.offset * bytes_of(view.type);
  }

  bool has(const View& view, const TensorEntry& entry) {
    if (entry.bytes.empty()) return true;
    const std::size_t offset = view.offset * bytes_of(view.type);
    Bytes read(entry.bytes.size());
    copy_row_major(read, std::span(bytes_.at(view.part)).subspan(offset), view.shape, view.strides,
        bytes_of(view.type));
    return std::ranges::equal(read, entry.bytes);
  }

  void add_line(const char* head, const std::string& text) {
    const std::string line = concat("  ", head, printable_path(text), "\n");
    if (lines_.insert(line).second) differences_ += line;  // programs have the same names
  }

  const Parts& parts_;
  const TensorFile& weights_;
  std::map<std::string, Bytes> bytes_;
  std::map<std::string, Views> views_;  // of each program
  std::set<View> replaced_;
  std::set<std::string> names_, lines_;
  std::string differences_;
};

void write_archive(ByteSink& sink, const MappedFile& archive, const TrainedParts& trained) {
  ZipWriter zip(sink);
  for (const ZipEntry& entry : read_zip(archive.bytes(), archive.name())) {
    const std::size_t folder = entry.name.find('/');
    if (entry.name.substr(folder) == kIdentity) continue;
    const Bytes* const bytes = trained.find(entry.name.substr(folder + 1));
    zip.add(entry.name, bytes != nullptr ? std::span<const std::uint8_t>(*bytes) : entry.bytes);
  }
  zip.finish();
}

}  // namespace

void write_exported(const std::filesystem::path& path, const std::filesystem::path& archive,
    const TensorFile& weights, const std::string& source) {
  const MappedFile file(archive);
  AtomicFile output(path);
  const auto write = [&] {
    const Parts parts(file.bytes(), file.name());
    const TrainedParts trained(parts, parse_exported(file.bytes(), file.name()), weights);
    if (const std::string differences = trained.differences(); !differences.empty())
      throw DataError(concat(source, ": the weights do not fit ", file.name(),
          "; nothing was written:\n", differences, "take the archive that they were trained with"));
    write_archive(output, file, trained);
  };
  file.checked([&] { weights.checked(write); });
  output.commit();
}

}  // namespace lockstep
