// The Python module lockstep._backend.

#include <pybind11/chrono.h>

#include "backend.h"
#include <torch/csrc/utils/pybind.h>

PYBIND11_MODULE(_backend, module) {
  module.def(
      "create",
      [](const lockstep::Store& store, int rank, int size, std::chrono::milliseconds timeout,
          const std::string& name) -> c10::intrusive_ptr<c10d::Backend> {
        try {
          return lockstep::python::C10dBackend::create(store, rank, size, timeout, name);
        } catch (...) {
          std::rethrow_exception(
              lockstep::python::for_python("lockstep: group " + name, std::current_exception()));
        }
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
      py::call_guard<py::gil_scoped_release>());
  module.def("close_threads", &lockstep::python::C10dBackend::close_threads,
      py::call_guard<py::gil_scoped_release>());
}
