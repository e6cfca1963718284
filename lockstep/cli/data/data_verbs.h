#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/data/check/check_set.h"

namespace lockstep::cli {

/// Each is what stands after `lockstep data`.
int data_fetch(const std::vector<std::string>& arguments);
int data_check(const std::vector<std::string>& arguments);
int data_synthesize(const std::vector<std::string>& arguments);

/// Makes a contact sheet, by `lockstep-train`, which lies beside this program: what reads images
/// for training needs LibTorch.
int data_show(const std::vector<std::string>& arguments);

/// A set and the folder where it lies.
struct DataPlace {
  std::string name;
  std::filesystem::path directory;
};

/// Takes `NAME DIR` and `NAME:DIR`, as `lockstep train --data` has it; without a folder there is
/// none. A folder that is empty or given twice is an InvalidArgument.
DataPlace data_place(const std::string& verb, const std::string& set, const std::string& directory);

/// Refuses a place without a folder, as an InvalidArgument that shows how to name one.
void check_has_folder(const std::string& verb, const DataPlace& place);

/// Prints what a check found, for people.
void print_report(std::ostream& out, const data::SetReport& report);

/// Prints it as one JSON object on one line.
void print_json_report(std::ostream& out, const data::SetReport& report);

}  // namespace lockstep::cli
