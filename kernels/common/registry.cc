#include "common/registry.h"

#include <map>
#include <stdexcept>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

// What is registered, by name. Made at the first use: static objects of other files use it before this file's exist.
template <typename Entry>
std::map<std::string, Entry>& All() {
  static auto* all = new std::map<std::string, Entry>();
  return *all;
}

template <typename Entry>
const Entry& Add(Entry entry) {
  const std::string name = entry.name;
  const auto [place, is_new] = All<Entry>().emplace(name, std::move(entry));
  if (!is_new) throw std::logic_error("registered twice: " + name);  // nobody catches it: the build is wrong
  return place->second;
}

template <typename Entry>
std::vector<const Entry*> List() {
  std::vector<const Entry*> list;
  for (const auto& [name, entry] : All<Entry>()) list.push_back(&entry);
  return list;
}

}  // namespace

const Kernel& Register(Kernel kernel) {
  for (const auto& [name, other] : All<Kernel>()) {
    if (other.instantiate == kernel.instantiate) {
      throw std::logic_error(name + " and " + kernel.name + " have one maker, which cannot tell them apart");
    }
  }
  return Add(std::move(kernel));
}

std::vector<const Kernel*> Kernels() { return List<Kernel>(); }

const StateType& Register(StateType type) { return Add(std::move(type)); }
std::vector<const StateType*> StateTypes() { return List<StateType>(); }

const Kernel& KernelOf(const std::string& target) {
  for (const auto& [name, kernel] : All<Kernel>()) {
    if (kernel.target() == target) return kernel;
  }
  Invalid("there is no kernel '" + target + "'");
}

void CheckCall(const Kernel& kernel, const Attributes& attributes) {
  if (const int64_t abi = attributes.Integer("abi"); abi != kAbi) {
    Unavailable("this executable was compiled for kernel ABI " + std::to_string(abi) +
                ", the installed hlo-dispatch has " + std::to_string(kAbi) + "; compile it again");
  }
  if (kernel.instructions != nullptr && !kernel.instructions->are_there()) {
    Unsupported(std::string("this processor has no ") + kernel.instructions->name);
  }
}

}  // namespace hlo_dispatch
