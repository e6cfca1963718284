#include "lockstep/formats/weights/token_file.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/npy.h"
#include "lockstep/formats/weights/tensor_numbers.h"

namespace lockstep {
namespace {

constexpr const char* kName = "tokens";

/// The forms of llm.c (write_datafile() of its dev/data/data_common.py).
struct HeadedForm {
  std::uint64_t magic, version;
  ElementType type;
};
constexpr HeadedForm kHeaded[] = {
    {20240520, 1, ElementType::kUint16}, {20240801, 7, ElementType::kUint32}};
constexpr std::size_t kHeaderBytes = 256 * 4;

// As many tokens as show whether every second half of 32 bits is empty by chance.
constexpr std::size_t kLeastHalves = 64, kMostHalves = 1 << 16;

TensorEntry entry_of(ElementType type, std::span<const std::uint8_t> bytes) {
  const std::size_t count = bytes.size() / bytes_of(type);
  return {kName, type, {static_cast<std::int64_t>(count)}, bytes};
}

TensorEntry parse_headed(
    const HeadedForm& form, std::span<const std::uint8_t> bytes, const std::string& file) {
  if (bytes.size() < kHeaderBytes)
    refuse_at(file, bytes.size(), "the file ends within the header of llm.c's tokens");
  const std::uint64_t version = little_endian(bytes.subspan(4, 4));
  if (version != form.version)
    refuse_at(
        file, 4, "version ", version, " of llm.c's tokens ", form.magic, " is not ", form.version);
  const std::uint64_t count = little_endian(bytes.subspan(8, 4));
  const auto content = bytes.subspan(kHeaderBytes);
  if (content.size() != count * bytes_of(form.type))
    refuse_at(file, 8, "the header counts ", count, " tokens of ", torch_name(form.type), ", but ",
        content.size(), " bytes follow it");
  return entry_of(form.type, content);
}

// Tokens of 32 bits are below some million: read as two of 16 bits, every second one is tiny, and
// the others are not.
bool looks_wide(std::span<const std::uint8_t> bytes) {
  constexpr std::uint64_t kMostUpper = 15, kLeastLower = 4096;
  const std::size_t halves = std::min(bytes.size() / 2, kMostHalves) / 2 * 2;
  std::uint64_t lower = 0, upper = 0;
  for (std::size_t i = 0; i < halves; i += 2) {
    lower = std::max(lower, little_endian(bytes.subspan(2 * i, 2)));
    upper = std::max(upper, little_endian(bytes.subspan(2 * i + 2, 2)));
  }
  const bool is_wide = upper == 0 || (upper <= kMostUpper && lower >= kLeastLower);
  return halves >= kLeastHalves && is_wide;
}

TensorEntry parse_bare(std::span<const std::uint8_t> bytes, const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  const bool is_wide = name.find("uint32") != std::string::npos;
  const ElementType type = is_wide ? ElementType::kUint32 : ElementType::kUint16;
  if (bytes.empty() || bytes.size() % bytes_of(type) != 0)
    refuse_at(file, bytes.size(), "a file of ", bytes.size(), " bytes has no whole number of ",
        torch_name(type), " tokens");
  if (!is_wide && looks_wide(bytes))
    refuse_at(file, 0,
        "every second uint16 is 0 or tiny, so its tokens seem to be uint32; name it so, as in "
        "train.uint32.bin");
  return entry_of(type, bytes);
}

}  // namespace

TensorEntry parse_tokens(std::span<const std::uint8_t> bytes, const std::string& file) {
  if (starts_with(bytes, kNpyMagic)) {
    const TensorEntry entry = parse_npy(bytes, kName, file);
    if (entry.shape.size() != 1 || kind_of(entry.type) != NumberKind::kInteger)
      refuse_at(file, 0, "tokens must be integers in one dimension, of int64 or fewer bits, not ",
          torch_name(entry.type), " of shape ", shape_text(entry.shape));
    return entry;
  }
  if (bytes.size() >= 4) {
    const std::uint64_t magic = little_endian(bytes.first(4));
    const auto* const form = std::ranges::find(kHeaded, magic, &HeadedForm::magic);
    if (form != std::end(kHeaded)) return parse_headed(*form, bytes, file);
  }
  return parse_bare(bytes, file);
}

TensorFile read_tokens(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return file->checked(
      [&] { return TensorFile({parse_tokens(file->bytes(), file->name())}, {}, file); });
}

TensorFile read_bytes_as_tokens(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return TensorFile({entry_of(ElementType::kUint8, file->bytes())}, {}, file);
}

}  // namespace lockstep
