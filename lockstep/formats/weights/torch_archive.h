#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A part of a file of torch.save, and where it begins.
struct TorchRecord {
  std::span<const std::uint8_t> bytes;
  std::uint64_t offset = 0;
};

/// The parts of a file that torch.save wrote: `data.pkl`, and one for each storage.
class TorchArchive {
 public:
  /// Refuses what is no such file: of PyTorch before 1.6, TorchScript, another byte order, a
  /// version that is not known. The bytes must outlive it.
  TorchArchive(std::span<const std::uint8_t> bytes, const std::string& file);

  /// Finds a part by its name below the archive's own folder; null if there is none.
  const TorchRecord* find(std::string_view name) const;

 private:
  void check_kind(const std::string& file) const;
  void check_version(const std::string& file) const;

  std::map<std::string, TorchRecord, std::less<>> records_;
};

}  // namespace lockstep
