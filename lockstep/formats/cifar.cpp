#include "lockstep/formats/cifar.h"

#include <array>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kPlane = kCifarSide * kCifarSide;
constexpr std::size_t kPixels = 3 * kPlane;

/// The form of a record: one byte for each kind of label, then the planes red, green, blue.
struct Layout {
  const char* name;
  std::size_t labels;
  std::array<int, 2> classes;  // of each label

  std::size_t record() const { return labels + kPixels; }
};

constexpr Layout kLayout10{"CIFAR-10", 1, {10, 0}};
constexpr Layout kLayout100{"CIFAR-100", 2, {20, 100}};

const Layout& layout_of(CifarVariant variant) {
  return variant == CifarVariant::kCifar10 ? kLayout10 : kLayout100;
}

const Layout& other_than(const Layout& layout) {
  return &layout == &kLayout10 ? kLayout100 : kLayout10;
}

void check_size(const ByteSource& source, std::size_t size, const Layout& layout) {
  if (size == 0) refuse_at(source.name(), 0, "the file is empty");
  if (size % layout.record() == 0) return;
  const Layout& other = other_than(layout);
  if (size % other.record() == 0) {
    refuse_at(source.name(), 0, "the file has the size of ", size / other.record(), " records of ",
        other.name, ", not of ", layout.name, "; use the name of that set");
  }
  refuse_at(source.name(), size - size % layout.record(), "the file ends inside a record: ", size,
      " bytes are not a multiple of ", layout.name, "'s ", layout.record(),
      "; it was cut or is another file");
}

void check_labels(
    const ByteSource& source, std::span<const std::uint8_t> bytes, const Layout& layout) {
  for (std::size_t at = 0; at < bytes.size(); at += layout.record()) {
    for (std::size_t i = 0; i < layout.labels; ++i) {
      if (bytes[at + i] < layout.classes[i]) continue;
      refuse_at(source.name(), at + i, layout.labels == 2 && i == 0 ? "coarse label" : "label",
          " out of range (>= ", layout.classes[i], ") of image ", at / layout.record(), ": ",
          int{bytes[at + i]});
    }
  }
}

/// Brings the three planes of a record together, pixel by pixel.
void interleave(const std::uint8_t* planes, std::uint8_t* pixels) {
  for (std::size_t i = 0; i < kPlane; ++i) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      pixels[3 * i + channel] = planes[channel * kPlane + i];
    }
  }
}

}  // namespace

void parse_cifar(
    ByteSource& source, CifarVariant variant, CifarImages& images, std::uint64_t maximum_bytes) {
  const Layout& layout = layout_of(variant);
  const auto bytes = source.read_up_to(maximum_bytes + 1);
  if (bytes.size() > maximum_bytes) {
    refuse_at(source.name(), maximum_bytes, "the file continues after the limit of ", maximum_bytes,
        " bytes");
  }
  check_size(source, bytes.size(), layout);
  check_labels(source, bytes, layout);
  std::size_t pixels = images.pixels.size();
  images.pixels.resize(pixels + bytes.size() / layout.record() * kPixels);
  for (std::size_t at = 0; at < bytes.size(); at += layout.record(), pixels += kPixels) {
    if (variant == CifarVariant::kCifar100) images.coarse_labels.push_back(bytes[at]);
    images.labels.push_back(bytes[at + layout.labels - 1]);
    interleave(bytes.data() + at + layout.labels, images.pixels.data() + pixels);
  }
}

CifarImages read_cifar(std::span<const std::filesystem::path> files, CifarVariant variant,
    std::uint64_t maximum_bytes) {
  CifarImages images;
  for (const auto& path : files) {
    InputFile file(path);
    GunzipSource source(file);
    parse_cifar(source, variant, images, maximum_bytes - images.pixels.size());
  }
  return images;
}

}  // namespace lockstep
