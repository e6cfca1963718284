#include "lockstep/formats/weights/weight_file.h"

#include <array>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/formats/weights/torch_file.h"

namespace lockstep {

WeightFormat weight_format_of_content(const std::filesystem::path& path) {
  InputFile file(path);
  std::array<std::uint8_t, 9> front{};
  const std::size_t seen = file.read(front);
  // The length of safetensors' header may begin as the others do; only there a brace follows it.
  if (seen == front.size() && front[8] == '{') return WeightFormat::kSafetensors;
  const bool is_zip = seen >= 2 && front[0] == 'P' && front[1] == 'K';
  const bool is_pickle = seen > 0 && front[0] == 0x80;
  return is_zip || is_pickle ? WeightFormat::kTorch : WeightFormat::kSafetensors;
}

WeightFormat weight_format_of_extension(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".safetensors") return WeightFormat::kSafetensors;
  for (const char* known : {".pt", ".pth", ".bin"}) {
    if (extension == known) return WeightFormat::kTorch;
  }
  throw InvalidArgument(concat(path.string(), ": the extension ", printable(extension),
      " says no format; use .safetensors, .pt, .pth or .bin"));
}

TensorFile read_weights(const std::filesystem::path& path, std::string_view only) {
  if (weight_format_of_content(path) == WeightFormat::kTorch) {
    return tensors_of(read_torch_file(path), only);
  }
  TensorFile file = read_safetensors(path);
  if (file.metadata().contains(kTensorParts))
    throw DataError(concat(path.string(),
        ": holds parts of tensors, of which other files of a snapshot have the rest; `lockstep "
        "convert FOLDER weights.safetensors` makes whole ones of the snapshot's folder"));
  return only.empty() ? file : file.part(only);
}

namespace {

using Metadata = std::map<std::string, std::string>;

WeightFormat checked_format(const std::filesystem::path& path, const Metadata& metadata) {
  const WeightFormat format = weight_format_of_extension(path);
  check(format == WeightFormat::kSafetensors || metadata.empty(), path.string(),
      ": a file of PyTorch has no place for metadata; give none");
  return format;
}

void write_as(WeightFormat format, ByteSink& sink, std::span<const TensorEntry> entries,
    const Metadata& metadata) {
  if (format == WeightFormat::kSafetensors) {
    write_safetensors(sink, entries, metadata);
  } else {
    write_torch_file(sink, entries);
  }
}

}  // namespace

void write_weights(const std::filesystem::path& path, std::span<const TensorEntry> entries,
    const Metadata& metadata) {
  const WeightFormat format = checked_format(path, metadata);
  AtomicFile file(path);
  write_as(format, file, entries, metadata);
  file.commit();
}

void write_weights(
    const std::filesystem::path& path, const TensorFile& tensors, const Metadata& metadata) {
  const WeightFormat format = checked_format(path, metadata);
  AtomicFile file(path);
  tensors.checked([&] { write_as(format, file, tensors.entries(), metadata); });
  file.commit();
}

}  // namespace lockstep
