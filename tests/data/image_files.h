#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.h"

#include "lockstep/formats/image/png.h"

namespace lockstep::testing {

/// Makes a PNG of one colour, so that what was read can be told.
inline void write_flat_png(
    const TemporaryFolder& folder, const std::string& name, std::uint8_t level, int side = 8) {
  std::filesystem::create_directories((folder.path() / name).parent_path());
  Image image = Image::of_size({side, side});
  std::fill(image.pixels.begin(), image.pixels.end(), level);
  folder.write(name, encode_png(image.view()));
}

/// Makes ten images of one colour in each of two classes, of the levels 1 to 20.
inline void write_levels(const TemporaryFolder& root, const std::string& part) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = part + (i < 10 ? "cat/" : "dog/") + std::to_string(100 + i) + ".png";
    write_flat_png(root, name, static_cast<std::uint8_t>(i + 1), 40);
  }
}

/// Makes a file that is called an image and is none.
inline void write_no_image(const TemporaryFolder& folder, const std::string& name) {
  const std::string text = "<html>404</html>";
  folder.write(name, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

}  // namespace lockstep::testing
