#include "onednn/primitive.h"

#include <algorithm>
#include <utility>

#include "common/failure.h"
#include "onednn/reverse.h"

namespace hlo_dispatch::onednn {

namespace {

// Primitives in flight before a wait. Over other runtimes than SYCL each is done when it is submitted, and waiting
// costs nothing. In SYCL's in-order queue each depends on the one before it, and the runtime walks the whole chain for
// each submission: the longer it is, the longer the caller takes, on a processor that the library's threads need. Each
// wait costs about as much as a few calls, more where threads are slow to wake: few at a time lose on sequences of a
// hundred calls, no limit at all on those of two hundred and more.
constexpr int kMaxInFlight = 32;

// A memory object and its buffer's address: setting it costs more than comparing it, and a program's buffers mostly
// keep their addresses.
struct PlacedMemory {
  OwnedMemory memory;
  void* address = nullptr;

  void Point(const Library& library, void* buffer) {
    if (buffer == address) return;
    const Status status = library.functions().memory_set_data_handle(memory.get(), buffer);
    // The message only where it is needed: making it takes as long as a small primitive.
    if (status != kSuccess) library.Check(status, "pointing a memory object at its buffer");
    address = buffer;
  }
};

PlacedMemory MakeMemory(const Library& library, const MemoryDescriptor* descriptor, const std::string& role) {
  Memory* memory = nullptr;
  library.Check(library.CreateMemory(&memory, descriptor, library.engine(), nullptr),
                role + ": creating a memory object");
  return {OwnedMemory(memory)};
}

OwnedPrimitive MakePrimitive(const Library& library, const PrimitiveDescriptor* descriptor, const std::string& what) {
  PrimitiveHandle* primitive = nullptr;
  library.Check(library.functions().primitive_create(&primitive, descriptor), what);
  return OwnedPrimitive(primitive);
}

// A buffer of the call, and its reordered copy in the primitive's layout, if that differs.
struct Buffer {
  PlacedMemory plain, reordered, reorder_scratch;
  std::vector<Argument> reorder;

