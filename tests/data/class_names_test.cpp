#include "lockstep/data/class_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/class_folders.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ClassNames, OfFoldersAreTheirNames) {
  const testing::ClassFolders folders({"train/dog/1.png", "train/cat/1.png"});
  EXPECT_THAT(class_names("images", folders.path()), ElementsAre("cat", "dog"));
}

TEST(ClassNames, OfCifarAreThoseOfItsFileWhereTheArchiveWasUnpacked) {
  const testing::ClassFolders folders({});
  EXPECT_THAT(class_names("cifar10", folders.path()), IsEmpty());
  folders.write("cifar-10-batches-bin/batches.meta.txt", "airplane\r\nautomobile\n\n");
  folders.write("fine_label_names.txt", "apple\nbear\n");
  EXPECT_THAT(class_names("cifar10", folders.path()), ElementsAre("airplane", "automobile"));
  EXPECT_THAT(class_names("cifar100", folders.path()), ElementsAre("apple", "bear"));
}

TEST(ClassNames, OfTheMnistsAreThoseOfTheirAuthors) {
  EXPECT_EQ(class_names("mnist", "").at(7), "7");
  EXPECT_EQ(class_names("fashion-mnist", "").at(9), "Ankle boot");
  EXPECT_THAT(class_names("mock", ""), IsEmpty());
}

}  // namespace
}  // namespace lockstep::data
