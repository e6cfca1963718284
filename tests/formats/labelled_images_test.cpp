#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/idx.h"

#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::idx_bytes;

class LabelledImagesTest : public ::testing::Test {
 protected:
  std::string refusal(const Bytes& images, const Bytes& labels) const {
    return testing::message_of<DataError>([&] { read(images, labels); });
  }

  LabelledImages read(const Bytes& images, const Bytes& labels) const {
    return read_labelled_images(
        directory_.write("images", images), directory_.write("labels", labels), 10);
  }

  std::string path(const char* name) const { return (directory_.path() / name).string(); }

 private:
  testing::TemporaryFolder directory_;
};

TEST_F(LabelledImagesTest, JoinsImagesAndLabels) {
  const auto set =
      read(idx_bytes({2, 1, 3}, {1, 2, 3, 4, 5, 6}), testing::gzip(idx_bytes({2}, {0, 9})));
  EXPECT_EQ(set.rows, 1U);
  EXPECT_EQ(set.columns, 3U);
  EXPECT_THAT(set.pixels, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(set.labels, ElementsAre(0, 9));
}

TEST_F(LabelledImagesTest, RefusesCountsThatDiffer) {
  const auto message = refusal(idx_bytes({2, 1, 1}, {1, 2}), idx_bytes({3}, {0, 1, 2}));
  EXPECT_EQ(
      message, path("labels") + ": offset 4: image and label counts differ: 2 images in " +
                   path("images") + ", 3 labels");
}

TEST_F(LabelledImagesTest, RefusesALabelOutOfRange) {
  for (const int label : {10, 11, 255}) {
    const auto labels = idx_bytes({3}, {0, static_cast<std::uint8_t>(label), 99});
    EXPECT_EQ(
        refusal(idx_bytes({3, 1, 1}, {1, 2, 3}), labels),
        concat(path("labels"), ": offset 9: label out of range (>= 10) at index 1: ", label));
  }
}

TEST_F(LabelledImagesTest, RefusesFilesThatChangedPlaces) {
  EXPECT_THAT(
      refusal(idx_bytes({2}, {0, 1}), idx_bytes({2, 1, 1}, {1, 2})),
      HasSubstr("offset 3: the file has 1 dimensions"));
}

}  // namespace
}  // namespace lockstep
