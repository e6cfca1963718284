#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// Does what load_cuda() does, with the LibTorch in this folder.
std::string load_cuda_from(const std::filesystem::path& folder);

}  // namespace lockstep
