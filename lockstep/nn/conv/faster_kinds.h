#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/simd/instructions.h"

namespace lockstep::nn::conv {

/// The kinds of convolutions that our kernels compute faster than oneDNN, where the shape fits.
struct FasterKinds {
  bool products = false;         ///< 1x1 of stride 1
  bool window_products = false;  ///< of a larger stride
  bool depthwise_outputs = false;

  bool operator==(const FasterKinds&) const = default;
};

/// The time of our kernels in times of oneDNN's, of each kind.
struct KindTimes {
  double products = 0, window_products = 0, depthwise_outputs = 0;
};

/// Returns what is faster on a processor of these simd::processor_features() with these
/// instructions of ours; nothing if we have measured no such processor.
std::optional<FasterKinds> known_kinds(simd::InstructionSet ours, const std::string& features);

/// Times some layers of each kind, in turn with oneDNN, by the time of this process on cores: a
/// second on one thread.
KindTimes measured_times();

/// Returns the kinds that take less time by a twentieth at least: noise shall not decide.
FasterKinds faster_by(const KindTimes& times);

/// Returns the times that the folder has for a processor, or measures them and leaves them there.
/// Where that cannot be, they are measured each time.
KindTimes remembered_times(const std::filesystem::path& folder, const std::string& processor,
    const std::function<KindTimes()>& measure);

/// Returns what is faster here.
///
/// Note [Kinds that are measured]
/// Whose 1x1, strided and depthwise convolutions are faster depends on the processor: oneDNN has
/// other loops for each. Of AMD's with AVX2 alone we know it. Any other measures itself, when
/// `auto` is first asked for. The times stay in the user's folder for caches: so the processes of a
/// host choose alike, and a run that is resumed has the bits of one that was not.
const FasterKinds& faster_kinds();

}  // namespace lockstep::nn::conv
