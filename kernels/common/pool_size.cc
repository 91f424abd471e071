#include "common/pool_size.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "common/bound_threads.h"

namespace hlo_dispatch {

namespace {

constexpr int64_t kMaxThreads = 256;

// Whether a text is a whole number of 32 bits and nothing else.
bool IsNumber(const char* text, int64_t& number) {
  char* end = nullptr;
  errno = 0;
  number = std::strtol(text, &end, 10);
  if (end == text || errno != 0 || number != static_cast<int32_t>(number)) return false;
  while (std::isspace(static_cast<unsigned char>(*end)) != 0) ++end;
  return *end == '\0';
}

int64_t Asked() {
  for (const char* variable : {"PJRT_NPROC", "NPROC"}) {
    const char* text = std::getenv(variable);
    int64_t number = 0;
    if (text != nullptr && IsNumber(text, number)) return number;
  }
  return static_cast<int64_t>(AllowedProcessors().size());
}

}  // namespace

int64_t PoolThreads() {
  static const int64_t threads = std::clamp<int64_t>(Asked(), 1, kMaxThreads);
  return threads;
}

}  // namespace hlo_dispatch
