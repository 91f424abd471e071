#include "pjrt/errors.h"

#include <map>
#include <mutex>
#include <utility>

namespace hlo_dispatch::pjrt {

namespace {

struct OurError {
  int code;
  std::string message;
};

// Nothing tells an error of ours from the runtime's but its address.
std::mutex mutex;
std::map<const void*, OurError>& Errors() {
  static auto* errors = new std::map<const void*, OurError>();
  return *errors;
}

}  // namespace

Error* NewError(int code, std::string message) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto* error = reinterpret_cast<Error*>(new char);
  Errors()[error] = {code, std::move(message)};
  return error;
}

bool IsOurs(const Error* error) {
  const std::lock_guard<std::mutex> lock(mutex);
  return Errors().count(error) != 0;
}

void DestroyOurs(ErrorDestroy* arguments) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (Errors().erase(arguments->error) != 0) delete reinterpret_cast<char*>(arguments->error);
}

void MessageOfOurs(ErrorMessage* arguments) {
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string& message = Errors().at(arguments->error).message;
  arguments->message = message.c_str();
  arguments->message_size = message.size();
}

void CodeOfOurs(ErrorCode* arguments) {
  const std::lock_guard<std::mutex> lock(mutex);
  arguments->code = Errors().at(arguments->error).code;
}

}  // namespace hlo_dispatch::pjrt
