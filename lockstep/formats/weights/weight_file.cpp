#include "lockstep/formats/weights/weight_file.h"

#include <array>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/safetensors.h"
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
  return only.empty() ? file : file.part(only);
}

void write_weights(const std::filesystem::path& path, std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata) {
  if (weight_format_of_extension(path) == WeightFormat::kSafetensors) {
    write_safetensors(path, entries, metadata);
    return;
  }
  check(
      metadata.empty(), path.string(), ": a file of PyTorch has no place for metadata; give none");
  write_torch_file(path, entries);
}

}  // namespace lockstep
