#pragma once

#include <cstdio>
#include <cstdlib>
#include <jpeglib.h>
#include <vector>

#include "tests/formats/image/image_bytes.h"

namespace lockstep::testing {

/// Makes a JPEG file of 3 components with these scans, as libjpeg's wizard.txt describes them; its
/// errors end the test program.
inline Bytes jpeg_of_scans(const Image& image, const std::vector<jpeg_scan_info>& scans) {
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(image.size.width);
  info.image_height = static_cast<JDIMENSION>(image.size.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  info.scan_info = scans.data();
  info.num_scans = static_cast<int>(scans.size());
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.view().row(info.next_scanline));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

/// Lists one scan for each component, coefficient and bit: 1 + 3 x 63 x bits scans.
inline std::vector<jpeg_scan_info> many_scans(int bits) {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
  for (int component = 0; component < 3; ++component) {
    for (int coefficient = 1; coefficient < 64; ++coefficient) {
      for (int bit = bits - 1; bit >= 0; --bit) {
        const int before = bit == bits - 1 ? 0 : bit + 1;
        scans.push_back({1, {component, 0, 0, 0}, coefficient, coefficient, before, bit});
      }
    }
  }
  return scans;
}

/// Lists one scan for each component, of all its coefficients.
inline std::vector<jpeg_scan_info> scan_of_each_component() {
  return {{1, {0, 0, 0, 0}, 0, 63, 0, 0}, {1, {1, 0, 0, 0}, 0, 63, 0, 0},
      {1, {2, 0, 0, 0}, 0, 63, 0, 0}};
}

/// Finds where the scan of that number begins, counted from 0.
inline std::size_t find_scan(const Bytes& jpeg, int number) {
  for (std::size_t at = 0; at + 1 < jpeg.size(); ++at) {
    if (jpeg[at] == 0xff && jpeg[at + 1] == 0xda && number-- == 0) return at;
  }
  throw std::runtime_error("no such scan");
}

}  // namespace lockstep::testing
