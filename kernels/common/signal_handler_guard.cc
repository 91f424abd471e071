#include "common/signal_handler_guard.h"

#include <link.h>

#include <algorithm>
#include <mutex>

namespace hlo_dispatch {

namespace {

std::vector<LoadedObject> LoadedObjects() {
  std::vector<LoadedObject> objects;
  auto add = [](dl_phdr_info* info, size_t, void* list) {
    LoadedObject object{UINTPTR_MAX, 0, info->dlpi_name == nullptr ? "" : info->dlpi_name};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      if (part.p_type != PT_LOAD) continue;
      object.begin = std::min<uintptr_t>(object.begin, info->dlpi_addr + part.p_vaddr);
      object.end = std::max<uintptr_t>(object.end, info->dlpi_addr + part.p_vaddr + part.p_memsz);
    }
    static_cast<std::vector<LoadedObject>*>(list)->push_back(std::move(object));
    return 0;
  };
  dl_iterate_phdr(add, &objects);
  return objects;
}

bool Contains(const std::vector<LoadedObject>& objects, const LoadedObject& object) {
  return std::find(objects.begin(), objects.end(), object) != objects.end();
}

// Shared objects that were loaded with vendor libraries so far. One that is loaded during the lifetime of one guard may
// set its handlers during the lifetime of the next.
class VendorObjects {
 public:
  static VendorObjects& Get() {
    static auto* objects = new VendorObjects();  // never destroyed, as libraries are never closed
    return *objects;
  }

  void Add(const std::vector<LoadedObject>& before) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (LoadedObject& object : LoadedObjects()) {
      if (!Contains(before, object) && !Contains(objects_, object)) objects_.push_back(std::move(object));
    }
  }

  bool Contain(uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(objects_.begin(), objects_.end(),
                       [&](const LoadedObject& object) { return object.begin <= address && address < object.end; });
  }

 private:
  std::mutex mutex_;
  std::vector<LoadedObject> objects_;
};

// The address of its code; small numbers stand for "default" and "ignore".
uintptr_t HandlerOf(const struct sigaction& action) { return reinterpret_cast<uintptr_t>(action.sa_handler); }

}  // namespace

SignalHandlerGuard::SignalHandlerGuard() : objects_(LoadedObjects()) {
  // The C library reserves two of the numbers.
  for (int number = 1; number < NSIG; ++number) known_[number] = sigaction(number, nullptr, &actions_[number]) == 0;
  stack_known_ = sigaltstack(nullptr, &stack_) == 0;
}

SignalHandlerGuard::~SignalHandlerGuard() {
  VendorObjects::Get().Add(objects_);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now;
    if (!known_[number] || sigaction(number, nullptr, &now) != 0) continue;
    if (HandlerOf(now) == HandlerOf(actions_[number]) || !VendorObjects::Get().Contain(HandlerOf(now))) continue;
    sigaction(number, &actions_[number], nullptr);
  }
  stack_t now;
  // Only this thread can have changed it.
  if (stack_known_ && sigaltstack(nullptr, &now) == 0 && now.ss_sp != stack_.ss_sp) sigaltstack(&stack_, nullptr);
}

void BlockHostSignals() {
  sigset_t signals;
  sigfillset(&signals);
  for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&signals, own);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace hlo_dispatch
