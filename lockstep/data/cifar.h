#pragma once

#include <filesystem>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// Reads CIFAR-10's binary version: 50,000 images to train with or 10,000 to test with, 32 x 32
/// x 3.
///
/// The folder is the one that holds `data_batch_1.bin` to `_5.bin` and `test_batch.bin`, or the one
/// in which the archive was unpacked and that holds `cifar-10-batches-bin`. Missing or wrong files,
/// and the folder of another version or set, are a DataError that says what to do.
InMemoryImages cifar10(const std::filesystem::path& directory, bool train = true);

/// Reads CIFAR-100's, `train.bin` and `test.bin`, perhaps in `cifar-100-binary`; the labels are the
/// 100 fine ones.
InMemoryImages cifar100(const std::filesystem::path& directory, bool train = true);

}  // namespace lockstep::data
