#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// Counts the training images of `fashion-mnist`, `fashion-mnist:DIR` or `mnist:DIR` by their
/// labels. Another name is an InvalidArgument, files that are missing or wrong are a DataError.
std::int64_t training_images(const std::string& data);

}  // namespace lockstep::bench