  Memory* used() const { return reordered.memory != nullptr ? reordered.memory.get() : plain.memory.get(); }
};

Buffer MakeBuffer(const Library& library, const CallPlan& plan, const Operand& operand, bool is_result) {
  const Functions& onednn = library.functions();
  const std::string& role = operand.tensor.role;
  Buffer buffer;
  const MemoryDescriptor* preferred =
      onednn.primitive_desc_query_md(plan.descriptor.get(), kQueryArgument, operand.index);
  buffer.plain = MakeMemory(library, operand.is_prepacked() ? preferred : operand.tensor.Describe().get(), role);
  if (const PrimitiveDescriptor* reorder = operand.reorder.descriptor.get()) {
    buffer.reordered = MakeMemory(library, preferred, role);
    buffer.reorder_scratch =
        MakeMemory(library, onednn.primitive_desc_query_md(reorder, kQueryScratchpad, 0), "scratch");
    Memory* plain = buffer.plain.memory.get();
    Memory* reordered = buffer.reordered.memory.get();
    buffer.reorder = {{kArgumentSource, is_result ? reordered : plain},
                      {kArgumentDestination, is_result ? plain : reordered},
                      {kArgumentScratchpad, buffer.reorder_scratch.memory.get()}};
  }
  return buffer;
}

}  // namespace

struct Primitive::Context {
  std::vector<Buffer> operands;
  Buffer destination;
  PlacedMemory scratch;
  std::vector<Argument> arguments;
};

std::unique_ptr<Primitive::Context> Primitive::AcquireContext() {
  {
    std::lock_guard<std::mutex> lock(idle_mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Context> context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  return MakeContext();
}

void Primitive::Release(std::unique_ptr<Context> context) {
  std::lock_guard<std::mutex> lock(idle_mutex_);
  idle_.push_back(std::move(context));
}

Primitive::Primitive(CallPlan plan)
    : plan_(std::move(plan)), reorder_scratch_reservation_(plan_.reorder_scratch_bytes) {
  const Library& library = Library::Get();
  primitive_ = MakePrimitive(library, plan_.descriptor.get(), "building " + plan_.implementation);
  auto make_reorder = [&](const Operand& operand) {
    const PrimitiveDescriptor* reorder = operand.reorder.descriptor.get();
    return reorder == nullptr || operand.reorder.copy.has_value()
               ? OwnedPrimitive()
               : MakePrimitive(library, reorder, operand.tensor.role + ": building its reorder");
  };
  for (const Operand& operand : plan_.operands) reorders_.push_back(make_reorder(operand));
  destination_reorder_ = make_reorder(plan_.destination);
  const auto is_used_as_it_is = [](const Operand& operand) {
    return !operand.conversion.has_value() && !operand.reversed_offset.has_value() &&
           operand.reorder.descriptor == nullptr;
  };
  is_plain_ = is_used_as_it_is(plan_.destination) &&
              std::all_of(plan_.operands.begin(), plan_.operands.end(), is_used_as_it_is);
  scratch_offset_ = plan_.primitive_scratch_offset;
  idle_.push_back(MakeContext());
}

Primitive::~Primitive() = default;

std::unique_ptr<Primitive::Context> Primitive::MakeContext() const {
  const Library& library = Library::Get();
  auto context = std::make_unique<Context>();
  for (const Operand& operand : plan_.operands) {
    context->operands.push_back(MakeBuffer(library, plan_, operand, /*is_result=*/false));
    context->arguments.push_back({operand.index, context->operands.back().used()});
  }
  context->destination = MakeBuffer(library, plan_, plan_.destination, /*is_result=*/true);
  context->arguments.push_back({plan_.destination.index, context->destination.used()});
  context->scratch = MakeMemory(
      library, library.functions().primitive_desc_query_md(plan_.descriptor.get(), kQueryScratchpad, 0), "scratch");
  context->arguments.push_back({kArgumentScratchpad, context->scratch.memory.get()});
  return context;
}

void* Primitive::Converted(const Operand& operand, void* buffer, char* reorder_scratch) {
  return operand.conversion.has_value() ? reorder_scratch + operand.converted_offset : buffer;
}

void* Primitive::AddressOf(const Operand& operand, void* converted, char* scratch) {
  return operand.reversed_offset.has_value() ? scratch + *operand.reversed_offset : converted;
}

void Primitive::Point(Context& context, const std::vector<void*>& operands, void* destination, char* scratch,
                      char* reorder_scratch) const {
  const Library& library = Library::Get();
  context.scratch.Point(library, scratch + scratch_offset_);
  if (is_plain_) {
    for (size_t i = 0; i < operands.size(); ++i) context.operands[i].plain.Point(library, operands[i]);
    context.destination.plain.Point(library, destination);
    return;
  }
  auto point_buffer = [&](Buffer& buffer, const Operand& operand, void* address) {
    buffer.plain.Point(library, AddressOf(operand, Converted(operand, address, reorder_scratch), scratch));
    if (buffer.reordered.memory == nullptr) return;
    buffer.reordered.Point(library, reorder_scratch + operand.reorder.offset);
    buffer.reorder_scratch.Point(library, reorder_scratch + operand.reorder.scratch_offset);
  };
  point_buffer(context.destination, plan_.destination, destination);
  for (size_t i = 0; i < operands.size(); ++i) point_buffer(context.operands[i], plan_.operands[i], operands[i]);
}

void Primitive::Submit(const Context& context, Stream* stream) const {
  const Library& library = Library::Get();
  auto run = [&](const OwnedPrimitive& primitive, const std::vector<Argument>& arguments) {
    const Status status = library.functions().primitive_execute(primitive.get(), stream,
                                                                static_cast<int>(arguments.size()), arguments.data());
    if (status != kSuccess) library.Check(status, "executing " + plan_.implementation);
  };
  for (size_t i = 0; !is_plain_ && i < reorders_.size(); ++i) {
    if (reorders_[i] != nullptr) run(reorders_[i], context.operands[i].reorder);
  }
  run(primitive_, context.arguments);
  if (destination_reorder_ != nullptr) run(destination_reorder_, context.destination.reorder);
}

void Primitive::Execute(const std::vector<void*>& operands, void* destination, void* scratch,
                        const Parallel& parallel) {
  Submission submission(plan_.reorder_scratch_bytes);
  submission.Submit(*this, operands, destination, scratch, parallel);
  submission.Finish();
}

void Primitive::Repeat(const std::vector<void*>& operands, void* destination, void* scratch, int64_t count) {
  Library::Get().CheckThreads();
  std::unique_ptr<Context> context = AcquireContext();
  ReorderScratchLease reorder_scratch(plan_.reorder_scratch_bytes);
  StreamLease stream;  // declared last, so that it is destroyed first
  Point(*context, operands, destination, static_cast<char*>(scratch), reorder_scratch.data());
  for (int64_t i = 0; i < count; ++i) {
    Submit(*context, stream.Use());
    stream.Wait(plan_.implementation);
  }
  Release(std::move(context));
}

Submission::Submission(int64_t reorder_scratch_bytes) : reorder_scratch_(reorder_scratch_bytes) {
  Library::Get().CheckThreads();
}

Submission::~Submission() = default;

void Submission::Submit(Primitive& primitive, const std::vector<void*>& operands, void* destination, void* scratch,
                        const Parallel& parallel) {
  char* scratch_bytes = static_cast<char*>(scratch);
  contexts_.push_back({&primitive, primitive.AcquireContext()});
  Primitive::Context& context = *contexts_.back().context;
  primitive.Point(context, operands, destination, scratch_bytes, reorder_scratch_.data());
  if (!primitive.is_plain_) CopyOperands(primitive, operands, scratch_bytes, parallel);
  primitive.Submit(context, stream_.Use());
  last_submitted_ = &primitive;
  if (++in_flight_ == kMaxInFlight) Wait();
  const CallPlan& plan = primitive.plan_;
  if (primitive.is_plain_) return;
  void* converted = Primitive::Converted(plan.destination, destination, reorder_scratch_.data());
  if (plan.destination.reversed_offset.has_value()) {
    Wait();
    CopyReversed(plan.destination.tensor, plan.spatial_dimensions,
                 Primitive::AddressOf(plan.destination, converted, scratch_bytes), converted);
  }
  if (plan.destination.conversion.has_value()) {
    Wait();
    plan.destination.conversion->Narrow(converted, destination, parallel);
  }
}

void Submission::CopyOperands(const Primitive& primitive, const std::vector<void*>& operands, char* scratch,
                              const Parallel& parallel) {
  const CallPlan& plan = primitive.plan_;
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    const Operand& operand = plan.operands[i];
    void* converted = Primitive::Converted(operand, operands[i], reorder_scratch_.data());
    if (operand.conversion.has_value()) {
      Wait();
      operand.conversion->Widen(operands[i], converted, parallel);
    }
    void* from = Primitive::AddressOf(operand, converted, scratch);
    if (operand.reversed_offset.has_value()) {
      Wait();
      CopyReversed(operand.tensor, plan.spatial_dimensions, converted, from);
    }
    if (operand.reorder.copy.has_value()) {
      Wait();
      operand.reorder.copy->Run(from, reorder_scratch_.data() + operand.reorder.offset, parallel);
    }
  }
}

void Submission::Wait() {
  if (in_flight_ == 0) return;
  stream_.Wait(last_submitted_->plan_.implementation);
  in_flight_ = 0;
}

void Submission::Finish() {
  Wait();
  for (ActiveContext& active : contexts_) active.primitive->Release(std::move(active.context));
  contexts_.clear();
}

}  // namespace hlo_dispatch::onednn
