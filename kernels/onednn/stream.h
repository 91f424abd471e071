// oneDNN's streams, which carry work to the library's threads in order.
#ifndef HLO_DISPATCH_ONEDNN_STREAM_H_
#define HLO_DISPATCH_ONEDNN_STREAM_H_

#include <string>

#include "onednn/api.h"

namespace hlo_dispatch::onednn {

// A stream for one execution. Whatever ends that execution, what was submitted is waited for before anything of the
// call's is used for something else: a primitive may fail behind a reorder that is still being written.
class StreamLease {
 public:
  StreamLease();
  ~StreamLease();
  StreamLease(const StreamLease&) = delete;
  StreamLease& operator=(const StreamLease&) = delete;

  // To submit work to.
  Stream* Use() {
    busy_ = true;
    return stream_;
  }

  // Throws what the library says of the work. `what` was submitted last.
  void Wait(const std::string& what);

 private:
  Stream* stream_;
  bool busy_ = false;
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_STREAM_H_
