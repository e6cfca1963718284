#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

/// Returns the names of a set's classes, by number: those of the folders of `images`, of CIFAR's
/// files of names, of Fashion-MNIST's authors, MNIST's digits. Empty where a set has none, or not
/// its files of names.
std::vector<std::string> class_names(
    const std::string& set, const std::filesystem::path& directory);

}  // namespace lockstep::data
