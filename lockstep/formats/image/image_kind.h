#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Lists the kinds of image files that are read.
enum class ImageKind { kJpeg, kPng };

/// Finds the kind by the first bytes, whatever the file is called.
///
/// An empty file and every other kind is a DataError; the usual ones are named (GIF, WebP, HTML,
/// text, ...).
ImageKind image_kind(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace lockstep
