#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/formats/checksum.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/snapshot/pending_snapshot.h"

namespace lockstep::testing {

/// Tells by which seed a snapshot was saved; all its files must say the same.
inline int seed_of(const std::filesystem::path& snapshot) {
  const TensorFile model = read_safetensors(snapshot / "model.safetensors");
  const int seed = model.find("weight")->bytes[0];
  std::string state;
  std::getline(std::ifstream(snapshot / "state.json"), state);
  const bool is_same = model.find("bias")->bytes[0] == seed + 1 &&
                       state == R"({"v":1,"seed":)" + std::to_string(seed) + "}";
  return is_same ? seed : -1;
}

/// Saves a small snapshot whose files depend on `seed`: tensors, a part of rank 0, a state.
inline std::filesystem::path save_snapshot(
    const std::filesystem::path& run, std::int64_t step, std::uint8_t seed) {
  const std::vector<std::uint8_t> weight(4 * 6, seed);
  const std::vector<std::uint8_t> bias(4, static_cast<std::uint8_t>(seed + 1));
  const std::vector<TensorEntry> model{{"weight", ElementType::kFloat32, {2, 3}, weight},
      {"bias", ElementType::kFloat32, {1}, bias}};
  auto pending = PendingSnapshot::begin(SnapshotFolder(run), step);
  SnapshotManifest manifest{.step = step, .libtorch = "2.15.0", .lockstep = {}, .files = {}};
  manifest.files.push_back(pending.write("model.safetensors", [&](ByteSink& sink) {
    write_safetensors(sink, model, {{"format", "pt"}});
  }));
  manifest.files.push_back(pending.write("rank-00000.safetensors", std::string(100, 'r')));
  manifest.files.push_back(
      pending.write("state.json", R"({"v":1,"seed":)" + std::to_string(seed) + "}"));
  return pending.commit(manifest);
}

/// Returns a manifest the SHA-256 that fits what stands before it; the text ends with the key.
inline std::string with_true_digest(const std::string& text) {
  const std::size_t key = text.rfind(R"(,"sha256":")");
  const std::string front = text.substr(0, key == std::string::npos ? text.size() : key);
  Sha256 digest;
  digest.update({reinterpret_cast<const std::uint8_t*>(front.data()), front.size()});
  return front + R"(,"sha256":")" + digest.finish() + "\"}\n";
}

}  // namespace lockstep::testing
