#include "tests/process/train/idx_files.h"

#include <cstdint>
#include <fstream>
#include <random>
#include <vector>

namespace lockstep::testing {
namespace {

constexpr int kSide = 28;
constexpr int kClasses = 10;

void put(std::ofstream& file, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(number >> shift & 0xff));
}

// Ten places of 7 x 7 pixels in a 4 x 4 grid, over noise.
std::vector<char> image_of(int label, std::mt19937& random) {
  std::vector<char> pixels(std::size_t{kSide} * kSide);
  for (auto& pixel : pixels) pixel = static_cast<char>(random() % 100);
  const int top = label / 4 * 7, left = label % 4 * 7;
  for (int row = top; row < top + 7; ++row) {
    for (int column = left; column < left + 7; ++column) {
      pixels[static_cast<std::size_t>(row) * kSide + static_cast<std::size_t>(column)] =
          static_cast<char>(155 + random() % 100);
    }
  }
  return pixels;
}

void write_part(const std::string& stem, int images, unsigned seed) {
  std::mt19937 random(seed);
  std::ofstream image_file(stem + "-images-idx3-ubyte", std::ios::binary);
  std::ofstream label_file(stem + "-labels-idx1-ubyte", std::ios::binary);
  put(image_file, 0x803);
  put(image_file, static_cast<std::uint32_t>(images));
  put(image_file, kSide);
  put(image_file, kSide);
  put(label_file, 0x801);
  put(label_file, static_cast<std::uint32_t>(images));
  for (int image = 0; image < images; ++image) {
    const int label = static_cast<int>(random() % kClasses);
    const auto pixels = image_of(label, random);
    image_file.write(pixels.data(), static_cast<std::streamsize>(pixels.size()));
    label_file.put(static_cast<char>(label));
  }
}

}  // namespace

void IdxFiles::write(int train_images, int test_images) const {
  write_part(file("train"), train_images, 1);
  write_part(file("t10k"), test_images, 2);
}

}  // namespace lockstep::testing
