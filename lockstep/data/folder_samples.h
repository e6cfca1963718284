#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/data/image_folder.h"
#include "lockstep/data/samples.h"

namespace lockstep::data {

/// Says what becomes of an image file that cannot be decoded.
enum class OnBadImage {
  kFail,     ///< its DataError ends the walk
  kReplace,  ///< the next file in the folder that can be read stands in, with its own class
  kIgnore,   ///< a black image of class kIgnoredTarget stands in, which no loss and no count takes
};

/// Gives the images of a folder, each read and decoded when its turn comes.
///
/// A file is bad when its bytes are: gone, changed, damaged. What the system refuses (permission,
/// too many open files) ends the walk whatever the rule.
class FolderSamples final : public SingleSamples {
 public:
  FolderSamples(
      ImageFolder folder, std::unique_ptr<const ImageTransform> transform,
      OnBadImage on_bad = OnBadImage::kFail);

  std::int64_t size() const override { return folder_.size(); }
  std::int64_t classes() const override { return folder_.classes(); }
  ImageShape shape() const override;
  std::string name(std::int64_t index) const override { return folder_.name(index); }

  /// Gives the bad files met so far, by their index, with the reason.
  std::map<std::int64_t, std::string> bad() const;

 private:
  std::int64_t read_one(const SampleKey& key, std::span<float> out) const override;
  std::int64_t decode(const SampleKey& key, std::span<float> out) const;
  std::int64_t replace(SampleKey key, std::span<float> out) const;
  bool was_decoded(const SampleKey& key, std::span<float> out) const;

  ImageFolder folder_;
  std::unique_ptr<const ImageTransform> transform_;
  OnBadImage on_bad_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::string> bad_;
};

}  // namespace lockstep::data
