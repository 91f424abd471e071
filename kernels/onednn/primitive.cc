#include "onednn/primitive.h"

#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

// Streams are shared by all primitives: one per execution under way, at most as many as XLA has threads. They
// are never destroyed, because the runtime below them may already be gone when the process ends.
class StreamPool {
 public:
  static StreamPool& Get() {
    static auto* pool = new StreamPool();
    return *pool;
  }

  Stream* Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        Stream* stream = idle_.back();
        idle_.pop_back();
        return stream;
      }
    }
    const Library& library = Library::Get();
    Stream* stream = nullptr;
    library.Check(library.functions().stream_create(&stream, library.engine(), kInOrder), "creating a stream");
    return stream;
  }

  void GiveBack(Stream* stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::vector<Stream*> idle_;
};

class StreamLease {
 public:
  StreamLease() : stream_(StreamPool::Get().Take()) {}
  ~StreamLease() { StreamPool::Get().GiveBack(stream_); }
  StreamLease(const StreamLease&) = delete;
  StreamLease& operator=(const StreamLease&) = delete;
  Stream* get() const { return stream_; }

 private:
  Stream* stream_;
};

OwnedMemory MakeMemory(const Library& library, const MemoryDescriptor* descriptor, const std::string& role) {
  Memory* memory = nullptr;
  library.Check(library.functions().memory_create(&memory, descriptor, library.engine(), nullptr),
                role + ": creating a memory object");
  return OwnedMemory(memory);
}

OwnedPrimitive MakePrimitive(const Library& library, const PrimitiveDescriptor* descriptor, const std::string& what) {
  PrimitiveHandle* primitive = nullptr;
  library.Check(library.functions().primitive_create(&primitive, descriptor), what);
  return OwnedPrimitive(primitive);
}

}  // namespace

struct Primitive::Context {
  std::vector<OwnedMemory> operands;
  OwnedMemory destination, scratch, packed_weights, reorder_scratch;
  std::vector<Argument> arguments;
  std::vector<Argument> reorder_arguments;
};

// Takes an idle context for one execution; gives it back unless the execution failed.
class Primitive::ContextLease {
 public:
  explicit ContextLease(Primitive& owner) : owner_(owner) {
    {
      std::lock_guard<std::mutex> lock(owner.idle_mutex_);
      if (!owner.idle_.empty()) {
        context_ = std::move(owner.idle_.back());
        owner.idle_.pop_back();
        return;
      }
    }
    context_ = owner.MakeContext();
  }
  void GiveBack() {
    std::lock_guard<std::mutex> lock(owner_.idle_mutex_);
    owner_.idle_.push_back(std::move(context_));
  }
  Context* operator->() const { return context_.get(); }

 private:
  Primitive& owner_;
  std::unique_ptr<Context> context_;
};

Primitive::Primitive(CallPlan plan) : plan_(std::move(plan)) {
  const Library& library = Library::Get();
  primitive_ = MakePrimitive(library, plan_.descriptor.get(), "building " + plan_.implementation);
  if (plan_.weights_reorder != nullptr) {
    weights_reorder_ = MakePrimitive(library, plan_.weights_reorder.get(), "building the weights' reorder");
  }
  idle_.push_back(MakeContext());
}

Primitive::~Primitive() = default;

std::unique_ptr<Primitive::Context> Primitive::MakeContext() const {
  const Library& library = Library::Get();
  const Functions& onednn = library.functions();
  auto context = std::make_unique<Context>();
  for (const Operand& operand : plan_.operands) {
    context->operands.push_back(MakeMemory(library, operand.tensor.Describe().get(), operand.tensor.role));
    Memory* memory = context->operands.back().get();
    if (operand.index == kArgumentWeights && weights_reorder_ != nullptr) {
      context->packed_weights =
          MakeMemory(library, onednn.primitive_desc_query_md(plan_.descriptor.get(), kQueryWeights, 0), "weights");
      context->reorder_scratch = MakeMemory(
          library, onednn.primitive_desc_query_md(plan_.weights_reorder.get(), kQueryScratchpad, 0), "scratch");
      context->reorder_arguments = {{kArgumentSource, memory},
                                    {kArgumentDestination, context->packed_weights.get()},
                                    {kArgumentScratchpad, context->reorder_scratch.get()}};
      memory = context->packed_weights.get();
    }
    context->arguments.push_back({operand.index, memory});
  }
  context->destination = MakeMemory(library, plan_.destination.Describe().get(), "dst");
  context->arguments.push_back({kArgumentDestination, context->destination.get()});
  context->scratch =
      MakeMemory(library, onednn.primitive_desc_query_md(plan_.descriptor.get(), kQueryScratchpad, 0), "scratch");
  context->arguments.push_back({kArgumentScratchpad, context->scratch.get()});
  return context;
}

void Primitive::Execute(const std::vector<void*>& operands, void* destination, void* scratch) {
  const Library& library = Library::Get();
  const Functions& onednn = library.functions();
  ContextLease context(*this);
  StreamLease stream;

  auto point = [&](const OwnedMemory& memory, void* address) {
    if (memory != nullptr) {
      library.Check(onednn.memory_set_data_handle(memory.get(), address), "pointing a memory object at its buffer");
    }
  };
  for (size_t i = 0; i < operands.size(); ++i) point(context->operands[i], operands[i]);
  point(context->destination, destination);
  char* scratch_bytes = static_cast<char*>(scratch);
  point(context->packed_weights, scratch_bytes);
  point(context->reorder_scratch, scratch_bytes + plan_.ReorderScratchOffset());
  point(context->scratch, scratch_bytes + plan_.PrimitiveScratchOffset());

  auto run = [&](const OwnedPrimitive& primitive, const std::vector<Argument>& arguments) {
    library.Check(onednn.primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()),
                                           arguments.data()),
                  "executing " + plan_.implementation);
  };
  if (weights_reorder_ != nullptr) run(weights_reorder_, context->reorder_arguments);
  run(primitive_, context->arguments);
  library.Check(onednn.stream_wait(stream.get()), "waiting for " + plan_.implementation);
  context.GiveBack();
}

}  // namespace hlo_dispatch::onednn
