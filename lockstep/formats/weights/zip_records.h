#pragma once

#include <cstddef>
#include <cstdint>

// The records of a zip archive (PKWARE's APPNOTE.TXT 6.3): what each begins with, and its bytes
// without names and extra fields. All numbers are little-endian.
namespace lockstep::zip {

inline constexpr std::uint32_t kLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kDescriptorSignature = 0x08074b50;
inline constexpr std::uint32_t kCentralSignature = 0x02014b50;
inline constexpr std::uint32_t kEndSignature = 0x06054b50;
inline constexpr std::uint32_t kEnd64Signature = 0x06064b50;
inline constexpr std::uint32_t kLocatorSignature = 0x07064b50;

inline constexpr std::size_t kLocalBytes = 30;
inline constexpr std::size_t kCentralBytes = 46;
inline constexpr std::size_t kEndBytes = 22;
inline constexpr std::size_t kEnd64Bytes = 56;
inline constexpr std::size_t kLocatorBytes = 20;

inline constexpr std::uint16_t kHasDescriptor = 1 << 3;
inline constexpr std::uint16_t kIsUtf8 = 1 << 11;
inline constexpr std::uint16_t kZip64Field = 0x0001;

/// Stands in a narrow field for a number that stands in a wide one elsewhere.
inline constexpr std::uint32_t kElsewhere32 = 0xffffffff;
inline constexpr std::uint16_t kElsewhere16 = 0xffff;

}  // namespace lockstep::zip
