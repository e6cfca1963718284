#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/samples.h"

namespace lockstep {

/// Returns a sample as a PNG file: the image that the model sees, before its numbers were
/// normalized.
///
/// Three channels are colours; of any other number the first is shown, in grey. Numbers that no
/// pixels gave, as a plugin's may be, are spread from black to white. Sides above 256 pixels are
/// scaled down. Of a set that names its inputs it is the first that is_pictured(); nothing where
/// none is.
std::vector<std::uint8_t> sample_picture(
    const data::Samples& set, std::int64_t index, const data::Normalization& normalization);

}  // namespace lockstep
